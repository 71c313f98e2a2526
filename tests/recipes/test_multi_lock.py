"""Several locks at once: one order, one deadline, all or none."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, DeadlockError, LockLostError, LockTimeoutError
from coordinator.recipes import Lock, MultiLock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.lock_kinds import now


@in_memory
async def test_transfers_in_both_directions_never_deadlock(world: MemoryCluster) -> None:
    """A to B and B to A, many times over, all finish."""
    inside = 0

    async def transfer(source: str, target: str) -> None:
        nonlocal inside
        async with world.client() as client:
            for _ in range(5):
                async with MultiLock(client, source, target, timeout=60) as (one, other):
                    inside += 1
                    assert inside == 1
                    assert (one.lock, other.lock) == (source, target)
                    await asyncio.sleep(0.01)
                    inside -= 1

    await asyncio.gather(transfer("a", "b"), transfer("b", "a"), transfer("a", "b"))


@in_memory
async def test_if_one_is_not_had_the_others_are_given_back(world: MemoryCluster) -> None:
    """All or none, within one overall deadline."""
    async with world.client() as client, world.client() as other, Lock(other, "b"):
        began = now()
        with pytest.raises(LockTimeoutError):
            async with MultiLock(client, "c", "b", "a", timeout=2):
                pytest.fail("the body ran without all the locks")
        assert 2.0 <= now() - began < 3.0
        for name in "ac":
            assert await world.queue(client, name) == []


@in_memory
async def test_they_are_one_grant(world: MemoryCluster) -> None:
    """One token, one request in, one request out; what ends one of them ends them all."""
    network = world.network()
    async with world.client(network) as client, world.client() as other:
        await client.session()
        sent, proposals = len(network.sent), world.proposals

        b, a = await MultiLock(client, "b", "a").acquire()
        assert (b.lock, a.lock) == ("b", "a")
        assert b.fencing_token == a.fencing_token
        assert await a.release()

        assert len(network.sent) - sent == 2
        assert world.proposals - proposals == 2
        assert b.is_released
        assert not await b.release()
        for name in "ab":
            assert await Lock(other, name).try_acquire() is not None


@in_memory
async def test_nobody_holds_a_part_while_waiting_for_the_rest(world: MemoryCluster) -> None:
    """It waits in all queues, holds none before all, and nobody who came later goes first."""
    order: list[str] = []

    async def hold(lock: Lock[AsyncClient] | MultiLock[AsyncClient], name: str) -> None:
        async with lock:
            order.append(name)
            await asyncio.sleep(1)

    async with world.client() as client, world.client() as other, Lock(other, "b") as first:
        both = asyncio.create_task(hold(MultiLock(client, "a", "b", timeout=60), "both"))
        await asyncio.sleep(1)
        view = await other.lock("a")
        assert view.holder is None
        assert len(view.queue) == 1
        late = asyncio.create_task(hold(Lock(other, "a", timeout=60), "late"))
        await asyncio.sleep(1)
        assert order == []
        await first.release()
        await asyncio.gather(both, late)

    assert order == ["both", "late"]


@in_memory
async def test_losing_them_raises_once(world: MemoryCluster) -> None:
    """One session, several grants: the body is cancelled and told of the loss."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        with pytest.raises(LockLostError):  # noqa: PT012
            async with MultiLock(client, "a", "b", "c"):
                network.is_cut = True
                await asyncio.sleep(60)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


@in_memory
async def test_wrong_uses_are_named(world: MemoryCluster) -> None:
    """No name, a name twice, and entering twice."""
    async with world.client() as client:
        for names in [(), ("a", "a")]:
            with pytest.raises(BadArgumentsError):
                MultiLock(client, *names)
        locks = MultiLock(client, "a")
        async with locks:
            with pytest.raises(DeadlockError):
                async with locks:
                    pytest.fail("entered twice")


@in_memory
async def test_names_that_sort_otherwise_when_encoded_are_given_back(world: MemoryCluster) -> None:
    """a/b is a%2Fb in its path, before a-b: the release names the queue whose grant it is."""
    async with world.client() as client, world.client() as other:
        for name in ("a/b", "Ü"):  # so that the numbers of the places differ
            await (await Lock(client, name).acquire()).release()
        names = ("a-b", "a/b", "-", "Ü", "z")
        lock = MultiLock(client, *names)

        await lock.acquire()
        assert await lock.release()
        async with lock:
            pass
        cancelled = asyncio.create_task(lock.acquire())
        while (await other.lock("z")).holder is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        cancelled.cancel()
        await asyncio.wait({cancelled})
        await asyncio.sleep(1)
        if not cancelled.cancelled():
            await lock.release()

        assert [name for name in names if (await other.lock(name)).holders] == []
