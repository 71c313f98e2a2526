"""The notice of each zxid that is reached here, to the reads that wait for it.

A module of its own, so that it can be compiled: it is called for each command on every member.
"""

from __future__ import annotations

from typing import ClassVar

from coordinator.service.base.replica import Interest, MachineReplica
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome
from coordinator.waiting import Waiters


class ZxidReached:
    """Wakes who waits for a zxid."""

    interest: ClassVar[Interest] = Interest.ALL

    def __init__(self, replica: MachineReplica, waiting: Waiters) -> None:
        self._replica = replica
        self._waiting = waiting

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Wake the reads that wait for this zxid."""
        if self._waiting:
            self._waiting.on_reached(outcome.zxid)

    def on_restore(self) -> None:
        """Wake the reads that wait for a zxid which the snapshot has reached."""
        self._waiting.on_reached(self._replica.machine.zxid)
