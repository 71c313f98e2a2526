"""Grants that are too many for one command, when thousands wait to share a lock.

The command that lets them in grants to ``grants_per_command_max``, in the order of the queue; the
leader proposes the rest at once. No newcomer gets in between: it queues behind all that wait.
"""

from __future__ import annotations

from typing import ClassVar

from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import Interest
from coordinator.service.writes.pieces import Pieces
from coordinator.state.commands import Command, FinishGrants
from coordinator.state.outcomes import Outcome


class LaterGrants:
    """Goes on with grants while this member leads."""

    interest: ClassVar[Interest] = Interest.QUEUES

    def __init__(self, context: MemberContext) -> None:
        self._replica = context.replica
        self._pieces = Pieces(context, "grant to more", self._next)
        self.start = self._pieces.start
        self.stop = self._pieces.stop

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Propose the next piece if this command could not grant all that it should."""
        is_of_queues = outcome.granted or outcome.events
        if is_of_queues and self._replica.machine.locks.has_ungranted:
            self._pieces.go_on()

    def on_restore(self) -> None:
        """A leader is never sent a snapshot."""

    def _next(self) -> tuple[FinishGrants, ...]:
        return (FinishGrants(),) if self._replica.machine.locks.has_ungranted else ()
