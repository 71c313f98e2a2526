"""What histories of locks really did: a count for each (command, outcome, kind of lock).

    python -m tests.state.exercised          # prints the table of two thousand histories

A property that holds of histories in which nothing happens says nothing. ``about`` lets one fail
whose histories did not hold what it is about; ``tests/state/locks/test_lock_coverage.py`` asks the
same of the whole table.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from coordinator.model.limits import MachineLimits
from coordinator.state.commands import (
    Abandon,
    CloseSession,
    Command,
    Create,
    Delete,
    Downgrade,
    EndHold,
    Enter,
    ExpireSession,
    ExtendHold,
    FinishGrants,
    FinishSession,
    Kind,
    Multi,
    Note,
    Release,
    Reopen,
    Resize,
    Revoke,
)
from coordinator.state.locks.contender import ContenderRecord, kind_of
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import (
    Entered,
    HoldEnded,
    Outcome,
    Reopened,
    SessionEnded,
    SessionFinished,
)
from tests import amount
from tests.met import Met
from tests.state.drawn_history import TERM
from tests.state.locks.lock_histories import lock_history

Cell = tuple[str, str, str]
"""Command, outcome, and kind of lock: a ``Kind``, "several" for a multi-lock, "-" for neither."""

SEVERAL = "several"
NONE = "-"


def sort_of(contender: ContenderRecord) -> str:
    return SEVERAL if contender.group else contender.kind.value


def records(machine: StateMachine) -> dict[str, ContenderRecord]:
    """Return all contenders by path, in the order of queues and places."""
    locks = machine.locks
    every = [each for one in sorted(locks.directories()) for each in locks.contenders(one)]
    return {each.path: each for each in every}


class Exercised:
    """Counts what one command after the other did."""

    def __init__(self) -> None:
        self.cells: Counter[Cell] = Counter()
        self.facts = Met()
        self._last: dict[str, str] = {}
        """The sort of lock that was last seen at each path."""

    def clear(self) -> None:
        self.cells.clear()
        self.facts.clear()
        self._last.clear()

    def apply(self, machine: StateMachine, command: Command, term: int = TERM) -> Outcome:
        """Apply the command, and count what it did."""
        before = records(machine)
        self._last.update({path: sort_of(each) for path, each in before.items()})
        outcome = machine.apply(command, machine.applied_index + 1, term)
        after = records(machine)
        name = type(command.operation).__name__
        if isinstance(command.operation, CloseSession) and command.operation.failure:
            name = "CloseSession failed"
        self._count(name, command, outcome, before)
        for word, sort in self._ends(outcome, before, after):
            self.cells[name, word, sort] += 1
            self._tell(f"{word} ended", sort)
        for path in outcome.granted:
            if path in before and path in after:
                self.cells[name, "hands over", sort_of(after[path])] += 1
                self._tell("handed over", sort_of(after[path]))
        self._look_around(machine, command, outcome, before)
        return outcome

    def _count(
        self, name: str, command: Command, outcome: Outcome, before: dict[str, ContenderRecord]
    ) -> None:
        operation, refusal = command.operation, outcome.refusal
        sort = self._sort(command, before)
        if outcome.is_repeat:
            self.cells[name, "repeat", sort] += 1
            self.facts["repeats"] += 1
        elif refusal is not None:
            self.cells[name, refusal.code, sort] += 1
            self.facts["refused"] += 1
            self.facts[refusal.code] += 1
        else:
            word = _word(operation, outcome, before)
            if word:
                self.cells[name, word, sort] += 1
                self._tell(word, sort)

    def _tell(self, fact: str, sort: str) -> None:
        self.facts[fact] += 1
        if sort == SEVERAL:
            self.facts[f"several {fact.split()[-1] if fact.endswith('ended') else fact}"] += 1

    def _ends(
        self,
        outcome: Outcome,
        before: dict[str, ContenderRecord],
        after: dict[str, ContenderRecord],
    ) -> Iterator[tuple[str, str]]:
        for path, contender in before.items():
            if path not in after or after[path].czxid != contender.czxid:
                yield "holder" if contender.is_holder else "waiter", sort_of(contender)

    def _sort(self, command: Command, before: dict[str, ContenderRecord]) -> str:
        """Return the sort of lock that the command is about."""
        operation = command.operation
        if isinstance(operation, Enter):
            return SEVERAL if len(operation.directories) > 1 else operation.kind.value
        if isinstance(operation, Release | Downgrade | Note | ExtendHold | Revoke | EndHold):
            return self._last.get(operation.path, NONE)
        if isinstance(operation, Resize):
            return Kind.SLOT.value
        if isinstance(operation, Create):
            return kind_of(operation.path.rpartition("/")[2]).value
        return NONE

    def _look_around(
        self,
        machine: StateMachine,
        command: Command,
        outcome: Outcome,
        before: dict[str, ContenderRecord],
    ) -> None:
        """Count what is so now, and what several fields of one command were about."""
        facts, locks = self.facts, machine.locks
        for directory in locks.directories():
            holders = locks.holders(directory)
            if len(holders) > 1:
                facts[f"several hold {holders[0].kind.value}"] += 1
            if locks.closed(directory):
                facts["closed by a lock delay"] += 1
        if isinstance(command.operation, Release) and command.operation.spares_repeated:
            facts["spares repeated"] += 1
        if isinstance(command.operation, Multi) and outcome.events:
            facts["multi"] += 1
        if isinstance(outcome.result, SessionEnded) and outcome.result.was_open:
            ended = outcome.result.session_id
            lost = [each for each in before.values() if each.session_id == ended]
            facts["sessions ended with holders"] += any(each.is_holder for each in lost)
            facts["sessions ended with two holders of one queue"] += len(
                {each.directory for each in lost if each.is_holder}
            ) < sum(each.is_holder for each in lost)
        if locks.has_ungranted:
            facts["ungranted"] += 1
        if isinstance(command.operation, FinishGrants) and outcome.granted:
            facts["granted later"] += 1
        if isinstance(outcome.result, SessionFinished) and outcome.events:
            facts["ended in pieces"] += 1
        if command.if_held and outcome.refusal is None and not outcome.is_repeat:
            facts["fenced and done"] += 1
        ended_now = locks.ended_at(machine.zxid) if outcome.events else ()
        if ended_now and len(locks.ended()) >= machine.limits.grant_history_max:
            facts["evicted"] += 1


def _word(operation: object, outcome: Outcome, before: dict[str, ContenderRecord]) -> str:
    """Say in a word what a command that was neither refused nor a repetition came to."""
    result = outcome.result
    match operation:
        case Enter() if isinstance(result, Entered):
            if not result.is_entered:
                return "not entered"
            return "granted" if result.is_granted else "waits"
        case Create(path=path) if path.startswith(("/locks/", "/elections/")):
            return "granted" if outcome.granted else "made"
        case Release():
            return "" if outcome.events else "again"
        case Downgrade():
            return "downgraded" if outcome.events else "again"
        case Note():
            return "noted"
        case ExtendHold():
            return "extended"
        case Resize():
            return "resized"
        case FinishGrants():
            return "" if outcome.granted else "nothing to grant"
        case EndHold() if isinstance(result, HoldEnded):
            return "" if result.was_held else "void"
        case Reopen() if isinstance(result, Reopened):
            return "reopened" if result.was_closed else "void"
        case ExpireSession() if isinstance(result, SessionEnded) and result.is_void:
            return "void"
        case Abandon() | Delete() | ExpireSession() | CloseSession() | FinishSession():
            return "" if outcome.events else "nothing to end"
    return ""


EXERCISED = Exercised()
"""What the property that runs now has exercised."""


def about(**least: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Let a property fail whose histories did not hold at least so many of each of these."""

    def decorate(test: Callable[[], None]) -> Callable[[], None]:
        def judged() -> None:
            EXERCISED.clear()
            test()
            EXERCISED.facts.check(**amount.least(**least))

        judged.__name__, judged.__doc__ = test.__name__, test.__doc__
        judged.__module__, judged.__qualname__ = test.__module__, test.__qualname__
        vars(judged)["pytestmark"] = getattr(test, "pytestmark", [])
        return judged

    return decorate


class Observed(StateMachine if TYPE_CHECKING else object):  # type: ignore[misc]
    """A machine whose commands are counted by what they came to, for properties of any command.

    It goes around one: a compiled class has no subclasses.
    """

    def __init__(self, limits: MachineLimits) -> None:
        self._machine = StateMachine(limits)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._machine, name)

    def apply(self, command: Command, index: int, term: int) -> Outcome:
        outcome = self._machine.apply(command, index, term)
        facts, name = EXERCISED.facts, type(command.operation).__name__
        if outcome.is_repeat:
            facts["repeats"] += 1
        elif outcome.refusal is not None:
            facts["refused"] += 1
            if outcome.refusal.fields.get("operation_index", 0):
                facts["rolled back"] += 1
        elif outcome.events:
            facts["changed"] += 1
            facts[f"{name} changed"] += 1
        else:
            facts[f"{name} without event"] += 1
        return outcome


def exercise(exercised: Exercised, limits: MachineLimits, seeds: range, count: int = 40) -> None:
    """Count what one history of each seed exercises: the same seeds, the same counts."""
    for seed in seeds:
        machine = StateMachine(limits)
        for command in lock_history(random.Random(seed), limits, count):
            exercised.apply(machine, command)


def main() -> None:
    """Print the table, one line for each command and outcome."""
    from tests.state.strategies import SMALL_LIMITS

    exercised = Exercised()
    exercise(exercised, SMALL_LIMITS, range(2_000))
    sorts = [*(each.value for each in Kind), SEVERAL, NONE]
    print(f"{'command':<20} {'outcome':<18}" + "".join(f"{each:>10}" for each in sorts))
    for name, word in sorted({cell[:2] for cell in exercised.cells}):
        counts = [exercised.cells[name, word, each] for each in sorts]
        print(f"{name:<20} {word:<18}" + "".join(f"{each or '.':>10}" for each in counts))
    for fact, count in sorted(exercised.facts.items()):
        print(f"{fact:<50} {count:>10}")


if __name__ == "__main__":
    main()
