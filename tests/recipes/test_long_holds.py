"""Who holds for long is listed, counted and named."""

from __future__ import annotations

import asyncio
import logging

from coordinator.node.config import Config
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory

LONG_MS = Config().limits.long_hold_ms


@in_memory
async def test_long_holders_can_be_listed(world: MemoryCluster) -> None:
    """Those who hold for longer than asked, and nobody else; one log line, one count."""
    async with world.client() as client, world.client() as operator:
        logger, told = logging.getLogger("coordinator.service.locks.hold_times"), Told()
        logger.addHandler(told)
        try:
            async with Lock(client, "import"):
                await asyncio.sleep(LONG_MS / 1000 - 5)
                async with Lock(client, "mail"):
                    await asyncio.sleep(10)

                    long_held = [each async for each in operator.locks(held_ms_min=LONG_MS)]
                    all_held = [each async for each in operator.locks()]

                    assert [each.lock for each in long_held] == ["import"]
                    assert long_held[0].held_ms >= LONG_MS
                    assert [each.lock for each in all_held] == ["import", "mail"]
                    assert measured(world, "long_holds") == 1
        finally:
            logger.removeHandler(told)
        assert [message for message in told.messages if "'import' has been held" in message]
        assert not [message for message in told.messages if "'mail'" in message]


@in_memory
async def test_waits_and_holds_are_told_apart(world: MemoryCluster) -> None:
    """Fifty who want it for half a second: long waits, short holds, in the metrics."""
    async with world.client() as client:

        async def work(number: int) -> None:
            async with Lock(client, "checkout:cart", owner=str(number), timeout=60):
                await asyncio.sleep(0.5)

        workers = [asyncio.create_task(work(number)) for number in range(51)]
        await asyncio.sleep(10)
        waiting = measured(world, "lock_waiting", lock_class="checkout")
        await asyncio.gather(*workers)

        def waited(until_s: float) -> float:
            labels = {"lock_class": "checkout", "recipe": "lock", "le": str(until_s)}
            return measured(world, "grant_wait_seconds_bucket", **labels)

        def held(until_s: float) -> float:
            labels = {"lock_class": "checkout", "le": str(until_s)}
            return measured(world, "lock_hold_seconds_bucket", **labels)

        assert 25 <= waiting <= 35
        assert waited(30.0) == 51
        assert 25 <= 51 - waited(10.0) <= 35  # the tail, up to 25 s
        assert held(1.0) == 51
        assert held(0.1) == 0


def measured(world: MemoryCluster, name: str, **labels: str) -> float:
    value = world.member.metrics.registry.get_sample_value(f"coordinator_{name}", labels)
    assert value is not None, name
    return value


class Told(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
