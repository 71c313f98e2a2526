"""Digests of this member's state at exactly the index of the question.

A question for a future index waits until its entry is applied and is answered before the next entry
is. A question for a past index cannot be answered. Nothing is written to the log for it.
"""

from __future__ import annotations

from typing import ClassVar

from coordinator.errors import CoordinatorError
from coordinator.raft.engine import Engine
from coordinator.service.replica import Interest, MachineReplica
from coordinator.service.timers import Timers
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome
from coordinator.state.slice_room import Cursor
from coordinator.state.slices import Slice

WAITING_MAX = 64


class _Look:
    """One question: ``found`` is set once it is answered, ``is_missed`` if it cannot be."""

    __slots__ = ("cursor", "found", "index", "is_missed")

    def __init__(self, index: int, cursor: Cursor) -> None:
        self.index = index
        self.cursor = cursor
        self.found: Slice | None = None
        self.is_missed = False


class StateSlices:
    """Takes slices of one member's state."""

    interest: ClassVar[Interest] = Interest.REST

    def __init__(self, engine: Engine, timers: Timers, replica: MachineReplica) -> None:
        self._engine = engine
        self._timers = timers
        self._replica = replica
        self._looks: list[_Look] = []
        replica.before_next = self._before_next

    async def at(self, index: int, cursor: Cursor, deadline_ms: int) -> Slice | None:
        """Return the slice from ``cursor`` on, as it is when ``index`` is the last applied entry;
        None if that is past, or is not reached by the deadline."""
        machine = self._replica.machine
        if machine.applied_index > index or len(self._looks) >= WAITING_MAX:
            return None
        look = _Look(index, cursor)
        self._looks.append(look)
        self._arm()
        try:
            async with self._timers.deadline(deadline_ms):
                await self._engine.wait_applied(index)
        except (TimeoutError, CoordinatorError):
            return look.found
        finally:
            self._looks.remove(look)
            self._arm()
        if look.found is None and not look.is_missed:
            self._take(look)  # nothing has come after it yet
        return look.found

    def on_outcome(self, _command: Command, _outcome: Outcome) -> None:
        """Nothing: an entry may have several commands, so ``before_next`` answers instead."""

    def on_restore(self) -> None:
        """Questions for an index before the snapshot cannot be answered."""
        applied_index = self._replica.machine.applied_index
        for look in self._looks:
            if look.found is None and look.index < applied_index:
                look.is_missed = True
        self._arm()

    def _before_next(self, index: int) -> None:
        """The next command belongs to a later entry than some questions."""
        for look in self._looks:
            if look.index < index and look.found is None and not look.is_missed:
                self._take(look)
        self._arm()

    def _take(self, look: _Look) -> None:
        look.found = self._replica.machine.slice_at(look.cursor)

    def _arm(self) -> None:
        open_looks = [each.index for each in self._looks if not (each.found or each.is_missed)]
        self._replica.look_index = min(open_looks, default=None)
