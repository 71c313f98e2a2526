"""Waits that would never end are refused at once; waits that only are long never are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient, Request
from coordinator.errors import (
    DeadlockError,
    LockTimeoutError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes import Lock, MultiLock, RWLock, Semaphore
from tests.client.memory_cluster import MemoryCluster, Network, in_memory
from tests.recipes.lock_kinds import now


@in_memory
async def test_taking_a_lock_twice_fails_at_once_and_says_what_to_use(
    world: MemoryCluster,
) -> None:
    """Another object of the same name, in the same task: it would wait for itself."""
    async with world.client() as client, Lock(client, "daily"):
        began = now()
        with pytest.raises(DeadlockError, match=r"ReentrantLock.*owner=''") as raised:
            await Lock(client, "daily", timeout=60).acquire()

        assert now() - began < 1
        assert raised.value.definite
        assert len(await world.queue(client, "daily")) == 1


@in_memory
async def test_two_tasks_that_want_two_locks_crosswise_do_not_wait_for_ever(
    world: MemoryCluster,
) -> None:
    """The second request gets the circle; the other task goes on."""
    async with world.client() as client, world.client() as other:
        begun = asyncio.Event()

        async def first() -> str:
            async with Lock(client, "a"):
                begun.set()
                await asyncio.sleep(1)
                async with Lock(client, "b", timeout=60):
                    return "both"

        task = asyncio.create_task(first())
        await begun.wait()
        lock_b = Lock(other, "b")
        async with lock_b:
            await asyncio.sleep(2)
            with pytest.raises(DeadlockError, match="MultiLock") as raised:
                await Lock(other, "a", timeout=60).acquire()

        assert await task == "both"
        cycle = raised.value.cycle
        assert {each["waits_for"] for each in cycle} == {"a", "b"}
        assert len({each["session_id"] for each in cycle}) == 2


@in_memory
async def test_tasks_of_one_client_that_wait_for_each_other_are_told_too(
    world: MemoryCluster,
) -> None:
    """One session has many owners."""
    async with world.client() as client:

        async def hold_and_want(mine: str, wanted: str, first_s: float) -> None:
            async with Lock(client, mine):
                await asyncio.sleep(first_s)
                async with Lock(client, wanted, timeout=60):
                    pass

        ends = await asyncio.gather(
            hold_and_want("a", "b", 1), hold_and_want("b", "a", 2), return_exceptions=True
        )

    assert ends[0] is None
    assert isinstance(ends[1], DeadlockError)


@in_memory
async def test_a_reader_that_wants_to_write_is_told_to_release_first(world: MemoryCluster) -> None:
    """Two of them would wait for each other for ever."""
    async with world.client() as client:
        both = RWLock(client, "accounts")
        async with both.read():
            with pytest.raises(DeadlockError, match="release the shared grant"):
                await both.write().acquire()
        async with both.write():
            pass


@in_memory
async def test_slots_that_an_owner_holds_itself_never_come_free_for_it(
    world: MemoryCluster,
) -> None:
    """All slots are its own; with one that is not, waiting may end."""
    async with world.client() as client, world.client() as other:
        slots = [Semaphore(client, "licences", 2) for _ in range(3)]
        await slots[0].acquire()
        await slots[1].acquire()
        with pytest.raises(DeadlockError):
            await slots[2].acquire()
        await slots[1].release()
        foreign = await Semaphore(other, "licences", 2).acquire()
        waiting = asyncio.ensure_future(later(foreign.release))
        assert (await slots[2].acquire()).kind == "slot"
        await waiting


async def later(release: Any) -> None:
    await asyncio.sleep(1)
    await release()


@in_memory
async def test_an_owner_of_its_own_waits_for_nobody_it_knows(world: MemoryCluster) -> None:
    """A grant that another task gives back may be waited for by the one that took it."""
    async with world.client() as client:
        taken = await Lock(client, "daily", owner="").acquire()
        giving = asyncio.create_task(later(taken.release))

        async with Lock(client, "daily", owner=""):
            await giving


@in_memory
async def test_several_at_once_never_close_a_circle(world: MemoryCluster) -> None:
    """Crosswise, many times, in one client and in two."""

    async def transfer(client: AsyncClient, *names: str) -> None:
        for _ in range(10):
            async with MultiLock(client, *names, timeout=60):
                await asyncio.sleep(0.01)

    async with world.client() as client, world.client() as other:
        await asyncio.gather(
            transfer(client, "a", "b"),
            transfer(client, "b", "a"),
            transfer(other, "b", "c", "a"),
            transfer(other, "c", "b"),
        )


@in_memory
async def test_a_failed_release_does_not_look_like_a_deadlock(world: MemoryCluster) -> None:
    """What still stands because its release is under way is waited for, not refused.

    The task has done its part; only the cluster has not heard of it yet.
    """
    network = world.network()
    async with world.client(network, session_timeout=120, timeout=3) as client:
        lock = Lock(client, "daily")
        with pytest.raises((UnavailableError, OutcomeUnknownError)):
            async with lock:
                network.is_cut = True
        again = asyncio.ensure_future(Lock(client, "daily", timeout=60).acquire())
        await asyncio.sleep(5)
        assert not again.done()
        network.is_cut = False

        assert (await again).fencing_token > 0


@in_memory
async def test_a_try_whose_withdrawal_is_under_way_does_not_block_the_next_one(
    world: MemoryCluster,
) -> None:
    """The next attempt of that task waits until the last one is gone from the queue."""
    network = world.network()
    async with (
        world.client(network, session_timeout=120, timeout=3) as client,
        world.client() as other,
    ):
        await client.session()
        async with Lock(other, "daily"):
            network.loses_reply_of = lambda request: True
            with pytest.raises((UnavailableError, OutcomeUnknownError)):
                await Lock(client, "daily", timeout=2).acquire()
            network.loses_reply_of = lambda request: False
            with pytest.raises(LockTimeoutError):
                await Lock(client, "daily", timeout=5).acquire()
        async with Lock(client, "daily"):
            pass


async def _refusing(request: Request) -> None:
    if request.method == "DELETE":
        raise UnavailableError("connection refused")


async def leave_unreleased(client: AsyncClient, network: Network) -> None:
    """Leave a with nothing but a release that is under way until ``network`` refuses no more."""
    before, network.before = network.before, _refusing
    with pytest.raises(UnavailableError):
        async with Lock(client, "a", owner="mine"):
            pass
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_later(3, setattr, network, "before", before)


@in_memory
async def test_a_release_under_way_makes_no_deadlock_of_a_wait_for_another_lock(
    world: MemoryCluster,
) -> None:
    """Its owner comes behind one who waits for what is being released: that wait ends."""
    network = world.network()
    async with (
        world.client(network, session_timeout=120, timeout=1) as client,
        world.client() as other,
    ):
        await leave_unreleased(client, network)
        pair = asyncio.ensure_future(MultiLock(other, "a", "b", timeout=60).acquire())
        await asyncio.sleep(0.5)
        again = asyncio.ensure_future(Lock(client, "b", owner="mine", timeout=60).acquire())

        await (await pair)[0].release()
        assert (await again).fencing_token > 0


@in_memory
async def test_a_release_under_way_makes_no_deadlock_of_the_wait_of_another_owner(
    world: MemoryCluster,
) -> None:
    """Another owner holds the next lock, and wants the one that is being released."""
    network = world.network()
    async with (
        world.client(network, session_timeout=120, timeout=1) as client,
        world.client() as other,
    ):
        async with Lock(other, "b"):
            await leave_unreleased(client, network)
            again = asyncio.ensure_future(Lock(client, "b", owner="mine", timeout=60).acquire())
            await asyncio.sleep(0.5)
            async with Lock(other, "a", timeout=60):
                assert not again.done()
        assert (await again).fencing_token > 0
