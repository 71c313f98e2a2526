"""An event loop whose time passes only when nothing is left to do: hours of waiting in no time.

With transports in memory every test is deterministic: the loop jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting, lets the loop's time jump."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise AssertionError("everybody waits and nothing will ever happen")
            self.loop.now_s += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time is ``now_s``; also a Clock, ``rate`` times as fast as the loop's own time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


class LoopClock:
    """The clock of one participant in the loop's time; runs ``rate`` times as fast."""

    def __init__(self, loop: asyncio.AbstractEventLoop, rate: float = 1.0) -> None:
        self._loop = loop
        self._rate = rate
        self.paused_ms = 0
        """How long the whole process was stopped; the clock goes on meanwhile."""

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1000 * self._rate) + self.paused_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()


def run(scenario: Coroutine[Any, Any, T]) -> T:
    """Run ``scenario`` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)
