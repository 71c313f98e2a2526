"""Deadlocks in many histories: refused exactly when they must be, told as they are, seldom looked
for.

``deadlock_scenes`` has the scenes, ``test_deadlock_search`` the oracle. Here histories are drawn
from the state by seeds, so that they hold what those of hypothesis seldom do (closed queues,
sessions that leave, contenders made by hand, sizes that are made smaller); what they held is
counted.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from coordinator.node.build import is_compiled
from coordinator.state.commands import (
    CloseSession,
    Create,
    CreateMode,
    Enter,
    ExpireSession,
    Kind,
    OpenSession,
    Operation,
    Release,
    Resize,
)
from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, Outcome
from tests import amount
from tests.met import Met
from tests.state.locks.deadlock_scenes import PREFIX, Locks, cycle_of
from tests.state.locks.test_deadlock_search import (
    DIRECTORIES,
    is_ever_served,
    queues_of,
    waits_for_ever,
)

HISTORIES = 1_000
COMMANDS = 25
PLACES_MAX = 11
"""The oracle tries every order in which owners give back."""


class Drawn:
    """A history in the making: attempts of few owners for few locks, and what thins them out."""

    def __init__(self, seed: int) -> None:
        self.locks = Locks()
        self.chance = random.Random(seed)
        self._count = 2
        self._has_a_pool = seed % 2 == 1

    @property
    def machine(self) -> StateMachine:
        return self.locks.machine

    def standing(self) -> list[ContenderRecord]:
        locks = self.machine.locks
        return [each for one in DIRECTORIES for each in locks.contenders(one)]

    def operation(self) -> Operation:
        chance, standing = self.chance, self.standing()
        sort = chance.randrange(20)
        if standing and (sort < 3 or len(standing) >= PLACES_MAX):
            gone = chance.choice(standing)
            return Release(gone.path, gone.czxid)
        if sort < 6:
            sized = [each for each in DIRECTORIES if (self.machine.locks.size(each) or 1) > 1]
            return Resize(chance.choice(sized or DIRECTORIES), chance.choice([1, 1, 1, 2, 3]))
        if self.machine.session_count < 2 or (sort == 6 and self.machine.session_count < 3):
            self._count += 1
            return OpenSession(f"s{self._count}", 10_000)
        if sort == 7 and self.machine.session_count > 2:
            session_id = self._session()
            at_once = chance.choice([0, 1])
            if chance.randrange(2):
                return ExpireSession(session_id, term=1, silent_ms=0, at_once=at_once)
            return CloseSession(session_id, failure="", at_once=at_once)
        if sort == 8:
            path = f"{chance.choice(DIRECTORIES)}/{chance.choice(['slot-', 'read-', 'lock-'])}"
            return Create(
                path,
                data=b"",
                mode=CreateMode.EPHEMERAL_SEQUENTIAL,
                session_id=self._session(),
                ttl_ms=None,
                parents=CreateMode.CONTAINER,
            )
        return self._attempt()

    def _session(self) -> str:
        return self.chance.choice([each.session_id for each in self.machine.sessions()])

    def _attempt(self) -> Enter:
        """Draw an attempt, rather one where its owner does not stand yet."""
        chance, session_id = self.chance, self._session()
        owner = chance.choice(("t1", "t1", "t2", "t2", "t3", ""))
        kind = chance.choice([Kind.EXCLUSIVE, Kind.EXCLUSIVE, Kind.SLOT, Kind.SLOT, Kind.SHARED])
        if self._has_a_pool and chance.randrange(8):
            return self._attempt_with_a_pool(session_id, owner)
        there = {
            each.directory for each in self.standing() if owner and each.owner == owner
            and each.session_id == session_id
        }  # fmt: skip
        others = [each for each in DIRECTORIES if each not in there]
        where = others if others and chance.randrange(8) else list(DIRECTORIES)
        names: tuple[str, ...] = (chance.choice(where),)
        if kind is Kind.EXCLUSIVE and len(where) > 1 and chance.randrange(3) == 0:
            names = tuple(sorted(chance.sample(where, 2)))
        size = chance.choice([1, 2, 2, 3]) if kind is Kind.SLOT else None
        delay_ms = chance.choice([0, 0, 500])
        prefix = PREFIX[kind]
        return Enter(
            names,
            prefix=prefix,
            kind=kind,
            session_id=session_id,
            data=b"",
            owner=owner,
            is_try=False,
            lock_delay_ms=delay_ms,
            max_hold_ms=0,
            size=size,
        )

    def _attempt_with_a_pool(self, session_id: str, owner: str) -> Enter:
        """Slots of one semaphore, and locks that are held beside them."""
        chance = self.chance
        if chance.randrange(2):
            return Enter(
                DIRECTORIES[:1],
                prefix="slot-",
                kind=Kind.SLOT,
                session_id=session_id,
                data=b"",
                owner=owner,
                size=chance.choice([2, 3]),
            )
        return Enter(
            (chance.choice(DIRECTORIES[1:3]),),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=session_id,
            data=b"",
            owner=owner,
        )


@pytest.mark.check
def test_refused_exactly_when_brute_force_finds_no_way_out() -> None:
    """Attempts and sizes, among closed queues, contenders by hand and sessions that leave."""
    met = Met()
    for seed in range(HISTORIES):
        drawn = Drawn(seed)
        for _ in range(COMMANDS):
            operation = drawn.operation()
            is_asked = isinstance(operation, Enter | Resize)
            expected = is_asked and waits_for_ever(drawn.machine, operation)  # type: ignore[arg-type]

            outcome = drawn.locks.apply(operation)

            code = None if outcome.refusal is None else outcome.refusal.code
            if is_asked and code != "NoNode":
                assert (code == "Deadlock") == expected, (seed, operation)
            if code == "Deadlock":
                name = type(operation).__name__
                met[f"{name} refused"] += 1
                met[f"a cycle of {min(len(cycle_of(outcome)), 4)}"] += 1
                met["several refused"] += (
                    isinstance(operation, Enter) and len(operation.directories) > 1
                )
                check_told(drawn.machine, operation, outcome)
            elif is_asked and code is None:
                met["allowed"] += 1
            note_state(drawn.machine, met)

    met.check(
        allowed=8_000, Enter_refused=800, Resize_refused=40, several_refused=60, leaving=300,
        closed=100, a_cycle_of_1=400, a_cycle_of_2=300, a_cycle_of_3=15,
    )  # fmt: skip


def note_state(machine: StateMachine, met: Met) -> None:
    met["closed"] += any(machine.locks.closed(each) for each in DIRECTORIES)
    leaving = machine.leaving_sessions()
    met["leaving"] += any(
        each.session_id in leaving for one in DIRECTORIES for each in machine.locks.contenders(one)
    )


Place = tuple[str, str, Kind]
"""Session, owner and kind of who stands in a queue."""


def places_of(machine: StateMachine, operation: Operation) -> dict[str, list[Place]]:
    """Return the queues as they would be with ``operation``, without who is leaving."""
    leaving = machine.leaving_sessions()
    found = {
        directory: [
            (str(each.session_id), each.owner, each.kind)
            for each in machine.locks.contenders(directory)
            if each.session_id not in leaving
        ]
        for directory in DIRECTORIES
    }
    if isinstance(operation, Enter):
        for directory in operation.directories:
            found[directory].append((operation.session_id, operation.owner, operation.kind))
    return found


def check_told(machine: StateMachine, operation: Operation, outcome: Outcome) -> None:
    """Each of the cycle stands before the one that is told to wait for it, and in its way.

    Who has a name is named rightly: it waits for ever by the word of brute force.
    """
    assert outcome.refusal is not None
    cycle: tuple[dict[str, Any], ...] = outcome.refusal.fields["cycle"]
    places = places_of(machine, operation)
    assert outcome.refusal.fields["cycle_length"] == len(cycle)
    for at, one in enumerate(cycle):
        next_one = cycle[(at + 1) % len(cycle)]
        assert next_one["holds"] == one["waits_for"]
        queue = places[f"/locks/{one['waits_for']}"]
        mine = [
            n for n, place in enumerate(queue) if place[:2] == (one["session_id"], one["owner"])
        ]
        others = [
            n for n, place in enumerate(queue)
            if place[:2] == (next_one["session_id"], next_one["owner"])
        ]  # fmt: skip
        assert any(
            other < n and not (queue[n][2] is queue[other][2] is Kind.SHARED)
            for n in mine
            for other in others
        ), (one, next_one, queue)
    sizes = {operation.directory: operation.size} if isinstance(operation, Resize) else {}
    queues = queues_of(machine, sizes)
    for one in cycle if isinstance(operation, Resize) else ():
        if one["owner"]:
            owner = (one["session_id"], one["owner"])
            assert not is_ever_served(queues, sizes, owner, set()), one


# --- how seldom it is looked for


def with_reductions(action: Callable[[], Outcome]) -> tuple[Outcome, int]:
    """Return what it came to, and how often the queues were reduced for it."""
    count = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_qualname == "_Reduction.run"

    sys.setprofile(profile)
    try:
        return action(), count
    finally:
        sys.setprofile(None)


def is_worth_a_look(machine: StateMachine, operation: Enter) -> bool:
    """By the rule alone: both ends of a cycle are there.

    Behind the owner somebody waits who stands elsewhere as well, and in a queue that it enters
    there is somebody who does. Or the owner stands in one of these queues, and may beside itself.
    """
    every = [each for one in DIRECTORIES for each in machine.locks.contenders(one)]
    owner = (operation.session_id, operation.owner)
    mine = [each for each in every if each.owner and (each.session_id, each.owner) == owner]
    again = [each for each in mine if each.directory in operation.directories]
    if any(each.kind is not operation.kind or each.kind is Kind.EXCLUSIVE for each in again):
        return False  # refused at once
    if again:
        return True

    def stands_elsewhere(one: ContenderRecord) -> bool:
        name = (one.session_id, one.owner)
        places = [each for each in every if each.owner and (each.session_id, each.owner) == name]
        return bool(one.group) or len(places) > 1

    behind = [
        each
        for each in every
        if not each.is_holder
        and any(each.directory == one.directory and each.number > one.number for one in mine)
    ]
    ahead = [each for each in every if each.directory in operation.directories]
    return any(map(stands_elsewhere, behind)) and any(map(stands_elsewhere, ahead))


@pytest.mark.histories
@pytest.mark.skipif(is_compiled(), reason="it counts calls as Python sees them")
def test_a_deadlock_is_looked_for_only_where_both_ends_of_one_are() -> None:
    """Who stands nowhere else, or before nobody who does, costs no reduction of the queues."""
    met = Met()
    for seed in range(amount.drawn(250)):
        drawn = Drawn(seed)
        for _ in range(30):
            operation = drawn.operation()
            if not isinstance(operation, Enter):
                drawn.locks.apply(operation)
                continue
            expected = is_worth_a_look(drawn.machine, operation)

            outcome, found = with_reductions(partial(drawn.locks.apply, operation))

            is_granted = isinstance(outcome.result, Entered) and outcome.result.is_granted
            assert found == (expected and not is_granted), (seed, operation)
            met["looked"] += found
            met["not looked"] += not found and not is_granted

    met.check(**amount.least(looked=250, not_looked=1_200))


# --- what it is told by


@pytest.mark.parametrize("wanted", Kind)
@pytest.mark.parametrize("held", Kind)
@pytest.mark.parametrize("holds", [True, False], ids=["holds", "waits"])
def test_who_would_wait_for_itself_is_told_what_to_do_instead(
    held: Kind, wanted: Kind, holds: bool
) -> None:
    """Of each kind beside each kind; only another reader or slot may stand beside one's own."""
    locks = Locks()
    if not holds:
        locks.granted("other", "a", session_id="s2")
    locks.enter("t1", "a", kind=held, size=2 if held is Kind.SLOT else None)

    outcome = locks.enter("t1", "a", kind=wanted, size=2 if wanted is Kind.SLOT else None)

    if held is wanted is not Kind.EXCLUSIVE:
        assert outcome.refusal is None
        return
    assert cycle_of(outcome) == [("t1", "a", "a")]
    assert outcome.refusal is not None
    advice = {
        (Kind.EXCLUSIVE, Kind.EXCLUSIVE): "a lock is not reentrant",
        (Kind.SHARED, Kind.EXCLUSIVE): "there is no upgrade",
        (Kind.EXCLUSIVE, Kind.SHARED): "downgrade the exclusive grant",
    }.get((held, wanted), "release that first")
    verb = "holds" if holds else "waits for"
    assert f"{verb} 'a' ({held.value}) already" in outcome.refusal.message
    assert f"; {advice}" in outcome.refusal.message


@pytest.mark.parametrize("length", [15, 16, 17, 30])
def test_what_is_left_out_of_a_long_cycle_is_counted(length: int) -> None:
    """Sixteen are told, in the words as well."""
    locks = Locks()
    for number in range(length):
        locks.granted(f"w{number}", f"l{number}")
    for number in range(length - 1):
        locks.waiting(f"w{number}", f"l{number + 1}")

    refused = locks.enter(f"w{length - 1}", "l0")

    assert len(cycle_of(refused)) == min(length, 16)
    assert refused.refusal is not None
    assert refused.refusal.message.count(" waits for ") == min(length, 16)
    more = f"and {length - 16} more do"
    assert (more in refused.refusal.message) == (length > 16)
