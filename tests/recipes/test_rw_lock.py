"""Many readers or one writer, in the order in which they came."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.recipes import Lock, RWLock
from tests.client.memory_cluster import MemoryCluster, in_memory


async def as_task(lock: Lock[AsyncClient]) -> Lock[AsyncClient]:
    """Acquire in a task of its own: an owner of its own."""
    await asyncio.create_task(lock.acquire())
    return lock


@in_memory
async def test_readers_hold_together(world: MemoryCluster) -> None:
    """All of them at once, each with a token of its own that grows."""
    async with world.client() as client:
        both = RWLock(client, "accounts")
        grants = [
            await asyncio.create_task(both.read(label=f"reader {number}").acquire(timeout=0))
            for number in range(5)
        ]
        view = await client.lock("accounts")

        assert [each.label for each in view.holders] == [f"reader {n}" for n in range(5)]
        assert {grant.kind for grant in grants} == {"shared"}
        tokens = [grant.fencing_token for grant in grants]
        assert tokens == sorted(set(tokens))


@in_memory
async def test_a_writer_holds_alone(world: MemoryCluster) -> None:
    """Neither a reader nor another writer, nor a plain lock of that name, beside it."""
    async with world.client() as client, world.client() as other:
        async with RWLock(client, "accounts").write() as grant:
            assert grant.kind == "exclusive"
            assert await RWLock(other, "accounts").read().try_acquire() is None
            assert await RWLock(other, "accounts").write().try_acquire() is None
            assert await Lock(other, "accounts").try_acquire() is None
        assert await RWLock(other, "accounts").read().try_acquire() is not None
        assert await Lock(client, "accounts").try_acquire() is None


@in_memory
async def test_nobody_starves(world: MemoryCluster) -> None:
    """A reader that comes after a waiting writer waits behind it."""
    order: list[str] = []

    async def hold(lock: Lock[AsyncClient], name: str, seconds: float) -> None:
        async with lock:
            order.append(name)
            await asyncio.sleep(seconds)

    async with world.client() as client:
        both = RWLock(client, "accounts", timeout=60)
        tasks = []
        for name, side in [("r1", both.read), ("w", both.write), ("r2", both.read)]:
            tasks.append(asyncio.create_task(hold(side(), name, 5)))
            await asyncio.sleep(0.5)
        await asyncio.gather(*tasks)

    assert order == ["r1", "w", "r2"]


@in_memory
async def test_a_writer_may_go_on_as_a_reader(world: MemoryCluster) -> None:
    """Downgraded: place and token stay, waiting readers come in, waiting writers do not."""
    async with world.client() as client, world.client() as other:
        both = RWLock(other, "accounts", timeout=60)
        async with RWLock(client, "accounts").write() as grant:
            reader = asyncio.create_task(both.read().acquire())
            await asyncio.sleep(1)
            writer = asyncio.create_task(both.write().acquire())
            await asyncio.sleep(1)

            await grant.downgrade()
            await grant.downgrade()  # idempotent
            shared = await reader
            await asyncio.sleep(1)

            assert grant.kind == "shared"
            assert not writer.done()
            assert await grant.verify() > 0
            view = await client.lock("accounts")
            assert view.holders[0].fencing_token == grant.fencing_token
        await shared.release()
        assert (await writer).fencing_token > grant.fencing_token


@in_memory
async def test_only_who_holds_an_exclusive_grant_may_downgrade_it(world: MemoryCluster) -> None:
    """Not one that was given back, and not one that is no lock's."""
    async with world.client() as client:
        lock = Lock(client, "accounts")
        grant = await lock.acquire()
        await lock.release()

        with pytest.raises(NotOwnerError):
            await grant.downgrade()


@in_memory
async def test_wrong_options_are_refused_when_it_is_made(world: MemoryCluster) -> None:
    """Not only when one of its sides is first used."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="max_hold"):
            RWLock(client, "accounts", max_hold=0)
        with pytest.raises(BadArgumentsError, match="timeout"):
            RWLock(client, "accounts").read(timeout=-1)
