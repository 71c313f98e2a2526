"""An event loop whose time is made of waiting: it jumps to the next timer instead of sleeping.

Runs as fast as the work takes, always in the same order for the same seed. No sockets, no threads.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _JumpingSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits and nothing will ever happen")
        self.now += max(0.0, timeout)
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Use it through ``run``."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


class SimulatedClock:
    """A member's clock over the loop's time; ``skew_ms`` is added, monotonic all the same."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self._frozen_ms: int | None = None

    def monotonic_ms(self) -> int:
        if self._frozen_ms is not None:
            return self._frozen_ms
        # Timers end a hair early in floats; a clock must not seem to stand still then.
        return int(self._loop.time() * 1000 + 1e-6) + self.skew_ms

    def freeze(self) -> None:
        """Stand still: the member believes that no time passes."""
        self._frozen_ms = self.monotonic_ms()

    def thaw(self) -> None:
        self._frozen_ms = None

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` in simulated time; what is left over is cancelled."""
    loop = SimulatedLoop()
    try:
        asyncio.set_event_loop(loop)
        result = loop.run_until_complete(main)
        rest = asyncio.all_tasks(loop)
        for task in rest:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()
