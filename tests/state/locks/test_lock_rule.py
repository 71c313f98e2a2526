"""The rule of who holds, after every command of some hundred histories of locks.

Properties draw eighty histories each; what takes several coincidences (a multi-lock that waits
before a closed queue, two readers behind one writer) is met in these.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.state.commands import Release
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.machine import StateMachine
from tests.amount import drawn, least
from tests.met import Met
from tests.state.drawn_history import TERM
from tests.state.exercised import records
from tests.state.locks.lock_histories import lock_history
from tests.state.locks.lock_rule import check_holders, check_next, closed_from, queues_of
from tests.state.strategies import SMALL_LIMITS

HISTORIES = 400
COMMANDS = 40


def check_queues(machine: StateMachine, met: Counter[str]) -> None:
    """Fail unless those hold who may, or will by the next commands; count what is seldom met."""
    for directory, contenders in queues_of(machine).items():
        held = check_holders(machine, directory, contenders)
        if held == len(contenders):
            continue
        met["waits"] += 1
        group = contenders[held].group
        if group and held == 0:
            closed = closed_from(machine, directory)
            met["several before a closed queue"] += closed is not None
        is_later = check_next(machine, directory)
        met["granted later"] += is_later
        met["several granted later"] += is_later and bool(group)


def check_granted(
    machine: StateMachine, granted: tuple[str, ...], before: dict[str, ContenderRecord]
) -> None:
    """Fail if somebody was granted in a queue that is closed before it."""
    for path in granted:
        contender = machine.locks.record(path)
        if contender is not None and path in before:
            closed = closed_from(machine, contender.directory)
            assert closed is None or closed >= contender.number


@pytest.mark.histories
def test_who_holds_follows_the_rule_in_many_histories() -> None:
    """Also where it takes several coincidences; each of those is counted."""
    met = Met()
    for seed in range(drawn(HISTORIES)):
        machine = StateMachine(SMALL_LIMITS)
        for command in lock_history(random.Random(seed), SMALL_LIMITS, COMMANDS):
            before = records(machine)
            outcome = machine.apply(command, machine.applied_index + 1, TERM)
            check_queues(machine, met)
            check_granted(machine, outcome.granted, before)
            met["several granted at once"] += (
                isinstance(command.operation, Release) and len(outcome.granted) > 1
            )

    met.check(
        **least(
            waits=1_001,
            several_before_a_closed_queue=4,
            several_granted_at_once=21,
            granted_later=101,
            several_granted_later=2,
        )
    )
