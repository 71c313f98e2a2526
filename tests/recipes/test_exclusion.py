"""Running a function under a lock, with asyncio; with a sync client it is in tests/client."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import AsyncClient, Client
from coordinator.errors import BadArgumentsError, LockLostError, LockTimeoutError
from recipes import Grant, Lock, exclusive, execute_exclusive
from tests.client.memory_cluster import MemoryCluster, in_memory


@in_memory
async def test_the_task_gets_the_token_and_its_result_is_returned(world: MemoryCluster) -> None:
    """The helper runs a coroutine function while the lock is held."""
    async with world.client() as client:

        async def task(grant: Grant[AsyncClient]) -> int:
            assert len(await world.queue(client, "daily")) == 1
            return grant.fencing_token

        assert await execute_exclusive(client, "daily", task) > 0
        assert await world.queue(client, "daily") == []


@in_memory
async def test_a_task_whose_lock_is_not_had_does_not_run(world: MemoryCluster) -> None:
    """Not had, lost, and the task's own failure are three different errors."""
    network = world.network()
    async with (
        world.client() as holder,
        world.client(network, session_timeout=2) as client,
    ):

        async def never(grant: Grant[AsyncClient]) -> None:
            pytest.fail("ran without the lock")

        async def fails(grant: Grant[AsyncClient]) -> None:
            raise KeyError("mine")

        async def loses(grant: Grant[AsyncClient]) -> None:
            network.is_cut = True
            await asyncio.sleep(60)

        async with Lock(holder, "daily"):
            with pytest.raises(LockTimeoutError):
                await execute_exclusive(client, "daily", never, timeout=0)
        with pytest.raises(KeyError):
            await execute_exclusive(client, "daily", fails)
        with pytest.raises(LockLostError):
            await execute_exclusive(client, "daily", loses)


@in_memory
async def test_the_decorator_is_the_helper(world: MemoryCluster) -> None:
    """Each call of a decorated coroutine function runs under the lock."""
    async with world.client() as client:
        inside = 0

        @exclusive("daily", client=client)
        async def report(grant: Grant[AsyncClient], day: str) -> str:
            nonlocal inside
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.1)
            inside -= 1
            return f"{day} {grant.fencing_token}"

        reports = await asyncio.gather(*(report("monday") for _ in range(5)))

        assert len(set(reports)) == 5
        assert report.__name__ == "report"


@in_memory
async def test_a_plain_function_needs_a_client_that_waits(world: MemoryCluster) -> None:
    """The wrong kind of client is named at the call."""
    async with world.client() as client:

        @exclusive("daily", client=client)
        def report(grant: Grant[Client]) -> None:
            pytest.fail("ran")

        with pytest.raises(BadArgumentsError, match="expected a recipe made with a Client"):
            report()
