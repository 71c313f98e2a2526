"""Deadlines and periodic work of one member: decided by the Clock, woken by the event loop.

Every wait of the service goes through here. A test moves a ManualClock, calls ``tick`` and sees
exactly what a running member would do.

1. Nothing fires before its time on ``clock.monotonic_ms()``; the loop only says when to look.
2. A running loop looks within ``_GRAIN_MS`` after a time is due.
3. Adding and cancelling a deadline is O(1): deadlines lie in buckets of ``_GRAIN_MS``, and only
   buckets are ordered.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from types import TracebackType

from coordinator.clock import Clock

_GRAIN_MS = 10
_LOOK_AGAIN_MS_MAX = 60_000


class Timer:
    """One callback at one time; ``cancel`` may be called at any moment, also afterwards."""

    __slots__ = ("_bucket", "at_ms", "callback")

    def __init__(self, at_ms: int, callback: Callable[[], None], bucket: dict[Timer, None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self._bucket = bucket

    def cancel(self) -> None:
        """Do not call it any more; nothing happens if it was called or cancelled."""
        self._bucket.pop(self, None)


class Deadline:
    """``async with``: raises TimeoutError inside when ``at_ms`` passes (asyncio's own scope)."""

    __slots__ = ("_at_ms", "_scope", "_timer", "_timers")

    def __init__(self, timers: Timers, at_ms: int) -> None:
        self._timers = timers
        self._at_ms = at_ms
        self._scope = asyncio.timeout(None)
        self._timer: Timer | None = None

    async def __aenter__(self) -> Deadline:
        await self._scope.__aenter__()
        self._timer = self._timers.at(self._at_ms, self._pass)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # it holds on to us: no cycle is left for the collector
        await self._scope.__aexit__(kind, error, traceback)

    def _pass(self) -> None:
        self._scope.reschedule(asyncio.get_running_loop().time())


class Timers:
    """All timers of one member."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._order: list[int] = []
        self._look: asyncio.TimerHandle | None = None
        self._look_bucket = 0
        self._is_ticking = False
        self._is_closed = False

    def at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once the clock has reached ``at_ms``; never from within this call."""
        number = max(at_ms, self.clock.monotonic_ms()) // _GRAIN_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._order, number)
            self._arm()
        timer = Timer(at_ms, callback, bucket)
        bucket[timer] = None
        return timer

    def every(self, interval_ms: int, callback: Callable[[int], None]) -> None:
        """Call ``callback(now_ms)`` about every ``interval_ms``, until closed."""

        due_ms = self.clock.monotonic_ms() + interval_ms

        def fire() -> None:
            nonlocal due_ms
            now_ms = self.clock.monotonic_ms()
            # In step with the times before, unless whole intervals were missed.
            due_ms = max(due_ms + interval_ms, now_ms + 1)
            self.at(due_ms, fire)
            callback(now_ms)

        self.at(due_ms, fire)

    def deadline(self, at_ms: int) -> Deadline:
        """Return a scope that raises TimeoutError when the clock reaches ``at_ms``."""
        return Deadline(self, at_ms)

    async def sleep_until(self, at_ms: int) -> None:
        """Return once the clock has reached ``at_ms``."""
        woken = asyncio.Event()
        timer = self.at(at_ms, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def tick(self, now_ms: int) -> None:
        """Fire, in order of their buckets, everything that is due at ``now_ms``."""
        # What is added meanwhile would be looked for with the bucket that is just being fired.
        self._is_ticking = True
        try:
            self._fire(now_ms)
        finally:
            self._is_ticking = False
            self._arm()

    def _fire(self, now_ms: int) -> None:
        while self._order and self._order[0] * _GRAIN_MS <= now_ms and not self._is_closed:
            number = self._order[0]
            bucket = self._buckets[number]
            due = [timer for timer in bucket if timer.at_ms <= now_ms]
            for timer in due:
                if bucket.pop(timer, timer) is None:  # not cancelled by an earlier one
                    timer.callback()
            if bucket and not self._is_closed:
                break  # the rest of this bucket is due within the grain
            if self._order and self._order[0] == number:
                heapq.heappop(self._order)
                self._buckets.pop(number, None)

    def close(self) -> None:
        """Forget everything; nothing fires any more."""
        self._is_closed = True
        if self._look is not None:
            self._look.cancel()
        self._buckets.clear()
        self._order.clear()

    def _arm(self) -> None:
        if self._is_closed or self._is_ticking or not self._order:
            return
        first = self._order[0]
        if self._look is not None:
            if self._look_bucket <= first:
                return
            self._look.cancel()
        remaining_ms = (first + 1) * _GRAIN_MS - self.clock.monotonic_ms()
        wait_ms = min(max(remaining_ms, 1), _LOOK_AGAIN_MS_MAX)
        self._look_bucket = first
        self._look = asyncio.get_running_loop().call_later(wait_ms / 1000, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self.tick(self.clock.monotonic_ms())
