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
from typing import Any, Final

from coordinator.clock import Clock

_GRAIN_MS: Final = 10
_LOOK_AGAIN_MS_MAX: Final = 60_000
NOT_BEFORE_LONG_MS: Final = 60_000
"""What periodic work adds to now where nothing is due: it is called again for something."""


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
    """``async with``: raises TimeoutError inside when ``at_ms`` of ``timers`` passes, or once it is
    ``cut``; without timers only then. It is ``asyncio.timeout`` by the Clock."""

    __slots__ = ("_at_ms", "_is_cut", "_is_within", "_scope", "_timer", "_timers")

    def __init__(self, timers: Timers | None = None, at_ms: int = 0) -> None:
        self._timers = timers
        self._at_ms = at_ms
        self._scope = asyncio.timeout(None)
        self._timer: Timer | None = None
        self._is_within = self._is_cut = False

    @property
    def is_expired(self) -> bool:
        """Whether it ended what went on inside."""
        return self._scope.expired()

    async def __aenter__(self) -> Deadline:
        await self._scope.__aenter__()
        self._is_within = True
        if self._timers is not None:
            self._timer = self._timers.at(self._at_ms, self.cut)
        if self._is_cut:
            self.cut()
        return self

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._is_within = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._scope.__aexit__(kind, error, traceback)

    def cut(self) -> None:
        """End what goes on inside, now or once it begins; it is late from now on."""
        self._is_cut = True
        if self._is_within and not self._scope.expired():
            self._scope.reschedule(0.0)


NeedBy = Callable[[int], object]
"""Of periodic work that said when it is needed again: it is needed by this time already."""


def never_mind(_at_ms: int) -> None:
    """Nothing is called periodically yet."""


class Every:
    """Work that is done again and again, in step with its first time."""

    __slots__ = ("_callback", "_due_ms", "_interval_ms", "_timer", "_timers")

    def __init__(self, timers: Timers, interval_ms: int, callback: Callable[[int], object]) -> None:
        self._timers = timers
        self._interval_ms = interval_ms
        self._callback = callback
        # At multiples of the interval: what is done as often is done in the same pass.
        self._due_ms = (timers.clock.monotonic_ms() // interval_ms + 1) * interval_ms
        self._timer: Timer | None = None

    def pause(self) -> None:
        """Do nothing until ``go_on``: there is nothing to do, and nothing wakes the member."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def go_on(self) -> None:
        """Go on at the next time in step with those before: when it was needed before the pause
        says nothing of now."""
        if self._timer is None:
            now_ms = self._timers.clock.monotonic_ms()
            early = (self._due_ms - now_ms - 1) // self._interval_ms
            self._due_ms -= max(early, 0) * self._interval_ms
            self._set(now_ms)

    def need_by(self, at_ms: int) -> None:
        """Call it at the first time in step from ``at_ms`` on, if it said that it is needed later.

        While paused it stays so."""
        timer, now_ms = self._timer, self._timers.clock.monotonic_ms()
        early = (self._due_ms - max(at_ms, now_ms)) // self._interval_ms
        if timer is not None and early > 0:
            timer.cancel()
            self._due_ms -= early * self._interval_ms
            self._timer = self._timers.at(self._due_ms, self._fire)

    def _set(self, not_before_ms: int) -> None:
        late_ms = not_before_ms - self._due_ms
        if late_ms > 0:
            self._due_ms += -(-late_ms // self._interval_ms) * self._interval_ms
        self._timer = self._timers.at(self._due_ms, self._fire)

    def _fire(self) -> None:
        now_ms = self._timers.clock.monotonic_ms()
        # In step with the times before, unless whole intervals were missed.
        self._due_ms = max(self._due_ms + self._interval_ms, now_ms + 1)
        self._timer = timer = self._timers.at(self._due_ms, self._fire)
        not_before_ms = self._callback(now_ms)
        if not isinstance(not_before_ms, int) or self._timer is not timer:
            return
        if not_before_ms > self._due_ms:
            timer.cancel()
            self._set(not_before_ms)


class Timers:
    """All timers of one member."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._buckets: dict[int, dict[Timer, None]] = {}
        self._order: list[int] = []
        self._look: asyncio.TimerHandle | None = None
        self._look_bucket = 0
        self._fired_ms = 0
        """When it was last looked for what is due."""
        self._is_ticking = False
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the member's loop; asyncio asks the system for the process each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def at(self, at_ms: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once the clock has reached ``at_ms``; never from within this call."""
        if at_ms <= self._fired_ms:  # its bucket may have gone, or may be the one being fired
            number = max(at_ms, self.clock.monotonic_ms()) // _GRAIN_MS
        else:
            number = at_ms // _GRAIN_MS
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._order, number)
            self._arm()
        timer = Timer(at_ms, callback, bucket)
        bucket[timer] = None
        return timer

    def every(self, interval_ms: int, callback: Callable[[int], object]) -> Every:
        """Call ``callback(now_ms)`` about every ``interval_ms``, until paused or closed.

        If it returns a time, an int, it need not be called before that."""
        every = Every(self, interval_ms, callback)
        every.go_on()
        return every

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
        # What is added now would be looked for with the bucket that is just being fired.
        self._is_ticking = True
        self._fired_ms = max(self._fired_ms, now_ms)
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
        self._look = self.running_loop().call_later(wait_ms / 1000, self._look_now)

    def _look_now(self) -> None:
        self._look = None
        self.tick(self.clock.monotonic_ms())
