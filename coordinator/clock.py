"""The clocks of all rooms: the only file that reads time.

``monotonic_ms`` decides all waits, leases and deadlines. Where the kernel has such a clock
(CLOCK_BOOTTIME) it also counts while the machine is suspended, so a laptop that slept through its
lease notices. ``wall_ms`` is for people (``ctime``, ``mtime``, log lines) and decides nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

loop_seconds: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    if hasattr(time, "clock_gettime")
    else time.monotonic
)
"""The clock of an event loop, which decides nothing but when the loop wakes; a function in C.

It is that of ``time.monotonic``, and not that function, which freezegun replaces wherever it finds
it: a test that freezes time does not stop the heartbeats of a sync client."""

# Final: compiled code need not look them up.
_read_ns: Final = time.clock_gettime_ns
_read_wall_ns: Final = time.time_ns
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_NAMESPACE: Final = "/proc/self/ns/time"
_SUSPEND_AWARE_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The interface of a clock; tests and simulations pass their own."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC; may jump either way."""
        ...


class SystemClock:
    """The clock of this machine."""

    def monotonic_ms(self) -> int:
        """Return the milliseconds since the machine booted, suspended ones included."""
        return _read_ns(_SUSPEND_AWARE_CLOCK) // 1_000_000

    def boot_id(self) -> str:
        """Return the boot since which all processes count alike, "" if it has no name.

        Linux may count otherwise in a container; then it has a name of its own.
        """
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                boot = file.read().strip()
            return f"{boot}-{os.stat(_NAMESPACE).st_ino}"
        except (OSError, ValueError):
            return ""

    def wall_ms(self) -> int:
        """Return the machine's wall time, in milliseconds since 1970."""
        return _read_wall_ns() // 1_000_000


class ManualClock:
    """A clock that moves only by its methods; for tests and simulated worlds."""

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        """Return the milliseconds that it was given and advanced by."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """Return the wall time that it was given and advanced by."""
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
