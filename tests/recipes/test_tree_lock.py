"""The client-made lock: one queue with the server-run one, and the gap in the recipe."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Request
from coordinator.errors import OutcomeUnknownError
from coordinator.recipes import Lock, TreeLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import KINDS, Kind, now


@in_memory
async def test_server_run_and_client_made_contenders_stand_in_one_queue(
    world: MemoryCluster,
) -> None:
    """The same znodes, the same decision: they take turns in the order of arrival."""
    order: list[str] = []

    async def contend(kind: Kind, label: str) -> None:
        async with world.client() as client, kind(client, "daily", label=label, timeout=60):
            order.append(label)
            await asyncio.sleep(0.5)

    async with world.client() as observer:
        tasks = []
        for number in range(8):
            tasks.append(asyncio.create_task(contend(KINDS[number % 2], str(number))))
            await asyncio.sleep(0.02)
        assert await world.queue(observer, "daily") == [str(number) for number in range(8)]
        await asyncio.gather(*tasks)

    assert order == [str(number) for number in range(8)]


@in_memory
async def test_a_predecessor_that_goes_between_listing_and_watching_is_noticed(
    world: MemoryCluster,
) -> None:
    """No missed wake-up in the gap of the client-made recipe."""
    async with world.client() as holder, world.client() as client:
        first = Lock(holder, "daily")
        await first.acquire()

        async def release_in_the_gap() -> None:
            await first.release()

        waiter = TreeLock(client, "daily", on_before_watch=release_in_the_gap)
        began = now()
        await waiter.acquire()

        assert now() - began < 1.0


@in_memory
async def test_a_release_wakes_only_the_next_waiter(world: MemoryCluster) -> None:
    """Each waits for its predecessor only: one departure, one contender that looks."""
    listings = 0

    async def looked() -> None:
        nonlocal listings
        listings += 1

    async with world.client() as client:
        first = TreeLock(client, "daily")
        await first.acquire()
        waiters = [TreeLock(client, "daily", on_before_watch=looked) for _ in range(50)]
        tasks = [asyncio.create_task(each.acquire(timeout=60)) for each in waiters]
        await asyncio.sleep(1)
        before = listings
        await first.release()
        await asyncio.sleep(1)

        assert listings - before == 0  # the one that woke holds, nobody else looked
        assert sum(task.done() for task in tasks) == 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@in_memory
async def test_who_cannot_take_its_place_back_does_not_say_that_nothing_is_left(
    world: MemoryCluster,
) -> None:
    """The contender was created; then no member can be reached, to look at it or to delete it."""
    network = world.network()
    async with world.client(network) as client:
        await client.session()

        async def broken_behind_the_create(request: Request) -> None:
            network.is_refusing |= request.method == "GET" and "/locks/" in request.target

        sent_on = network.before
        network.before = broken_behind_the_create

        with pytest.raises(OutcomeUnknownError, match="its removal continues"):
            await TreeLock(client, "daily", timeout=60).acquire()

        network.is_refusing = False
        network.before = sent_on
        await asyncio.sleep(10)
        grant = await TreeLock(client, "daily", timeout=0).acquire()
        await grant.release()
