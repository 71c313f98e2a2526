"""An attempt whose client id the exactly-once table has forgotten: what is said, what is left."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from coordinator.errors import OutcomeUnknownError
from recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory


async def forget_all_clients(world: MemoryCluster) -> None:
    """Let so many others write that the table has no room for who wrote before."""
    table = world.member._replica.machine._requests
    table._limits = replace(table._limits, clients_max=3)
    for number in range(8):
        async with world.client() as other:
            await other.create(f"/x{number}")


@in_memory
async def test_a_cancellation_stays_one_when_the_attempt_was_forgotten(
    world: MemoryCluster,
) -> None:
    """That it can not be withdrawn by its number is no error of the caller's (S007)."""
    async with world.client() as holder, world.client() as waiter:
        await Lock(holder, "daily").acquire()
        waiting = asyncio.create_task(Lock(waiter, "daily", timeout=600).acquire())
        await asyncio.sleep(1)
        await forget_all_clients(world)

        waiting.cancel()
        await asyncio.wait({waiting})

        assert waiting.cancelled()


@in_memory
async def test_a_timeout_is_unknown_when_the_attempt_was_forgotten(world: MemoryCluster) -> None:
    """Not "nothing is left", as long as nobody knows (S007)."""
    network = world.network()
    async with world.client() as holder, world.client(network) as waiter:
        await Lock(holder, "daily").acquire()
        waiting = asyncio.create_task(Lock(waiter, "daily", timeout=30).acquire())
        await asyncio.sleep(1)
        await forget_all_clients(world)
        network.loses_reply_of = lambda request: "locks" in request.target

        with pytest.raises(OutcomeUnknownError, match="may stand in the queue"):
            await waiting
