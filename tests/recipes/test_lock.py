"""Having a lock and not having it: over the real client, HTTP and service, in virtual time."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import (
    BadArgumentsError,
    DeadlockError,
    LockTimeoutError,
    UnavailableError,
)
from coordinator.recipes import FOREVER, Lock, MultiLock, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import Kind, each_kind, now


@each_kind
@in_memory
async def test_the_body_runs_with_a_grant_and_frees_the_lock_after_it(
    world: MemoryCluster, kind: Kind
) -> None:
    """``async with`` acquires, hands out the token, and releases."""
    async with world.client() as client:
        async with kind(client, "daily") as grant:
            assert grant.fencing_token > 0
            assert grant.remaining_safe_ms() > 9_000
            assert await world.queue(client, "daily") == [""]

        assert await world.queue(client, "daily") == []
        assert grant.is_released


@in_memory
async def test_a_clean_acquire_and_release_are_two_round_trips_and_two_proposals(
    world: MemoryCluster,
) -> None:
    """Once the session is open nothing more is needed than one request each."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()
        lock = Lock(client, "daily")
        sent, proposals = len(network.sent), world.proposals

        await lock.acquire()
        await lock.release()

        assert len(network.sent) - sent == 2
        assert world.proposals - proposals == 2


@each_kind
@in_memory
async def test_waiters_are_granted_one_at_a_time_in_order_with_growing_tokens(
    world: MemoryCluster, kind: Kind
) -> None:
    """Twenty waiters from twenty clients never overlap and keep their order."""
    inside = 0
    history: list[tuple[int, int]] = []

    async def work(client: AsyncClient, number: int) -> None:
        nonlocal inside
        async with kind(client, "daily", timeout=60) as grant:
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.2)
            history.append((number, grant.fencing_token))
            inside -= 1

    async def contend(number: int) -> None:
        await asyncio.sleep(number * 0.05)  # they arrive in this order
        async with world.client() as client:
            await work(client, number)

    await asyncio.gather(*(contend(number) for number in range(20)))

    assert [number for number, _ in history] == list(range(20))
    assert [token for _, token in history] == sorted({token for _, token in history})


@each_kind
@in_memory
async def test_a_with_that_does_not_get_the_lock_raises_and_never_runs_its_body(
    world: MemoryCluster, kind: Kind
) -> None:
    """The result of an acquire cannot be ignored."""
    async with world.client() as holder, world.client() as client:
        async with kind(holder, "daily"):
            began = now()
            with pytest.raises(LockTimeoutError) as raised:
                async with kind(client, "daily", timeout=2):
                    pytest.fail("the body ran without the lock")

            assert 2.0 <= now() - began < 3.0
            assert not isinstance(raised.value, UnavailableError)
        assert await world.queue(client, "daily") == []


@each_kind
@in_memory
async def test_timeout_zero_tries_once_and_leaves_nothing(world: MemoryCluster, kind: Kind) -> None:
    """Zero is an immediate answer, yes or no (kazoo 732)."""
    async with world.client() as holder, world.client() as client:
        await holder.session()
        await client.session()
        async with kind(holder, "daily"):
            began, proposals = now(), world.proposals
            assert await kind(client, "daily").try_acquire() is None
            with pytest.raises(LockTimeoutError):
                await kind(client, "daily").acquire(timeout=0)

            assert now() - began < 0.1
            assert world.proposals - proposals == 2  # one each: there was nothing to clean up
            assert await world.queue(client, "daily") == [""]
        assert await kind(client, "daily").try_acquire() is not None


@each_kind
@in_memory
async def test_without_a_timeout_a_finite_default_applies(world: MemoryCluster, kind: Kind) -> None:
    """Forever has to be asked for by name."""
    async with world.client() as holder, world.client() as client:
        async with kind(holder, "daily"):
            began = now()
            with pytest.raises(LockTimeoutError):
                await kind(client, "daily").acquire()
            assert 10.0 <= round(now() - began, 6) < 11.0

            patient = asyncio.create_task(kind(client, "daily", timeout=FOREVER).acquire())
            await asyncio.sleep(300)
            assert not patient.done()
        assert (await patient).fencing_token > 0
        with pytest.raises(BadArgumentsError, match="FOREVER"):
            kind(client, "daily", timeout=None)  # type: ignore[arg-type]


@each_kind
@in_memory
async def test_whoever_waits_for_hours_keeps_its_place(world: MemoryCluster, kind: Kind) -> None:
    """A patient contender is one contender for longer than the server's longest wait (1 h)."""
    async with (
        world.client(session_timeout=900) as holder,
        world.client(session_timeout=900) as client,
        world.client() as late,
    ):
        async with kind(holder, "daily"):
            patient = asyncio.create_task(
                kind(client, "daily", timeout=FOREVER, label="patient").acquire()
            )
            await asyncio.sleep(1.1 * 3_600)
            impatient = asyncio.create_task(kind(late, "daily", label="late").acquire())
            await asyncio.sleep(1)
            assert await world.queue(client, "daily") == ["", "patient", "late"]
        await patient
        assert not impatient.done()
        impatient.cancel()
        await asyncio.wait({impatient})


@each_kind
@in_memory
async def test_the_timeout_is_one_overall_deadline(world: MemoryCluster, kind: Kind) -> None:
    """Thirty predecessors that leave one by one do not restart it."""
    async with world.client() as others, world.client() as client:
        holders = [kind(others, "daily", timeout=100) for _ in range(30)]
        waiting = [asyncio.create_task(each.acquire()) for each in holders]
        await asyncio.sleep(0.1)
        began = now()
        acquiring = asyncio.create_task(kind(client, "daily", timeout=10).acquire())
        for task, holder in zip(waiting, holders, strict=True):
            await task
            await asyncio.sleep(0.5)
            await holder.release()

        with pytest.raises(LockTimeoutError):
            await acquiring
        assert now() - began >= 10.0  # 15 s of predecessors; it was over after 10
        assert await world.queue(client, "daily") == []


@pytest.mark.parametrize(
    ("kind", "told"), [(Lock, [2, 1]), (MultiLock, [2, 1]), (TreeLock, [2])], ids=str
)
@in_memory
async def test_a_waiter_is_told_how_many_stand_before_it(
    world: MemoryCluster, kind: type[Any], told: list[int]
) -> None:
    """The position reaches the caller as it changes; a TreeLock looks only at its predecessor."""
    positions: list[int] = []
    async with world.client() as others, world.client() as client:
        first, second = Lock(others, "daily"), Lock(others, "daily")
        await first.acquire()
        second_waits = asyncio.create_task(second.acquire())
        await asyncio.sleep(0.1)
        third = asyncio.create_task(kind(client, "daily").acquire(on_position=positions.append))
        await asyncio.sleep(1)
        await first.release()
        await second_waits
        await asyncio.sleep(1)
        await second.release()
        await third

    assert positions == told


@each_kind
@in_memory
async def test_one_lock_object_is_one_contender(world: MemoryCluster, kind: Kind) -> None:
    """Taking it twice fails at once with an explanation instead of waiting for itself."""
    async with world.client() as client:
        lock = kind(client, "daily")
        async with lock:
            with pytest.raises(DeadlockError, match="not reentrant"):
                await lock.acquire()
            with pytest.raises(DeadlockError):
                async with lock:
                    pytest.fail("entered twice")
            assert lock.grant is not None
        async with lock:  # free again afterwards
            pass


@in_memory
async def test_each_acquisition_has_an_identity_that_people_can_see(world: MemoryCluster) -> None:
    """Two grants of one process are two; label, host, pid and trace id are shown."""
    async with (
        world.client() as client,
        Lock(client, "a", label="report", trace_id="t-1") as one,
        Lock(client, "b", label="report") as other,
    ):
        view = await client.lock("a")

        assert one.grant_id != other.grant_id
        assert one.session_id == other.session_id
        assert view.holder is not None
        assert (view.holder.label, view.holder.trace_id) == ("report", "t-1")
        assert view.holder.pid == os.getpid()
        assert view.holder.host
        assert view.holder.grant_id == one.grant_id


@in_memory
async def test_locks_with_other_names_do_not_meet(world: MemoryCluster) -> None:
    """Names are opaque: prefixes, slashes, blanks, other alphabets are names."""
    names: list[str | int] = ["a", "a/b", "a b", "ab", "%2F", "день", 42, "lock-0000000001", "?x#y"]
    async with world.client() as client:
        grants = [await Lock(client, name).acquire(timeout=0) for name in names]
        trees = [await TreeLock(client, name).try_acquire() for name in names]

        assert len({grant.grant_id for grant in grants}) == len(names)
        assert trees == [None] * len(names)  # the same queues
        listed = {summary.lock async for summary in client.locks()}
        assert listed == {str(name) for name in names}


@in_memory
async def test_a_client_that_works_sends_no_heartbeats(world: MemoryCluster) -> None:
    """Its requests keep its session, and with it another lock that it holds for long."""
    network = world.network()
    async with (
        world.client(network, session_timeout=3) as client,
        Lock(client, "long") as long,
    ):
        for _ in range(100):
            async with Lock(client, "short"):
                await asyncio.sleep(0.2)
        busy = network.count("POST", "/heartbeat")
        await asyncio.sleep(20)

        assert not long.is_lost
        assert busy == 0
        assert 19 <= network.count("POST", "/heartbeat") <= 21
