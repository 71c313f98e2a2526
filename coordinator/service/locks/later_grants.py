"""Grants that were too many for one command: of thousands who wait to share a lock.

The command that lets them in grants to ``grants_per_command_max``, in the order of the queue; the
leader proposes the rest at once. Nobody gets in between: newcomers stand behind all who wait.
"""

from __future__ import annotations

from coordinator.clock import Clock
from coordinator.raft.engine import Engine
from coordinator.service.pieces import Pieces
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.state.commands import Command, FinishGrants
from coordinator.state.outcomes import Outcome


class LaterGrants:
    """Goes on with grants while this member leads."""

    def __init__(self, engine: Engine, clock: Clock, replica: MachineReplica, tasks: Tasks) -> None:
        self._replica = replica
        self._pieces = Pieces(engine, clock, tasks, "grant to more", self._next)
        self.start = self._pieces.start
        self.stop = self._pieces.stop

    def look(self, _now_ms: int) -> None:
        """Go on, if an attempt to do so failed; called from time to time."""
        self._pieces.go_on()

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Propose the next piece if this command could not grant all that it should."""
        if outcome.granted and self._replica.machine.locks.has_ungranted:
            self._pieces.go_on()

    def on_restore(self) -> None:
        """A leader is never sent a snapshot."""

    def _next(self) -> FinishGrants | None:
        return FinishGrants() if self._replica.machine.locks.has_ungranted else None
