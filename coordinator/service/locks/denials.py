"""Denials of locks: tries that were refused, and waiters that left the queue without a grant.

The history of grants has only grants; contention also shows in attempts that got none.

1. Every member counts what it has seen applied since it started, so all that ran equally long
   agree. The counts are for people; nothing is decided by them.
2. A waiter that left timed out, was cancelled, or its session ended: the log does not say which.
3. ``HoldTimes`` knows the holders, and reports each contender that leaves without having held.
4. Bounded: of more than ``_LOCKS_MAX`` locks the one that was denied longest ago is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar, Final

from coordinator.clock import Clock
from coordinator.model.views import Denied
from coordinator.service.base.replica import Interest
from coordinator.service.locks.contenders import LOCKS
from coordinator.state.commands import Command, Enter
from coordinator.state.outcomes import Entered, Outcome

_LOCKS_MAX: Final = 10_000
_PREFIX: Final = LOCKS.root + "/"


class Denials:
    """The denials of all locks, as this member has seen them."""

    interest: ClassVar[Interest] = frozenset({Enter})

    def __init__(self, clock: Clock) -> None:
        self._since_ms = clock.wall_ms()
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def of(self, directory: str) -> Denied:
        """Return the denials of the lock whose queue is ``directory``."""
        return Denied(*self._counts.get(directory, (0, 0)), self._since_ms)

    def note_left(self, path: str) -> None:
        """Count the contender ``path``, which has left the queue and never held."""
        self._count(path.rpartition("/")[0], left=1)

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Count a try that did not get its locks at once."""
        operation, result = command.operation, outcome.result
        if outcome.is_repeat or type(operation) is not Enter or type(result) is not Entered:
            return
        if not result.is_entered:
            for directory in operation.directories:
                self._count(directory, tries=1)

    def on_restore(self) -> None:
        """Keep what was counted: it is still true."""

    def _count(self, directory: str, *, tries: int = 0, left: int = 0) -> None:
        if not directory.startswith(_PREFIX):
            return
        known_tries, known_left = self._counts.pop(directory, (0, 0))
        self._counts[directory] = (known_tries + tries, known_left + left)
        if len(self._counts) > _LOCKS_MAX:
            self._counts.popitem(last=False)
