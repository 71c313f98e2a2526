"""A queue is in the log: neither a change of leader nor a restart of everybody reorders it."""

from __future__ import annotations

import asyncio

from coordinator.client import AsyncClient
from coordinator.recipes import Lock
from coordinator.testing import LocalCluster

WAITERS = 20


async def test_waiters_keep_their_order_over_leaders_and_restarts(
    coordinator_cluster: LocalCluster,
) -> None:
    """Twenty wait; the leader dies, then all members do; they are granted as they came."""
    cluster = coordinator_cluster
    granted: list[tuple[int, int]] = []

    async def wait(client: AsyncClient, number: int, stands: asyncio.Event) -> None:
        lock = Lock(client, "daily", label=str(number), owner="", timeout=120)
        grant = await lock.acquire(on_position=lambda position: stands.set())
        granted.append((number, grant.fencing_token))
        await lock.release()

    async with (
        cluster.connect(session_timeout=60, timeout=30) as client,
        cluster.connect(session_timeout=60, timeout=30) as other,
    ):
        async with Lock(client, "daily", owner="") as first:
            waiting = []
            for number in range(WAITERS):
                stands = asyncio.Event()
                attempt = wait((client, other)[number % 2], number, stands)
                waiting.append(asyncio.create_task(attempt))
                await stands.wait()
            killed = await asyncio.to_thread(cluster.kill)
            await asyncio.to_thread(cluster.restart, killed)
            for member in cluster.members:
                await asyncio.to_thread(cluster.kill, member)
            await asyncio.to_thread(cluster.heal)
            queue = (await client.lock("daily")).queue
            assert [each.label for each in queue] == [str(number) for number in range(WAITERS)]
            await first.verify()
        await asyncio.gather(*waiting)

    assert [number for number, _ in granted] == list(range(WAITERS))
    tokens = [first.fencing_token, *(token for _, token in granted)]
    assert tokens == sorted(set(tokens))
