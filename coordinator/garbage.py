"""Garbage collection in small steps: what has stayed is put aside, and not looked at again.

Nearly all memory of a member is its state, which has no cycles and is freed by its counts of
references. Python's collector looks for cycles in all that is alive whenever that has grown by a
quarter: 0.4 s for 500,000 znodes, in which a member answers nobody.

1. A full collection looks at what came since things were put aside last: some 40,000 objects.
2. When more than ``KEPT_MAX`` have survived one, all that is there is put aside (``gc.freeze``): it
   goes by its counts as before, but no cycle in it is found.
3. So a cycle is collected unless it was put aside alive and died later. What lives long and ends
   here (connections, streams, waits, sessions) leaves no cycle: ``tests/wire/test_cycles.py``.
4. Should something leave them all the same, it is seen in those that die in time: after
   ``FOUND_MAX`` objects found in them everything is looked at once, as long as that takes.
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
_THRESHOLDS = (700, 10, 3)
"""How many more objects begin a young collection, how many young ones a middle one, how many middle
ones a full one. Python's own, but for the last: less has come together by then."""


class SmallSteps:
    """The collector of this process, once ``begin`` was called."""

    def __init__(self, kept_max: int = KEPT_MAX, found_max: int = FOUND_MAX) -> None:
        self._kept_max = kept_max
        self._found_max = found_max
        self._found = 0

    def begin(self) -> None:
        """Put aside what is there, and from now on what stays. Again if need be."""
        gc.set_threshold(*_THRESHOLDS)
        if self._after not in gc.callbacks:
            gc.callbacks.append(self._after)
        gc.freeze()

    def _after(self, phase: str, facts: Mapping[str, Any]) -> None:
        if phase != "stop" or facts["generation"] != _OLDEST:
            return
        self._found += facts["collected"]
        if self._found > self._found_max:
            logger.info("%d objects were garbage in cycles: the next look is at all", self._found)
            self._found = 0
            gc.unfreeze()
        elif len(gc.get_objects(_OLDEST)) > self._kept_max:
            gc.freeze()
