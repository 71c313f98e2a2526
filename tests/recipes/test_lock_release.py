"""Giving a lock back: what it says, and that it frees only what was held."""

from __future__ import annotations

import asyncio
import gc
import weakref
from functools import partial

import pytest

from coordinator.client import Request
from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import Kind, each_kind


@each_kind
@in_memory
async def test_release_says_whether_it_was_held_and_may_be_repeated(
    world: MemoryCluster, kind: Kind
) -> None:
    """The first release is True, every later one False and harmless."""
    async with world.client() as client:
        lock = kind(client, "daily")
        assert await lock.release() is False
        await lock.acquire()
        assert await lock.release() is True
        assert await lock.release() is False


@each_kind
@in_memory
async def test_a_late_release_cannot_free_the_next_holders_lock(
    world: MemoryCluster, kind: Kind
) -> None:
    """A is expired, B holds, C waits; A's release changes nothing."""
    network = world.network()
    async with (
        world.client(network, session_timeout=2) as a,
        world.client() as b,
        world.client() as c,
    ):
        late = kind(a, "daily", label="a")
        await late.acquire()
        network.is_cut = True
        await kind(b, "daily", label="b").acquire()
        waiting = asyncio.create_task(kind(c, "daily", label="c").acquire(timeout=60))
        await asyncio.sleep(1)
        network.is_cut = False

        assert await late.release() is False
        await asyncio.sleep(5)
        assert await world.queue(b, "daily") == ["b", "c"]
        waiting.cancel()
        await asyncio.wait({waiting})


@each_kind
@in_memory
async def test_a_lost_reply_to_a_release_is_asked_for_again(
    world: MemoryCluster, kind: Kind
) -> None:
    """The retried release is the same release."""
    network = world.network()
    async with world.client(network) as client:
        lock = kind(client, "daily")
        await lock.acquire()
        network.lose_one_reply("DELETE", "daily")

        assert await lock.release() is True
        assert await world.queue(client, "daily") == []


@each_kind
@in_memory
async def test_a_release_whose_outcome_is_unknown_says_so_and_can_be_repeated(
    world: MemoryCluster, kind: Kind
) -> None:
    """Local state forgets the lock only when the member has (redis-py 3847)."""
    network = world.network()
    async with world.client(network, timeout=2, session_timeout=60) as client:
        lock = kind(client, "daily")
        grant = await lock.acquire()
        network.is_cut = True
        with pytest.raises(OutcomeUnknownError):
            await lock.release()
        assert lock.grant is grant
        assert not grant.is_lost
        network.is_cut = False

        assert await lock.release() is True
        assert await world.queue(client, "daily") == []


@each_kind
@in_memory
async def test_a_cancelled_release_still_frees_the_lock(world: MemoryCluster, kind: Kind) -> None:
    """Cancelling a release leaves nothing unownable behind (redis-py 3847)."""
    async with world.client() as client, world.client() as other:
        lock = kind(client, "daily")
        await lock.acquire()
        releasing = asyncio.create_task(lock.release())
        await asyncio.sleep(0)
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing

        async with kind(other, "daily", timeout=1):
            pass


@each_kind
@in_memory
async def test_a_release_that_is_cancelled_in_an_outage_goes_on_until_it_is_known(
    world: MemoryCluster, kind: Kind
) -> None:
    """Cancelled itself, or a second time on the way out of the body."""
    network = world.network()
    sent_on = network.before

    async def only_heartbeats(request: Request) -> None:
        if "heartbeat" not in request.target:
            raise UnavailableError("no leader")

    async with world.client(network) as client, world.client() as observer:
        lock = kind(client, "plain")
        await lock.acquire()

        async def body() -> None:
            async with kind(client, "daily"):
                await asyncio.sleep(1_000_000)

        tasks = [asyncio.create_task(body())]
        await asyncio.sleep(1)
        network.before = only_heartbeats
        tasks[0].cancel()
        tasks.append(asyncio.create_task(lock.release()))
        await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=1)
        assert all(task.cancelled() for task in tasks)
        await asyncio.sleep(60)
        network.before = sent_on
        await asyncio.sleep(5)

        assert await world.queue(observer, "daily") == []
        assert await world.queue(observer, "plain") == []


@each_kind
@in_memory
async def test_two_who_release_at_once_release_once(world: MemoryCluster, kind: Kind) -> None:
    """Neither takes what the other one did for a loss."""
    async with world.client() as client:
        lock = kind(client, "daily")
        grant = await lock.acquire()
        received: list[str] = []
        grant.on_lost(lambda: received.append("lost"))

        assert await asyncio.gather(lock.release(), grant.release()) == [True, True]

        assert received == []
        assert await lock.release() is False


@each_kind
@in_memory
async def test_a_release_cancelled_at_any_pass_is_not_told_as_a_loss(
    world: MemoryCluster, kind: Kind
) -> None:
    """It goes on: that the lock is not held any more may be its own doing."""
    async with world.client() as client:
        for passes in range(1, 40):
            lock, lost = kind(client, "daily"), [""]
            grant = await lock.acquire()
            grant.on_lost(partial(lost.append, f"after {passes}"))
            releasing = asyncio.create_task(lock.release())
            for _ in range(passes):
                await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.wait({releasing})
            await asyncio.sleep(1)

            assert grant.is_released
            assert lost == [""]


@in_memory
async def test_who_waits_for_a_release_is_answered_when_its_caller_is_cancelled(
    world: MemoryCluster,
) -> None:
    """Two release one grant; the one that sends the request is cancelled."""
    async with world.client() as client:
        for passes in range(1, 40):
            lock = Lock(client, "daily")
            await lock.acquire()
            first = asyncio.create_task(lock.release())
            second = asyncio.create_task(lock.release())
            for _ in range(passes):
                await asyncio.sleep(0)
            first.cancel()

            await asyncio.wait({first, second}, timeout=1)
            assert isinstance(second.result(), bool)
            assert lock.grant is None


@in_memory
async def test_a_grant_that_was_left_needs_no_garbage_collector(world: MemoryCluster) -> None:
    """A body and its grant know each other in no circle: thousands a second would be collected."""
    async with world.client() as client:
        lock = Lock(client, "daily")
        gc.disable()
        try:
            async with lock as grant:
                left = weakref.ref(grant)
            del grant
            async with lock:
                pass

            assert left() is None
        finally:
            gc.enable()
