"""Taken again by its owner: counted, one grant, freed by the last release."""

from __future__ import annotations

import asyncio
import threading

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    NotOwnerError,
)
from coordinator.recipes import Lock, ReentrantLock, RWLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


@in_memory
async def test_the_last_release_frees_the_lock(world: MemoryCluster) -> None:
    """Two bodies, one inside the other, hold one grant; the inner end keeps it."""
    async with world.client() as client, world.client() as other:
        lock = ReentrantLock(client, "daily")
        async with lock as outer:
            async with lock as inner:
                assert inner.fencing_token == outer.fencing_token
                assert lock.count == 2
                numbers = [each.next_write_number() for each in (outer, inner, inner, outer)]
                assert numbers == [1, 2, 3, 4]
            assert inner.is_released
            assert not outer.is_lost
            assert await Lock(other, "daily").try_acquire() is None
        assert lock.count == 0
        assert await Lock(other, "daily").try_acquire() is not None


@in_memory
async def test_taking_it_again_asks_nobody(world: MemoryCluster) -> None:
    """The second acquisition and its release send nothing."""
    network = world.network()
    async with world.client(network) as client:
        lock = ReentrantLock(client, "daily")
        await lock.acquire()
        sent = len(network.sent)

        await lock.acquire(timeout=0)
        await lock.release()

        assert len(network.sent) == sent
        assert await lock.release()
        assert await world.queue(client, "daily") == []


@in_memory
async def test_it_is_counted_over_all_objects_of_a_client(world: MemoryCluster) -> None:
    """A function that takes the lock may be called by one that has it; each makes its own."""

    async def book(client: AsyncClient) -> int:
        async with ReentrantLock(client, "accounts") as grant:
            return grant.fencing_token

    async with world.client() as client:
        async with ReentrantLock(client, "accounts") as grant:
            assert await book(client) == grant.fencing_token
            assert await world.queue(client, "accounts") == [""]
            grant.check()
        assert await world.queue(client, "accounts") == []


@in_memory
async def test_another_task_waits(world: MemoryCluster) -> None:
    """The owner is the task, not the client, even over the same object."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily", timeout=1)

        async def another() -> None:
            async with lock:
                pytest.fail("two owners at once")

        async with lock:
            with pytest.raises(LockTimeoutError):
                await asyncio.create_task(another())


@in_memory
async def test_tasks_with_one_name_are_one_owner(world: MemoryCluster) -> None:
    """``owner=`` joins the tasks that do one piece of work."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily", owner="import 7", timeout=1)

        async def helper() -> int:
            async with lock as grant:
                return grant.fencing_token

        async with lock as grant:
            assert await asyncio.create_task(helper()) == grant.fencing_token
            grant.check()


@in_memory
async def test_tasks_of_one_owner_may_take_it_at_the_same_moment(world: MemoryCluster) -> None:
    """The second counts on what the first is about to get, also behind somebody else."""
    async with world.client() as client, world.client() as other:
        lock = ReentrantLock(client, "daily", owner="import 7", timeout=5)

        async def helper() -> int:
            async with lock as grant:
                await asyncio.sleep(0.1)
                return grant.fencing_token

        async with Lock(other, "daily"):
            helpers = [asyncio.create_task(helper()) for _ in range(3)]
            await asyncio.sleep(0.5)
            assert await lock.try_acquire() is None
            assert await lock.try_acquire(timeout=0.5) is None
            assert len(await world.queue(client, "daily")) == 2, "one place for all three"

        assert len({await each for each in helpers}) == 1
        assert await world.queue(client, "daily") == []


@in_memory
async def test_who_waited_for_its_own_owner_in_vain_goes_on_alone(world: MemoryCluster) -> None:
    """The first gives up; the second, with more patience, takes a place of its own."""
    async with world.client() as client, world.client() as other:
        lock = ReentrantLock(client, "daily", owner="import 7")
        async with Lock(other, "daily"):
            first = asyncio.create_task(lock.try_acquire(timeout=1))
            second = asyncio.create_task(lock.try_acquire(timeout=5))
            await asyncio.sleep(2)
            assert first.done()
        assert await first is None
        assert await second is not None
        assert lock.count == 1


@in_memory
async def test_each_task_of_one_owner_leaves_its_own_body(world: MemoryCluster) -> None:
    """When the lock is lost, who is inside is stopped, and who has left is left alone."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        lock = ReentrantLock(client, "daily", owner="import 7")
        is_second_in = asyncio.Event()

        async def second() -> None:
            async with lock:
                is_second_in.set()
                await asyncio.sleep(60)

        async with lock:
            inside = asyncio.create_task(second())
            await is_second_in.wait()
        network.is_cut = True
        await asyncio.sleep(10)

        with pytest.raises(LockLostError):
            await inside
        network.is_cut = False


@in_memory
async def test_each_body_leaves_the_part_that_it_was_entered_with(world: MemoryCluster) -> None:
    """What the middle one gave back by hand is nothing to leave; the outer one's part stays."""
    async with world.client() as client, world.client() as other:
        lock = ReentrantLock(client, "daily")
        async with lock as outer:
            async with lock as middle:
                await middle.release()
                async with lock:
                    assert lock.count == 2
                assert lock.count == 1
            outer.check()
            assert await Lock(other, "daily").try_acquire() is None
        assert outer.is_released
        assert await Lock(other, "daily").try_acquire() is not None


@pytest.mark.parametrize("by", ["grant", "lock"])
@in_memory
async def test_a_body_may_give_back_its_part_by_hand_and_take_another(
    world: MemoryCluster, by: str
) -> None:
    """Leaving it is no error then, and leaves what the body has acquired since, as with a Lock."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily")
        async with lock as grant:
            await (grant.release() if by == "grant" else lock.release())
            async with lock:
                pass
            assert lock.count == 0
            another = await lock.acquire()
            assert lock.count == 1
            another.check()

        assert another.is_released
        assert lock.count == 0
        assert lock._taken == {}
        assert await world.queue(client, "daily") == []


@in_memory
async def test_what_is_taken_as_often_as_given_back_is_free(world: MemoryCluster) -> None:
    """By hand or by a body, in whatever order; each release gives back a part that is held."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily")
        await lock.acquire()
        async with lock as inner:
            assert await lock.release() is True
            inner.check()
        assert lock.count == 0

        await lock.acquire()
        async with lock:
            assert [await lock.release(), await lock.release()] == [True, True]
            assert lock.count == 0
            assert await lock.release() is False

        assert lock._taken == {}
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_second_release_within_a_body_is_not_the_outer_bodys(world: MemoryCluster) -> None:
    """It is False, as for every lock: the body's own part is not held any more."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily")
        async with lock as outer:
            async with lock:
                assert await lock.release() is True
                assert await lock.release() is False
            outer.check()
        assert await world.queue(client, "daily") == []


@in_memory
async def test_grants_given_back_by_themselves_are_forgotten(world: MemoryCluster) -> None:
    """One object used by many tasks does not remember those that are done with it."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily")

        async def visit() -> None:
            await (await lock.acquire()).release()

        for _ in range(5):
            await asyncio.create_task(visit())

        assert len(lock._taken) <= 1


@in_memory
async def test_a_grant_that_is_counted_can_not_be_downgraded(world: MemoryCluster) -> None:
    """The other bodies of its owner rely on holding alone."""
    async with (
        world.client() as client,
        world.client() as other,
        ReentrantLock(client, "daily") as outer,
    ):
        with pytest.raises(BadArgumentsError, match="RWLock"):
            await outer.downgrade()
        async with ReentrantLock(client, "daily") as inner:
            assert inner.kind == "exclusive"
            assert await RWLock(other, "daily").read().try_acquire() is None


@in_memory
async def test_who_has_no_name_can_not_be_known_again(world: MemoryCluster) -> None:
    """An owner of its own each time would be anybody: refused."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="owner"):
            ReentrantLock(client, "daily", owner="")


@in_memory
async def test_who_has_not_taken_it_can_not_give_it_back(world: MemoryCluster) -> None:
    """Another task's release is an error, not the end of the holder's grant (kazoo 134)."""
    async with world.client() as client:
        lock = ReentrantLock(client, "daily")
        await lock.acquire()

        with pytest.raises(NotOwnerError, match="owner="):
            await asyncio.create_task(lock.release())

        assert lock.count == 1
        await lock.release()


@in_memory
async def test_a_grant_given_back_by_itself_counts_once(world: MemoryCluster) -> None:
    """``grant.release()`` gives back that grant's part only, however often it is called."""
    async with world.client() as client:
        first = await ReentrantLock(client, "daily").acquire()
        second = await ReentrantLock(client, "daily").acquire()

        assert await second.release()
        assert not await second.release()
        first.check()
        assert await first.release()
        assert await world.queue(client, "daily") == []


@in_memory
async def test_what_was_lost_is_not_counted_on(world: MemoryCluster) -> None:
    """Inside a body that lost its lock it can not be taken again; afterwards it can."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        lock = ReentrantLock(client, "daily", when_unsure="continue")
        async with lock as grant:
            network.is_cut = True
            await asyncio.sleep(3)
            network.is_cut = False
            assert grant.is_unsure
            with pytest.raises(LockLostError):
                await lock.acquire()
        async with lock as again:
            assert again.fencing_token > grant.fencing_token


@in_memory
async def test_both_bodies_end_when_the_lock_is_lost(world: MemoryCluster) -> None:
    """The inner body is cancelled, and the outer one raises what happened."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        lock = ReentrantLock(client, "daily")
        with pytest.raises(LockLostError):  # noqa: PT012
            async with lock, lock:
                network.is_cut = True
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        network.is_cut = False


@in_memory
async def test_a_try_that_fails_leaves_nothing_counted(world: MemoryCluster) -> None:
    """Not had, not counted; had, counted."""
    async with world.client() as client, world.client() as other:
        lock = ReentrantLock(client, "daily")
        async with Lock(other, "daily"):
            assert await lock.try_acquire() is None
            assert lock.count == 0
        assert await lock.try_acquire() is not None
        assert lock.count == 1


def test_each_body_of_a_thread_leaves_its_own_part() -> None:
    """A sync client keeps the same."""
    with serving() as url, connect(url) as client, connect(url) as other:
        lock = ReentrantLock(client, "daily")
        with lock as outer:
            with lock as middle:
                middle.release()
                with lock:
                    pass
            outer.check()
            assert Lock(other, "daily").try_acquire() is None
        with lock as grant:
            grant.release()
            with lock:
                pass
        assert Lock(other, "daily").try_acquire() is not None


def test_threads_of_a_sync_client_are_owners_of_their_own() -> None:
    """One object, two threads: each counts for itself."""
    seen: list[object] = []
    with serving() as url, connect(url) as client:
        lock = ReentrantLock(client, "daily")

        def another() -> None:
            seen.append(lock.try_acquire())

        with lock as grant, lock as again:
            assert again.fencing_token == grant.fencing_token
            thread = threading.Thread(target=another)
            thread.start()
            thread.join()
        assert seen == [None]
        assert lock.try_acquire() is not None
