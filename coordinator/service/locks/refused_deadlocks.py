"""The latest deadlocks that were refused: who would have waited for whom, for people.

1. A member notes what it applies, so all members that ran equally long agree; it forgets with its
   life.
2. Bounded: ``KEPT_MAX`` refusals, each with a cycle as long as an error says it.
3. A caller sees the cycles of locks that it may see; the sessions of others are named to operators
   only.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from coordinator.errors import DeadlockError
from coordinator.model.access import Caller
from coordinator.model.deadlocks import CycleStep, DeadlockList, RefusedDeadlock
from coordinator.service.base.replica import Interest, MachineReplica
from coordinator.service.locks.contenders import LOCKS
from coordinator.service.locks.sight import Sight
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome, Refusal

KEPT_MAX = 50
_STEP = ("owner", "session_id", "holds", "waits_for")


class RefusedDeadlocks:
    """The deadlocks that one member saw refused."""

    interest: ClassVar[Interest] = frozenset({Refusal})

    def __init__(self, replica: MachineReplica) -> None:
        self._replica = replica
        self._latest: deque[RefusedDeadlock] = deque(maxlen=KEPT_MAX)

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Note a command that was refused for a deadlock."""
        if outcome.refusal is None or outcome.is_repeat:
            return
        error = outcome.refusal.to_error()
        if type(error) is not DeadlockError:
            return
        steps = error.fields.get("cycle", ())
        cycle = [CycleStep(*(str(each[name]) for name in _STEP)) for each in steps]
        length = int(error.fields.get("cycle_length", len(cycle)))
        if cycle:
            self._latest.append(
                RefusedDeadlock(command.wall_ms, error.message, tuple(cycle), length)
            )

    def on_restore(self) -> None:
        """Keep what was noted: it is still true."""

    def latest(self, caller: Caller) -> DeadlockList:
        """Return what ``caller`` may see of them."""
        machine = self._replica.machine
        if machine.access.is_on:
            machine.access.rights_of(caller)
        sight = Sight(machine, caller)
        return DeadlockList(tuple(each for all_ in self._latest for each in _shown(sight, all_)))


def _shown(sight: Sight, refused: RefusedDeadlock) -> tuple[RefusedDeadlock, ...]:
    if sight.is_whole:
        return (refused,)
    names = {name for step in refused.cycle for name in (step.holds, step.waits_for)}
    directories = [LOCKS.directory(name) for name in names]
    if not all(map(sight.shows, directories)):
        return ()
    cycle = tuple(
        CycleStep(each.owner, sight.session_id(each.session_id), each.holds, each.waits_for)
        for each in refused.cycle
    )
    message = f"deadlock: {refused.cycle_length} owners would have waited for one another"
    return (RefusedDeadlock(refused.at_ms, message, cycle, refused.cycle_length),)
