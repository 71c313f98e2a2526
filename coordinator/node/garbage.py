"""Garbage collection in small steps: long-lived objects are frozen and not scanned again.

Nearly all memory of a member is its state, which has no cycles and is freed by reference counts.
Python's collector scans all live objects whenever they have grown by a quarter: 0.4 s for 500,000
znodes, during which a member answers no request.

1. A full collection scans what was created since the last freeze: some 40,000 objects.
2. When more than ``KEPT_MAX`` objects have survived one, all live objects are frozen
   (``gc.freeze``): reference counts still free them, but a cycle among them is not found.
3. So a cycle is collected unless it was frozen alive and died later. What lives long and ends here
   (connections, streams, waits, sessions) leaves no cycle, nor does a refused request:
   ``tests/wire/test_cycles.py``.
4. Everything is never scanned again, since that takes long. If something leaves cycles all the
   same, some of them die before they are frozen: each ``FOUND_MAX`` objects found in such cycles
   are logged. Those that were frozen first stay until the process ends.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger("coordinator.server")

KEPT_MAX = 10_000
FOUND_MAX = 1_000_000
_OLDEST = 2
_THRESHOLDS = (5_000, 1, 1)
"""Above how many new objects a young collection begins, above how many young ones a middle one,
above how many middle ones a full one. At Python's 700 the first finds the requests under way still
alive: 2 to 8 % of a member's work went there, 1 to 4 % do now (docs/performance.md)."""


class SmallSteps:
    """The collector of this process, once ``begin`` was called."""

    def __init__(self, kept_max: int = KEPT_MAX, found_max: int = FOUND_MAX) -> None:
        self._kept_max = kept_max
        self._found_max = found_max
        self._found = 0

    def begin(self) -> None:
        """Freeze all live objects now, and later those that survive; collect if it was off."""
        gc.set_threshold(*_THRESHOLDS)
        if self._after not in gc.callbacks:
            gc.callbacks.append(self._after)
        gc.freeze()
        gc.enable()

    def _after(self, phase: str, facts: Mapping[str, Any]) -> None:
        if phase != "stop" or facts["generation"] != _OLDEST:
            return
        self._found += facts["collected"]
        if self._found > self._found_max:
            logger.warning(
                "%d objects were garbage in cycles, and some may stay in memory until this member "
                "is restarted: if its memory grows, report this with what its clients do",
                self._found,
            )
            self._found = 0
        if len(gc.get_objects(_OLDEST)) > self._kept_max:
            gc.freeze()
