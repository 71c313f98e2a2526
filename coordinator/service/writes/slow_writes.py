"""The log of slow writes: one line with its parts, for a write that took ``log.slow_ms`` or more.

1. *leader*: until a leader was known that takes it; *order*: until it was in the log of a quorum,
   and applied by the leader, with what waited before it; *apply*: until this member had applied it.
2. While everything is slow, ``LINES_MAX`` lines in ``WINDOW_MS`` are enough; the next one says how
   many there were besides.
"""

from __future__ import annotations

import logging
from typing import Final

from coordinator.clock import Clock
from coordinator.state.commands import Command

logger = logging.getLogger("coordinator.slow")

WINDOW_MS: Final = 10_000
LINES_MAX: Final = 20


class SlowWrites:
    """Those of one member; ``slow_ms`` 0 logs none."""

    def __init__(self, clock: Clock, slow_ms: int) -> None:
        self._clock = clock
        self._slow_ms = slow_ms
        self._window_ms = 0
        self._lines = 0

    def look(
        self, command: Command, began_ms: int, proposed_ms: int, ordered_ms: int, end_ms: int
    ) -> None:
        """Log the write if it was slow; 0 for what did not happen before its end."""
        took_ms = end_ms - began_ms
        if not self._slow_ms or took_ms < self._slow_ms:
            return
        if end_ms - self._window_ms >= WINDOW_MS:
            left_out, self._window_ms, self._lines = max(0, self._lines - LINES_MAX), end_ms, 0
            if left_out:
                logger.warning("%d more slow writes were not logged", left_out)
        self._lines += 1
        if self._lines > LINES_MAX:
            return
        proposed_ms = proposed_ms or end_ms
        ordered_ms = ordered_ms or end_ms
        logger.warning(
            "%s of identity %r took %d ms: leader %d ms, order %d ms, apply %d ms%s",
            type(command.operation).__name__,
            command.caller.identity,
            took_ms,
            proposed_ms - began_ms,
            ordered_ms - proposed_ms,
            end_ms - ordered_ms,
            f"; request {command.request.number}" if command.request is not None else "",
        )
