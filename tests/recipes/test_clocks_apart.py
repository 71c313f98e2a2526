"""Wall clocks that are seconds apart, not hours: too little to be noticed, enough to be wrong by.

Clients of one token bucket, each with a wall clock of its own that is some seconds off, or is set
while they take: together they take what the rate allows.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from coordinator.recipes import TokenBucket
from tests.client.memory_cluster import MemoryCluster, cluster
from tests.client.virtual_time import LoopClock, run

RATE, BURST, SECONDS = 10, 20, 30


class OffClock(LoopClock):
    """A clock whose wall time is so far off as ``off_s`` says of a moment since the beginning."""

    def __init__(self, loop: asyncio.AbstractEventLoop, off_s: Callable[[float], float]) -> None:
        super().__init__(loop)
        self._off_s = off_s
        self._began_s = loop.time()
        self._own = loop

    def wall_ms(self) -> int:
        return super().wall_ms() + int(self._off_s(self._own.time() - self._began_s) * 1000)


def always(off_s: float) -> Callable[[float], float]:
    return lambda _now_s: off_s


def back(by_s: float) -> Callable[[float], float]:
    """Set back by so much, again and again: each ten seconds, and forth in between."""
    return lambda now_s: -by_s if int(now_s / 10) % 2 else 0.0


OFF = {
    "on time": always(0), "4 s fast": always(4), "4 s slow": always(-4), "6 s fast": always(6),
    "6 s slow": always(-6), "a step of 1 s": back(1), "a step of 4 s": back(4),
}  # fmt: skip


async def taken(world: MemoryCluster, pair: tuple[str, ...]) -> int:
    """Let the clients take whatever they can get; return how many that was."""
    loop = asyncio.get_running_loop()
    ends_s, count = loop.time() + SECONDS, 0

    async def client(name: str, pause_s: float) -> None:
        nonlocal count
        async with world.client(clock=OffClock(loop, OFF[name])) as own:
            bucket = TokenBucket(own, "mail", rate=RATE, burst=BURST)
            while loop.time() < ends_s:
                count += await bucket.take()
                await asyncio.sleep(pause_s)

    await asyncio.gather(*(client(name, 0.03 + 0.007 * at) for at, name in enumerate(pair)))
    return count


QUICK = "4 s slow"


@pytest.mark.parametrize(
    "first", [pytest.param(each, marks=[] if each == QUICK else pytest.mark.check) for each in OFF]
)
def test_a_rate_is_kept_by_clients_whose_clocks_are_seconds_apart(first: str) -> None:
    """Neither is more taken than comes back, nor is the bucket empty for a client that is late."""

    async def scenario(second: str) -> int:
        async with cluster() as world:
            return await taken(world, (first, second))

    for second in itertools.islice(OFF, list(OFF).index(first), None):
        count = run(scenario(second))
        assert count <= BURST + RATE * (SECONDS + 1), (first, second, count)
        assert count >= RATE * (SECONDS - 5), (first, second, count)
