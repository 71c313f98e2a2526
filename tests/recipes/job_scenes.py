"""Jobs of each minute, their work, and machines and leaders whose clocks a test sets."""

from __future__ import annotations

import asyncio
from typing import Any

from coordinator.recipes import Job, Run
from tests.client.memory_cluster import MemoryCluster
from tests.client.virtual_time import LoopClock

MINUTE_MS = 60_000


class Work:
    """Remembers its runs; fails, waits or adds to the tree as it is set."""

    def __init__(self) -> None:
        self.runs: list[Run[Any]] = []
        self.error: Exception | None = None
        self.waits_s = 0.0
        self.result: Any = None

    async def __call__(self, run: Run[Any]) -> Any:
        self.runs.append(run)
        await asyncio.sleep(self.waits_s)
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def minutes(self) -> list[int]:
        """Return the minutes of its runs, from the first."""
        return [(each.start_ms - self.runs[0].start_ms) // MINUTE_MS for each in self.runs]


def each_minute(client: Any, **options: Any) -> Job[Any]:
    return Job(client, "report", every="1m", **{"label": "me", **options})


async def next_minute() -> None:
    await asyncio.sleep(60)


def set_leader(world: MemoryCluster, step_ms: int) -> None:
    """Set the leader's clock, which its clients have not."""
    clock = world.clock
    clock.wall_ms = lambda: LoopClock.wall_ms(clock) + step_ms  # type: ignore[method-assign]
