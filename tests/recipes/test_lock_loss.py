"""Losing a lock: in time, without hiding anything, never silently."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import SetData
from coordinator.errors import (
    LockLostError,
    NoNodeError,
    OutcomeUnknownError,
    SessionExpiredError,
)
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.virtual_time import LoopClock
from tests.recipes.lock_kinds import Kind, each_kind, now


@each_kind
@in_memory
async def test_a_holder_cut_off_is_cancelled_and_told_before_the_next_is_granted(
    world: MemoryCluster, kind: Kind
) -> None:
    """The body stops and ``async with`` raises, in time."""
    network = world.network()
    stopped_at = granted_at = 0.0
    async with world.client(network, session_timeout=3) as client, world.client() as other:

        async def next_one() -> None:
            nonlocal granted_at
            await kind(other, "daily", timeout=30).acquire()
            granted_at = now()

        with pytest.raises(LockLostError, match="no heartbeat") as raised:  # noqa: PT012
            async with kind(client, "daily") as grant:
                contender = asyncio.create_task(next_one())
                await asyncio.sleep(1)
                network.is_cut = True
                try:
                    await asyncio.sleep(60)
                finally:
                    stopped_at = now()
        await contender

        assert grant.is_lost
        assert raised.value.fencing_token == grant.fencing_token
        assert 0 < stopped_at < granted_at
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]


@each_kind
@in_memory
async def test_a_short_interruption_costs_nothing(world: MemoryCluster, kind: Kind) -> None:
    """Three seconds without heartbeats leave a ten second lease alone."""
    network = world.network()
    async with world.client(network) as client, kind(client, "daily") as grant:
        network.is_refusing = True
        await asyncio.sleep(3)
        network.is_refusing = False
        await asyncio.sleep(30)
        grant.check()


@in_memory
async def test_the_bodys_own_exception_is_never_hidden(world: MemoryCluster) -> None:
    """Neither by a loss nor by a failing release."""
    network = world.network()
    async with world.client(network, session_timeout=2, timeout=1) as client:
        with pytest.raises(ZeroDivisionError):  # noqa: PT012
            async with Lock(client, "daily"):
                network.is_cut = True
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    raise ZeroDivisionError from None
        network.is_cut = False

    network = world.network()
    async with world.client(network, session_timeout=60, timeout=1) as client:
        with pytest.raises(KeyError) as raised:  # noqa: PT012
            async with Lock(client, "weekly"):
                network.is_cut = True
                raise KeyError("mine")
        assert "could not be released" in raised.value.__notes__[0]
        network.is_cut = False
        await asyncio.sleep(5)
        assert await world.queue(client, "weekly") == []  # it went on in the background


@in_memory
async def test_a_foreign_cancellation_stays_a_cancellation(world: MemoryCluster) -> None:
    """Only our own cancellation becomes LockLostError; another's passes through, released."""
    async with world.client() as client:

        async def body() -> None:
            async with Lock(client, "daily"):
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_timeout_around_the_body_stays_a_timeout(world: MemoryCluster) -> None:
    """``asyncio.timeout`` inside and outside compose with the lock."""
    async with world.client() as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), Lock(client, "daily"):
                await asyncio.sleep(60)
        with pytest.raises(TimeoutError):
            async with Lock(client, "daily"), asyncio.timeout(1):
                await asyncio.sleep(60)
        assert await world.queue(client, "daily") == []


@in_memory
async def test_work_may_continue_when_unsure_if_it_says_so(world: MemoryCluster) -> None:
    """``when_unsure="continue"`` lets the body run on; the grant still tells."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2) as client,
        Lock(client, "daily", when_unsure="continue") as grant,
    ):
        network.is_cut = True
        await asyncio.sleep(10)
        with pytest.raises(LockLostError):
            grant.check()
        network.is_cut = False


@in_memory
async def test_a_body_that_swallows_its_cancellation_still_hears_of_the_loss(
    world: MemoryCluster,
) -> None:
    """Leaving the ``with`` raises if the lock was lost meanwhile."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        with pytest.raises(LockLostError):  # noqa: PT012
            async with Lock(client, "daily"):
                network.is_cut = True
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    network.is_cut = False


@in_memory
async def test_after_a_loss_a_new_acquire_uses_a_new_session(world: MemoryCluster) -> None:
    """A lost session is not adopted again, nor are its grants (curator 1121)."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        first = await Lock(client, "daily").acquire()
        network.is_cut = True
        await asyncio.sleep(5)
        network.is_cut = False

        second = await Lock(client, "daily").acquire()

        assert first.is_lost
        assert first.session_id != second.session_id
        assert second.fencing_token > first.fencing_token
        assert await second.verify() > 0


@in_memory
async def test_a_waiter_whose_own_session_ends_stops_waiting(world: MemoryCluster) -> None:
    """It does not wait on for something it could not hold (etcd 11456, 12547)."""
    network = world.network()
    async with (
        world.client() as holder,
        world.client(network, session_timeout=2) as client,
        Lock(holder, "daily"),
    ):
        waiting = asyncio.create_task(Lock(client, "daily", timeout=60).acquire())
        await asyncio.sleep(1)
        network.is_cut = True
        began = now()
        with pytest.raises(OutcomeUnknownError, match="no heartbeat of session"):
            await waiting
        assert now() - began <= 2.0


@each_kind
@in_memory
async def test_a_grant_that_arrives_too_late_is_given_back(
    world: MemoryCluster, kind: Kind
) -> None:
    """When the lease has no safe time left the client does not report "held"."""
    network = world.network()
    own_clock = LoopClock(asyncio.get_running_loop())
    async with world.client(network, clock=own_clock) as client, world.client() as other:
        await client.session()

        def slow(request: object) -> float:
            own_clock.paused_ms += 30_000  # the process is stopped while the answer is under way
            network.delays_s = lambda request: 0.0
            return 0.0

        network.delays_s = slow
        with pytest.raises(SessionExpiredError):
            await kind(client, "daily").acquire(timeout=60)
        await asyncio.sleep(1)

        assert await world.queue(other, "daily") == []


@in_memory
async def test_verify_asks_the_cluster(world: MemoryCluster) -> None:
    """Verified means held at that moment, with the safe time left; else lost."""
    async with (
        world.client() as client,
        world.client() as operator,
        Lock(client, "daily", when_unsure="continue") as grant,
    ):
        assert 0 < await grant.verify() <= 9_750
        assert (await operator.lock("daily", fencing_token=grant.fencing_token)).is_current
        view = await operator.lock("daily")
        assert view.holder is not None
        await operator.delete(view.holder.path)  # somebody breaks the lock by force

        with pytest.raises(LockLostError, match="the cluster says"):
            await grant.verify()
        with pytest.raises(LockLostError):
            grant.check()


@each_kind
@in_memory
async def test_after_a_loss_the_same_object_may_contend_again(
    world: MemoryCluster, kind: Kind
) -> None:
    """A lost grant does not block its own lock object, even if it was never released."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        lock = kind(client, "daily")
        first = await lock.acquire()
        network.is_cut = True
        await asyncio.sleep(3)
        network.is_cut = False

        second = await lock.acquire()

        assert first.is_lost
        assert second.fencing_token > first.fencing_token
        assert lock.grant is second


@in_memory
async def test_callbacks_hear_of_a_loss_once_even_when_they_come_late(
    world: MemoryCluster,
) -> None:
    """``on_lost`` is called when it happens, or soon if it has happened."""
    network = world.network()
    received: list[str] = []
    async with world.client(network, session_timeout=2) as client:
        grant = await Lock(client, "daily").acquire()
        grant.on_lost(lambda: received.append("early"))
        stop = grant.on_lost(lambda: received.append("never"))
        stop()
        network.is_cut = True
        await asyncio.sleep(5)
        assert received == ["early"]

        grant.on_lost(lambda: received.append("late"))
        await asyncio.sleep(0.1)

        assert received == ["early", "late"]


@each_kind
@in_memory
async def test_is_held_says_as_of_when_and_for_how_long(world: MemoryCluster, kind: Kind) -> None:
    """Never a bare yes: the answer has a zxid and the safe time that is left."""
    async with world.client() as client:
        async with kind(client, "daily") as grant:
            held = await grant.is_held()

            assert held.is_held
            assert held.zxid >= grant.fencing_token
            assert 0 < held.safe_ms <= 10_000

        after = await grant.is_held()

        assert not after.is_held
        assert after.safe_ms == 0


@each_kind
@in_memory
async def test_extend_renews_the_lease_of_a_live_grant(world: MemoryCluster, kind: Kind) -> None:
    """The full length again from now on, and no more than that."""
    network = world.network()
    async with world.client(network) as client, kind(client, "daily") as grant:
        network.is_refusing = True
        await asyncio.sleep(5)
        before_ms = grant.remaining_safe_ms()
        network.is_refusing = False

        assert before_ms < 5_000
        assert 9_000 < await grant.extend() <= 10_000
        assert grant.remaining_safe_ms() > 9_000


@each_kind
@in_memory
async def test_extending_a_lease_that_has_passed_on_is_refused(
    world: MemoryCluster, kind: Kind
) -> None:
    """The other holder's grant stays what it is."""
    async with world.client() as client, world.client() as other:
        grant = await kind(client, "daily").acquire()
        await client.core.delete(grant.path)  # an operator's forced release
        next_grant = await kind(other, "daily").acquire()
        await grant.is_held()

        with pytest.raises(LockLostError):
            await grant.extend()
        assert (await next_grant.is_held()).is_held


@each_kind
@in_memory
async def test_a_write_may_depend_on_the_grant_in_the_same_command(
    world: MemoryCluster, kind: Kind
) -> None:
    """There is no gap between the check and the write."""
    async with world.client() as client:
        await client.create("/report", b"")
        grant = await kind(client, "daily").acquire()

        await client.multi([grant.condition(), SetData("/report", b"mine")])
        await grant.release()
        with pytest.raises(NoNodeError, match="a grant of it has ended"):
            await client.multi([grant.condition(), SetData("/report", b"too late")])

        assert (await client.get("/report")).data == b"mine"


@in_memory
async def test_a_holder_of_very_many_locks_hears_of_all_that_are_taken_at_once(
    world: MemoryCluster,
) -> None:
    """All locks are deleted over the tree, more than a heartbeat tells: none is believed."""
    async with world.client() as client, world.client() as other:
        grants = [await Lock(client, f"lock-{number}").acquire() for number in range(150)]
        await other.delete("/locks", recursive=True)
        await asyncio.sleep(10)

        assert [grant.lock for grant in grants if not grant.is_lost] == []
        for number in range(150):  # one after the other: the list is full, and is no news
            grant = await Lock(client, f"later-{number}", owner="").acquire()
            await other.revoke(f"later-{number}", by="ops", reason="stuck")
            if number % 20 == 0:
                await asyncio.sleep(5)
                assert grant.is_lost
        kept = await Lock(client, "kept").acquire()
        await asyncio.sleep(10)
        assert not kept.is_lost
