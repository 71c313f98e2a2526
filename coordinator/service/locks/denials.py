"""Denials of locks: refused tries and deadlocks, and waiters that left without a grant.

The history of grants has only grants; contention also shows in attempts that got none.

1. Every member counts what it has seen applied since it started, so all that ran equally long
   agree. The counts are for people; nothing is decided by them.
2. A waiter that left timed out, was cancelled, or its session ended: the log does not say which.
3. ``HoldTimes`` knows the holders, and reports each contender that leaves without having held.
4. Bounded: of more than ``_LOCKS_MAX`` locks the one that was denied longest ago is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import ClassVar, Final

from coordinator.clock import Clock
from coordinator.errors import DeadlockError
from coordinator.model.access import Caller
from coordinator.model.deadlocks import CycleStep, DeadlockList, RefusedDeadlock
from coordinator.model.views import Denied
from coordinator.service.base.replica import Interest, MachineReplica
from coordinator.service.locks.contenders import LOCKS
from coordinator.service.locks.sight import Sight
from coordinator.state.commands import Command, Enter
from coordinator.state.outcomes import Entered, Outcome, Refusal

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


KEPT_MAX: Final = 50
_STEP: Final = ("owner", "session_id", "holds", "waits_for")


class RefusedDeadlocks:
    """The latest deadlocks that one member saw refused: who would have waited for whom.

    For people: a member notes what it applies, and forgets with its life; ``KEPT_MAX`` refusals. A
    caller sees the cycles of locks that it may see; the sessions of others are named to operators
    only.
    """

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
        cycle = [CycleStep(*[str(each[name]) for name in _STEP]) for each in steps]
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
