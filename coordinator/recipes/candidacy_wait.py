"""The time that one candidacy has, over all its entries into the queue."""

from __future__ import annotations

from coordinator.client import AsyncClient
from coordinator.errors import LockTimeoutError


class CandidacyWait:
    """How long one candidacy waits in all, however often it enters."""

    def __init__(self, core: AsyncClient, wait_ms: int | None) -> None:
        self._clock = clock = core.clock
        self._wait_ms = wait_ms
        self._ends_ms = None if wait_ms is None else clock.monotonic_ms() + wait_ms
        self._is_first = True

    def left_ms(self) -> int | None:
        """Return for how long to wait now: 0 once, None without end."""
        if self._ends_ms is None or self._is_first:
            return self._wait_ms
        return max(1, self._ends_ms - self._clock.monotonic_ms())

    def go_on(self, because: str) -> None:
        """Enter once more; raises LockTimeoutError when the time is over."""
        self._is_first = False
        if self._ends_ms is not None and self._ends_ms <= self._clock.monotonic_ms():
            raise LockTimeoutError(because)
