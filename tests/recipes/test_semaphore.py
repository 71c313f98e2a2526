"""Up to so many holders at once, in the order in which they came."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, DeadlockError, NoNodeError
from coordinator.recipes import Semaphore
from tests.client.memory_cluster import MemoryCluster, in_memory


async def try_slot(client: AsyncClient, size: int = 3, **options: Any) -> Any:
    """Try once in a task, so under an owner, of its own."""
    slot = Semaphore(client, "licences", size, **options)
    await asyncio.create_task(slot.try_acquire())
    return slot.grant


@in_memory
async def test_as_many_hold_as_there_are_slots(world: MemoryCluster) -> None:
    """The next one does not, until one of them gives its slot back."""
    async with world.client() as client:
        grants = [await try_slot(client) for _ in range(3)]

        assert await try_slot(client) is None
        assert all(grant.kind == "slot" for grant in grants)
        tokens = [grant.fencing_token for grant in grants]
        assert tokens == sorted(set(tokens))
        await grants[1].release()
        assert await try_slot(client) is not None
        assert await try_slot(client) is None


@in_memory
async def test_never_more_than_its_size(world: MemoryCluster) -> None:
    """Twenty workers, four slots, every slot in use, in the order in which they came."""
    inside: set[int] = set()
    most = 0
    order: list[int] = []

    async def work(number: int) -> None:
        nonlocal most
        await asyncio.sleep(number * 0.05)
        async with world.client() as client, Semaphore(client, "licences", 4, timeout=60):
            order.append(number)
            inside.add(number)
            most = max(most, len(inside))
            await asyncio.sleep(1)
            inside.remove(number)

    await asyncio.gather(*(work(number) for number in range(20)))

    assert most == 4
    assert order == list(range(20))


@in_memory
async def test_the_cluster_keeps_the_size_and_whoever_comes_later_holds_by_it(
    world: MemoryCluster,
) -> None:
    """Another size that a later contender names changes nothing; resize does."""
    async with world.client() as client:
        assert await try_slot(client, size=1) is not None
        assert await try_slot(client, size=9) is None

        assert await Semaphore(client, "licences", 1).resize(2) == 2

        assert await try_slot(client, size=1) is not None
        assert await try_slot(client, size=1) is None
        assert (await client.lock("licences")).size == 2


@in_memory
async def test_growing_lets_the_next_ones_in_and_shrinking_takes_nobodys_slot(
    world: MemoryCluster,
) -> None:
    """Who holds goes on; who waits does so until there are fewer than the new size."""
    async with world.client() as client:
        slots = Semaphore(client, "licences", 1)
        waiting = [
            asyncio.create_task(Semaphore(client, "licences", 1, timeout=60).acquire())
            for _ in range(4)
        ]
        await asyncio.sleep(1)
        assert sum(task.done() for task in waiting) == 1

        await slots.resize(3)
        await asyncio.sleep(1)
        assert sum(task.done() for task in waiting) == 3

        await slots.resize(1)
        await asyncio.sleep(1)
        held = [task.result() for task in waiting if task.done()]
        assert [grant.is_lost for grant in held] == [False] * 3
        for grant in held[:2]:
            await grant.release()
        await asyncio.sleep(1)
        assert sum(task.done() for task in waiting) == 3
        await held[2].release()
        await waiting[3]


@in_memory
async def test_wrong_sizes_are_named(world: MemoryCluster) -> None:
    """When it is made, when it is resized, and when there is nothing to resize."""
    async with world.client() as client:
        for size in (0, 10_001, True, "3"):
            with pytest.raises(BadArgumentsError, match="size"):
                Semaphore(client, "licences", size)  # type: ignore[arg-type]
        with pytest.raises(BadArgumentsError):
            await Semaphore(client, "licences", 1).resize(0)
        with pytest.raises(NoNodeError):
            await Semaphore(client, "nobody's", 1).resize(2)


@in_memory
async def test_guards_of_one_holder_would_refuse_the_others(world: MemoryCluster) -> None:
    """A trap, so it is said when the semaphore is made."""

    class Store:
        def raise_to(self, token: int, /) -> None:
            """Accept everything."""

    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="highest token"):
            Semaphore(client, "licences", 2, guards=[Store()])


@in_memory
async def test_one_object_is_one_slot(world: MemoryCluster) -> None:
    """Taking it twice says so; two objects are two slots."""
    async with world.client() as client:
        slot = Semaphore(client, "licences", 2)
        async with slot:
            with pytest.raises(DeadlockError):
                await slot.acquire()
