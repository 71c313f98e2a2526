"""Closing a client while others use it: they are told so, and of nothing else."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.client import Request
from coordinator.errors import ClientClosedError, OutcomeUnknownError, UnavailableError
from recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory


@in_memory
async def test_who_waits_for_a_session_is_told_that_the_client_was_closed(
    world: MemoryCluster,
) -> None:
    """Not by a cancellation that nobody sent."""
    network = world.network()
    network.is_cut = True
    async with world.client(network) as client:
        acquiring = asyncio.create_task(Lock(client, "daily").acquire())
        await asyncio.sleep(0.5)

    with pytest.raises(ClientClosedError, match="was closed"):
        await acquiring


@in_memory
async def test_who_releases_is_told_that_the_client_was_closed(world: MemoryCluster) -> None:
    """Whether it has come to it is not known; it goes with the session at the latest."""
    network = world.network()
    async with world.client() as observer:
        async with world.client(network) as client:
            grant = await Lock(client, "daily").acquire()

            async def refuses_releases(request: Request, timeout_ms: int) -> None:
                if "/grants/" in request.target:
                    raise UnavailableError("no leader")

            network._pass = refuses_releases  # type: ignore[method-assign]
            releasing = asyncio.create_task(grant.release())
            await asyncio.sleep(0.5)

        with pytest.raises(OutcomeUnknownError, match="was closed"):
            await releasing
        assert await world.queue(observer, "daily") == []
