"""Digests of this member's state at exactly the index of the question.

A question for a future index waits until its entry is applied and is answered before the next entry
is. A question for a past index cannot be answered. Nothing is written to the log for it.

Several slices are taken in one pass of the loop each, as long as there is no later entry.
"""

from __future__ import annotations

from typing import ClassVar

from coordinator.errors import CoordinatorError
from coordinator.raft.engine import Engine
from coordinator.service.base.replica import Interest, MachineReplica
from coordinator.service.base.slices import pass_for_itself
from coordinator.service.base.timers import Timers
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome
from coordinator.state.slice_room import Cursor
from coordinator.state.slices import Slice

WAITING_MAX = 64


class _Look:
    """One question: ``found`` is what was taken, ``is_over`` once no more is."""

    __slots__ = ("cursor", "found", "index", "is_over", "left")

    def __init__(self, index: int, cursor: Cursor, count: int) -> None:
        self.index = index
        self.cursor = cursor
        self.left = count
        self.found: list[Slice] = []
        self.is_over = False


class StateSlices:
    """Takes slices of one member's state."""

    interest: ClassVar[Interest] = frozenset()

    def __init__(self, engine: Engine, timers: Timers, replica: MachineReplica) -> None:
        self._engine = engine
        self._timers = timers
        self._replica = replica
        self._looks: list[_Look] = []
        replica.before_next = self._before_next

    async def at(self, index: int, cursor: Cursor, deadline_ms: int, count: int = 1) -> list[Slice]:
        """Return up to ``count`` slices from ``cursor`` on, as they are when ``index`` is the last
        applied entry: fewer if there are no more or an entry comes, none if that is past, or is not
        reached by the deadline."""
        machine = self._replica.machine
        if machine.applied_index > index or len(self._looks) >= WAITING_MAX:
            return []
        look = _Look(index, cursor, count)
        self._looks.append(look)
        self._arm()
        try:
            async with self._timers.deadline(deadline_ms):
                await self._engine.wait_applied(index)
            while not look.is_over:
                self._take(look)  # nothing has come after it yet
                if not look.is_over:
                    await pass_for_itself()
                    look.is_over = look.is_over or self._engine.status().last_index > index
        except (TimeoutError, CoordinatorError):
            pass
        finally:
            self._looks.remove(look)
            self._arm()
        return look.found

    def on_outcome(self, _command: Command, _outcome: Outcome) -> None:
        """Never called: an entry may have several commands, so ``before_next`` answers instead."""

    def on_restore(self) -> None:
        """Questions for an index before the snapshot cannot be answered."""
        applied_index = self._replica.machine.applied_index
        for look in self._looks:
            if look.index < applied_index:
                look.is_over = True
        self._arm()

    def _before_next(self, index: int) -> None:
        """The next command belongs to a later entry than some questions."""
        for look in self._looks:
            if look.index < index and not look.is_over:
                if not look.found:
                    self._take(look)
                look.is_over = True
        self._arm()

    def _take(self, look: _Look) -> None:
        taken = self._replica.machine.slice_at(look.cursor)
        look.found.append(taken)
        look.left -= 1
        if taken.following is None or not look.left:
            look.is_over = True
        else:
            look.cursor = taken.following

    def _arm(self) -> None:
        open_looks = [each.index for each in self._looks if not each.is_over]
        self._replica.look_index = min(open_looks, default=None)
