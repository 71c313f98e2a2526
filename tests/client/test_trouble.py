"""How much trouble a lease survives: as much as docs/locks.md says, whenever it begins."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from coordinator.client import RetryPolicy, connect
from coordinator.client.sessions.lease import Lease, margin_ms
from coordinator.recipes import Lock
from tests.client.memory_cluster import LEFT, RIGHT, cluster
from tests.client.virtual_time import run

PHASES = 12


def survived_ms(timeout_s: int) -> int:
    """Return how long trouble may last at the worst moment."""
    timeout_ms = timeout_s * 1000
    lease = Lease(sent_ms=0, timeout_ms=timeout_ms, margin_ms=margin_ms(timeout_ms))
    return lease.safe_until_ms - lease.interval_ms - lease.attempt_ms - lease.pause_ms_max


async def is_kept(timeout_s: int, how: str, trouble_s: float, begins_s: float) -> bool:
    """Return whether a lock is held after trouble of some kind and length."""
    async with cluster() as world:
        network = world.network()
        unlucky = RetryPolicy(jitter=0.0)  # each pause is as long as it may be
        connector = connect(
            (LEFT, RIGHT),
            transport=network,
            clock=world.clock,
            retry=unlucky,
            session_timeout=timeout_s,
        )
        async with connector as client:
            grant = await Lock(client, "daily").acquire()
            await asyncio.sleep(begins_s)
            setattr(network, how, True)
            await asyncio.sleep(trouble_s)
            setattr(network, how, False)
            await asyncio.sleep(timeout_s)
            return not grant.is_lost


@pytest.mark.parametrize("timeout_s", [2, 10, 30])
@pytest.mark.parametrize("how", ["is_cut", "is_refusing"])
def test_trouble_as_long_as_promised_costs_no_lock(
    timeout_s: int, how: Literal["is_cut", "is_refusing"]
) -> None:
    """Silence and refusals alike, from every moment between two heartbeats on."""
    trouble_s = survived_ms(timeout_s) / 1000 - 0.02  # the rest is for the answer to arrive
    third_s = timeout_s / 3

    kept = [
        run(is_kept(timeout_s, how, trouble_s, third_s * (1 + phase / PHASES) - 0.001))
        for phase in range(PHASES)
    ]

    assert all(kept)


def test_trouble_as_long_as_the_lease_costs_the_lock() -> None:
    """The test above can fail."""
    assert not run(is_kept(2, "is_cut", 2.0, 1.0))
