"""Clocks that a test sets: a wall clock that steps, a monotonic clock that runs fast or slow."""

from __future__ import annotations

import threading

from coordinator.clock import Clock, SystemClock


class AdjustableClock:
    """The machine's clock, as one member or one client reads it; safe to set from any thread.

    Its monotonic time never goes back, whatever is set.
    """

    def __init__(self, true_clock: Clock | None = None) -> None:
        self._true = true_clock or SystemClock()
        self._guard = threading.Lock()
        self._rate = 1.0
        self._since_true_ms = self._since_ms = self._true.monotonic_ms()
        self._wall_step_ms = 0

    def monotonic_ms(self) -> int:
        """Return the monotonic milliseconds, at the rate that was set."""
        with self._guard:
            return self._now_ms()

    def wall_ms(self) -> int:
        """Return the machine's wall time, moved by the step that was set."""
        return self._true.wall_ms() + self._wall_step_ms

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock, as an NTP correction would; either sign, and on top of others."""
        with self._guard:
            self._wall_step_ms += by_ms

    def set_rate(self, rate: float) -> None:
        """Let monotonic time run ``rate`` times as fast as true time from now on (> 0)."""
        if not rate > 0:
            raise ValueError(f"expected a rate above 0, found {rate}")
        with self._guard:
            now_ms, self._since_true_ms = self._now_ms(), self._true.monotonic_ms()
            self._since_ms, self._rate = now_ms, rate

    def set_right(self) -> None:
        """Take back all steps, and run at the true rate from now on."""
        with self._guard:
            self._wall_step_ms = 0
        self.set_rate(1.0)

    def _now_ms(self) -> int:
        passed_ms = self._true.monotonic_ms() - self._since_true_ms
        return self._since_ms + int(passed_ms * self._rate)
