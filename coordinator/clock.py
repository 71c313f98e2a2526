"""Time, as the rooms see it: the only file that reads a clock.

``monotonic_ms`` decides everything that has to do with waiting, leases and deadlines. It counts
while the machine is suspended where the kernel offers such a clock (CLOCK_BOOTTIME), so a laptop
that slept through its lease knows it. ``wall_ms`` is for people (``ctime``, ``mtime``, log lines)
and takes no part in any decision.
"""

from __future__ import annotations

import time
from typing import Protocol

_SUSPEND_AWARE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """What a room may ask of time; tests and simulations pass their own."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC; may jump either way."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic_ms(self) -> int:
        return time.clock_gettime_ns(_SUSPEND_AWARE_CLOCK) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to; for tests and simulated worlds."""

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, by_ms: int) -> None:
        """Move both clocks forward by ``by_ms`` milliseconds (>= 0)."""
        if by_ms < 0:
            raise ValueError(f"expected a forward step in ms, found {by_ms}")
        self._monotonic_ms += by_ms
        self._wall_ms += by_ms

    def step_wall(self, by_ms: int) -> None:
        """Step the wall clock only, as an NTP correction would; either sign."""
        self._wall_ms += by_ms
