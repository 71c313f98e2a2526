"""What a helper says when its function has returned and the lock cannot be released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import LockLostError, UnavailableError
from coordinator.recipes import Job, Lock, Once, execute_exclusive
from tests.client.memory_cluster import MemoryCluster, Network, in_memory

Task = Callable[[Any], Awaitable[int]]
Helper = Callable[[AsyncClient, Task], Awaitable[Any]]


async def exclusively(client: AsyncClient, task: Task) -> int:
    return await execute_exclusive(client, "x", task)


async def once(client: AsyncClient, task: Task) -> Any:
    return (await Once(client).run("x", task)).result


async def in_its_interval(client: AsyncClient, task: Task) -> Any:
    return (await Job(client, "x", every="8760h").run(task)).runs[0].result


HELPERS: dict[str, Helper] = {"exclusive": exclusively, "Once": once, "Job": in_its_interval}


async def nothing(_: Any) -> None:
    """Refuse nothing."""


def breaks_at_the_release(network: Network) -> None:
    """Refuse everything from the release on."""

    async def before(request: Any) -> None:
        if request.method == "DELETE" or "release" in request.target:
            network.is_refusing = True

    network.before = before


@pytest.mark.parametrize("name", HELPERS)
@in_memory
async def test_the_result_is_not_lost_to_a_failed_release(world: MemoryCluster, name: str) -> None:
    """An UnavailableError would say that nothing was done; the release goes on by itself."""
    network = world.network()
    async with world.client(network, timeout=2) as client, world.client() as other:

        async def task(_: Any) -> int:
            breaks_at_the_release(network)
            return 7

        assert await HELPERS[name](client, task) == 7
        assert network.is_refusing, "the release failed"
        network.before, network.is_refusing = nothing, False
        await asyncio.sleep(3)
        assert [each async for each in other.locks()] == []


@pytest.mark.parametrize("name", HELPERS)
@in_memory
async def test_what_fails_before_the_end_is_raised(world: MemoryCluster, name: str) -> None:
    """The lock is not acquired, or the task raises: its error comes through."""
    network = world.network()
    async with world.client(network, timeout=2) as client:

        async def task(_: Any) -> int:
            network.is_refusing = True
            raise UnavailableError("mine")

        with pytest.raises(UnavailableError, match="mine"):
            await HELPERS[name](client, task)
        with pytest.raises(UnavailableError):
            await HELPERS[name](client, task)


@in_memory
async def test_a_loss_while_the_task_ran_is_raised(world: MemoryCluster) -> None:
    """Of work that is not recorded under its grant nobody knows whether another ran beside it."""
    async with world.client() as client, world.client() as ops:

        async def task(_: Any) -> int:
            await ops.revoke("x", by="ops", reason="to see")
            return 7

        with pytest.raises(LockLostError):
            await execute_exclusive(client, "x", task)
        async with Lock(ops, "x", timeout=0):
            pass
