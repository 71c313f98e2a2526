"""What holds in every history with access rights: nothing is done without a right, after any zxid.

The oracle goes through the rules one by one, and asks nothing of the guard.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from coordinator.model.access import ANONYMOUS, NOBODY, Caller, Verb
from coordinator.model.events import EventType
from coordinator.state.access.guard import BY_MEMBERS
from coordinator.state.commands import (
    Command,
    Create,
    Delete,
    Enter,
    Multi,
    Operation,
    Read,
    SetData,
    TakeOut,
)
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Entered, Outcome
from tests.met import Met
from tests.state.access_history import access_history
from tests.state.strategies import SMALL_LIMITS
from tests.state.test_access import covers

SEEDS = range(150)


def steps(seed: int) -> Iterator[tuple[StateMachine, Command, Outcome]]:
    """Yield the machine after each command."""
    machine = StateMachine(SMALL_LIMITS)
    for index, command in enumerate(access_history(random.Random(seed), SMALL_LIMITS, 60), 1):
        stays = _stays(machine, command.operation)
        yield machine, command, machine.apply(command, index, 1)
        for path, czxid in stays:
            record = machine.locks.record(path)
            assert record is not None, f"{path} was taken out"
            assert record.czxid == czxid, f"{path} was taken out"


def _stays(machine: StateMachine, operation: Operation) -> list[tuple[str, int]]:
    """Return who holds, or may be granted, of those whom the leader says to take out."""
    found = []
    for path in operation.paths if isinstance(operation, TakeOut) else ():
        record = machine.locks.record(path)
        session = record and machine.session(record.session_id or "")
        if record is not None and session is not None:
            places = record.group or (path,)
            if record.is_holder or all(
                may(machine, session.caller, Verb.LOCK, each.rpartition("/")[0]) for each in places
            ):
                found.append((path, record.czxid))
    return found


def may(machine: StateMachine, caller: Caller, verb: Verb, resource: str) -> bool:
    """The decision as people are told it."""
    access = machine.access
    if not access.is_on:
        return True
    identity = access.find_identity(caller.identity or ANONYMOUS)
    if identity is None:
        return False
    rules = [rule for name in identity.roles for rule in access.find_role(name).rules]  # type: ignore[union-attr]
    return any(
        covers(each.prefix, resource) and (verb in each.verbs or Verb.ADMIN in each.verbs)
        for each in rules
    )


def is_current(machine: StateMachine, caller: Caller) -> bool:
    access = machine.access
    identity = access.find_identity(caller.identity)
    return caller == NOBODY or (identity is not None and caller in tuple(identity.callers()))


@pytest.mark.check
def test_nothing_is_done_or_granted_without_a_right() -> None:
    """Of a thousand commands: what changed was allowed, who was granted may hold, and no session
    outlives its credential; each of these is met often enough to say something."""
    met = Met()
    for seed in SEEDS:
        for machine, command, outcome in steps(seed):
            met["repeats"] += outcome.is_repeat
            if outcome.refusal is not None:
                met[outcome.refusal.code] += 1
            _check_caller(machine, command, outcome, met)
            _check_grants(machine, command, outcome, met)
            for session in machine.sessions():
                assert is_current(machine, session.caller)
            met["revoked sessions"] += bool(machine.revoked_sessions(1))
    met.check(
        NoAuth=500,
        AuthFailed=40,
        done=1_000,
        granted=100,
        handed_over=20,
        left_out=3,
        taken_out=2,
        revoked_sessions=100,
        RequestForgotten=1,
        read=5,
    )


def _check_caller(machine: StateMachine, command: Command, outcome: Outcome, met: Met) -> None:
    operation, caller = command.operation, command.caller
    if outcome.refusal is not None or outcome.is_repeat or type(operation) in BY_MEMBERS:
        return
    if not type(operation).__name__.startswith(("Put", "Drop", "Set", "Add", "Init")):
        assert is_current(machine, caller), "what it did not change itself"
        met["done"] += 1
    for each in operation.operations if isinstance(operation, Multi) else (operation,):
        if isinstance(each, Create | SetData | Delete):
            is_of_lock = (each.path + "/").startswith(("/locks/", "/elections/"))
            own = machine.locks.record(each.path)
            if own is None:
                verb = Verb.ADMIN if is_of_lock else Verb.WRITE
                assert may(machine, caller, verb, each.path) or _was_own(outcome, each.path)
        if isinstance(each, Read) and machine.locks.record(each.path) is None:
            met["read"] += 1
            assert may(machine, caller, Verb.READ, each.path) or "/lock" in each.path


def _was_own(outcome: Outcome, path: str) -> bool:
    """Whether a contender was deleted that its own client took back over the tree."""
    return any(
        each.path == path and each.type is EventType.DELETED for each in outcome.events
    ) and (path.startswith(("/locks/", "/elections/")))


def _check_grants(machine: StateMachine, command: Command, outcome: Outcome, met: Met) -> None:
    operation = command.operation
    if isinstance(outcome.result, Entered) and not outcome.is_repeat:
        assert isinstance(operation, Enter)
        for directory in operation.directories:
            assert may(machine, command.caller, Verb.LOCK, directory)
    for path in outcome.granted:
        met["granted"] += 1
        record = machine.locks.record(path)
        assert record is not None
        if record.session_id is None:
            continue
        session = machine.session(record.session_id)
        if session is None:  # ended by itself, and goes in pieces; never a revoked one
            assert record.session_id in machine.leaving_sessions()
            continue
        met["handed_over"] += not isinstance(operation, Enter | Create)
        assert is_current(machine, session.caller)
        if not isinstance(operation, Create | Multi):  # by hand: who may write there says so
            assert may(machine, session.caller, Verb.LOCK, record.directory), path
    gone = {each.path for each in outcome.events if each.type is EventType.DELETED}
    met["taken_out"] += isinstance(operation, TakeOut) and bool(gone)
    if outcome.granted and len(gone) > 1 and not isinstance(operation, Delete | Multi | TakeOut):
        met["left_out"] += 1


@pytest.mark.parametrize("seed", range(4))
def test_a_member_from_a_snapshot_decides_alike(seed: int) -> None:
    """Wherever it was cut, rights, revoked sessions and owners are the same from there on."""
    history = access_history(random.Random(seed), SMALL_LIMITS, 60)
    straight, restored = StateMachine(SMALL_LIMITS), StateMachine(SMALL_LIMITS)
    for index, command in enumerate(history, 1):
        outcome = straight.apply(command, index, 1)
        assert restored.apply(command, index, 1) == outcome
        if index % 9 == 0:
            fresh = StateMachine(SMALL_LIMITS)
            fresh.restore(restored.snapshot())
            restored = fresh
    assert restored.digest() == straight.digest()
