"""The laws of the queues (state/locks/queues.py), each as a property of random histories."""

from __future__ import annotations

from hypothesis import given

from coordinator.model import queue_order as contention
from coordinator.model.events import EventType
from coordinator.state.commands import (
    CloseSession,
    Command,
    Downgrade,
    ExpireSession,
    ExtendHold,
    FinishSession,
    Kind,
    Note,
    Resize,
)
from coordinator.state.locks.contender import ContenderRecord, Ending, is_queue, kind_of, number_of
from coordinator.state.locks.grant_history import GrantQuery, KeptGrant
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome, SessionEnded
from tests.state.exercised import EXERCISED, about, records
from tests.state.locks.lock_histories import DIRECTORIES
from tests.state.locks.lock_rule import check_holders, check_next, queues_of
from tests.state.strategies import SMALL_LIMITS, lock_histories, thorough


def holders_of(machine: StateMachine) -> dict[tuple[str, int], ContenderRecord]:
    """Return who holds anywhere, by path and token."""
    found = {}
    for contenders in queues_of(machine).values():
        for each in contenders:
            if each.is_holder:
                found[each.path, each.czxid] = each
    return found


def steps(history: list[Command]) -> list[tuple[StateMachine, Command]]:
    """Return a machine, the same each time, with each of the commands it is to be given."""
    machine = StateMachine(SMALL_LIMITS)
    return [(machine, command) for command in history]


def apply(machine: StateMachine, command: Command) -> Outcome:
    return EXERCISED.apply(machine, command)


@about(granted=100, waits=50, made=8, waiter_ended=25)
@thorough
@given(lock_histories)
def test_every_contender_is_recorded_and_no_other(history: list[Command]) -> None:
    """The queues hold exactly the znodes whose names make them contenders, in order."""
    for machine, command in steps(history):
        apply(machine, command)

        for root in ("/locks", "/elections"):
            for segment in machine.children(root) or ():
                directory = f"{root}/{segment}"
                expected = sorted(
                    (number, f"{directory}/{name}")
                    for name in machine.children(directory) or ()
                    if (number := number_of(name)) is not None and not name.startswith("delay-")
                )
                found = machine.locks.contenders(directory)
                assert [(each.number, each.path) for each in found] == expected
                for at, each in enumerate(found):
                    stat = machine.stat(each.path)
                    assert stat is not None
                    assert (each.czxid, each.session_id) == (stat.czxid, stat.ephemeral_owner)
                    standing = machine.locks.standing(each.path)
                    assert standing.is_holder == each.is_holder
                    assert standing.position == (0 if each.is_holder else max(at, 1))


@about(
    handed_over=25, several_hold_shared=25, several_hold_slot=15, resized=8, downgraded=6,
    ungranted=10, granted_later=1,
)  # fmt: skip
@thorough
@given(lock_histories)
def test_who_holds_follows_the_rule(history: list[Command]) -> None:
    """Holders exclude whom they must, and who may hold and waits is granted by a later command."""
    for machine, command in steps(history):
        apply(machine, command)

        for directory, contenders in queues_of(machine).items():
            check_holders(machine, directory, contenders)
            check_next(machine, directory)


@about(granted=100, waits=50, handed_over=25, compared=300)
@thorough
@given(lock_histories)
def test_the_recipe_over_plain_znodes_decides_alike(history: list[Command]) -> None:
    """From names alone the same contenders hold, where names tell all there is to know."""
    for machine, command in steps(history):
        apply(machine, command)

        for directory, contenders in queues_of(machine).items():
            if any(each.group or each.kind is not kind_of(each.name) for each in contenders):
                continue  # a multi-lock, or a downgraded one: no name tells
            size = machine.locks.size(directory) or 1
            held = machine.locks.holders(directory)
            if held and held[0].kind is Kind.SLOT and len(held) > size:
                continue  # it was made smaller: who holds goes on
            if directory in machine._locks.ungranted:
                continue  # the others hold with the next command
            EXERCISED.facts["compared"] += 1
            names = machine.children(directory) or []
            assert contention.holders(names, size) == [each.name for each in held]
            for each in contenders:
                place = contention.place_of(names, each.name, size)
                assert place.position == machine.locks.standing(each.path).position


@about(granted=100, handed_over=25)
@thorough
@given(lock_histories)
def test_tokens_grow_in_the_order_of_the_queue_and_of_the_grants(history: list[Command]) -> None:
    """No later grant of a queue has a lower fencing token than an earlier one."""
    highest: dict[str, int] = {}
    for machine, command in steps(history):
        before = holders_of(machine)

        outcome = apply(machine, command)

        for contenders in queues_of(machine).values():
            tokens = [each.czxid for each in contenders]
            assert tokens == sorted(set(tokens))
        for path in () if outcome.is_repeat else outcome.granted:
            contender = machine.locks.record(path)
            assert contender is not None
            assert (path, contender.czxid) not in before
            assert contender.czxid > highest.get(contender.directory, 0)
            highest[contender.directory] = contender.czxid


@about(granted=100, handed_over=25, holder_ended=100, repeats=50)
@thorough
@given(lock_histories)
def test_each_grant_is_told_once_and_none_is_taken_back(history: list[Command]) -> None:
    """``granted`` is who holds now and did not; who held goes on, or its znode has gone."""
    for machine, command in steps(history):
        before = holders_of(machine)

        outcome = apply(machine, command)

        after = holders_of(machine)
        assert list(outcome.granted) == [
            path
            for path in outcome.granted
            if any(key[0] == path for key in after if key not in before)
        ]
        assert {key[0] for key in after if key not in before} == set(outcome.granted)
        deleted = {
            (event.path, event.czxid) for event in outcome.events if event.type is EventType.DELETED
        }
        assert all(key in after or key in deleted for key in before)


@about(several_granted=8, several_waits=10, several_handed_over=6, several_ended=15)
@thorough
@given(lock_histories)
def test_a_multi_lock_stands_and_goes_as_one(history: list[Command]) -> None:
    """All places of a group are there with one token, and all hold or none does."""
    for machine, command in steps(history):
        apply(machine, command)

        for contenders in queues_of(machine).values():
            for each in contenders:
                others = [machine.locks.record(path) for path in each.group]
                assert all(other is not None for other in others)
                assert {other.czxid for other in others if other} <= {each.czxid}
                assert {other.is_holder for other in others if other} <= {each.is_holder}


@about(holder_ended=100, evicted=25, noted=8, sessions_ended_with_holders=15)
@thorough
@given(lock_histories)
def test_history_tells_each_grant_from_its_beginning_to_its_end(history: list[Command]) -> None:
    """Every end of a holding is told as it was; what is held is told too; numbers never repeat."""
    for machine, command in steps(history):
        before = holders_of(machine)

        outcome = apply(machine, command)

        after = holders_of(machine)
        told = machine.locks.history(GrantQuery())
        numbers = [each.number for each in told]
        assert numbers == sorted(set(numbers))
        held = [each for each in told if each.how is Ending.HELD]
        assert {(each.path, each.czxid) for each in held} == set(after)
        ended = [each for each in told if each.ended_zxid == machine.zxid and outcome.events]
        gone = {key: each for key, each in before.items() if key not in after}
        assert len(told) - len(held) <= SMALL_LIMITS.grant_history_max
        for each in ended:
            check_ended(machine, each, gone[each.path, each.czxid], command)
        if len(gone) <= 2:
            assert len(ended) == len(gone)


def check_ended(
    machine: StateMachine, grant: KeptGrant, contender: ContenderRecord, command: Command
) -> None:
    """The grant ended by this command, and says so."""
    assert (grant.session_id, grant.owner) == (contender.session_id, contender.owner)
    assert (grant.granted_zxid, grant.note) == (contender.granted_zxid, contender.note)
    assert grant.czxid <= grant.granted_zxid < machine.zxid
    assert grant.how is not Ending.HELD
    assert grant.term == 1
    if isinstance(command.operation, ExpireSession):
        assert grant.how is Ending.EXPIRED
        assert grant.silent_ms == command.operation.silent_ms
    if isinstance(command.operation, CloseSession):
        failure = command.operation.failure
        assert grant.how is (Ending.FAILED if failure else Ending.CLOSED)
        assert grant.reason == failure


@about(noted=8, downgraded=6, handed_over=25, repeats=50)
@thorough
@given(lock_histories)
def test_a_record_changes_only_by_what_is_asked_of_it(history: list[Command]) -> None:
    """A grant, a note, a downgrade, an extension and a repetition change their own fields, once."""
    for machine, command in steps(history):
        before = records(machine)

        outcome = apply(machine, command)

        for path, new in records(machine).items():
            old = before.get(path)
            if old is None or old.czxid != new.czxid:
                continue
            if old.is_holder:
                granted = (old.granted_zxid, old.granted_ms, old.grant_number)
                assert (new.granted_zxid, new.granted_ms, new.grant_number) == granted
            elif new.is_holder:
                assert (path in outcome.granted, new.granted_zxid) == (True, machine.zxid)
            is_noted = isinstance(command.operation, Note) and not outcome.is_repeat
            is_downgraded = isinstance(command.operation, Downgrade) and not outcome.is_repeat
            is_extended = isinstance(command.operation, ExtendHold) and not outcome.is_repeat
            same = old.but(
                granted_zxid=new.granted_zxid,
                granted_ms=new.granted_ms,
                grant_number=new.grant_number,
                is_repeated=new.is_repeated if outcome.is_repeat else old.is_repeated,
                note=new.note if is_noted else old.note,
                kind=new.kind if is_downgraded else old.kind,
                max_hold_ms=new.max_hold_ms if is_extended else old.max_hold_ms,
                extensions=new.extensions if is_extended else old.extensions,
            )
            assert new == same
            assert new.max_hold_ms >= old.max_hold_ms, "an end never moves nearer"


@about(sessions_ended_with_holders=15, closed_by_a_lock_delay=100, reopened=1, closed_by_a_piece=1)
@thorough
@given(lock_histories)
def test_a_holder_lost_with_a_lock_delay_leaves_its_queue_closed(history: list[Command]) -> None:
    """Only a session's expiry or failure does, and nobody is granted in a closed queue."""
    lost_sessions: set[str] = set()
    for machine, command in steps(history):
        before = holders_of(machine)
        closed_before = {each.path for each in machine.locks.closings()}

        outcome = apply(machine, command)

        closings = {each.path for each in machine.locks.closings()}
        lost = {
            each.directory
            for each in before.values()
            if each.lock_delay_ms and machine.locks.record(each.path) is None
        }
        new = {path.rpartition("/")[0] for path in closings - closed_before}
        for path in closings - closed_before:
            closing = machine.locks.closing(path)
            assert closing is not None
            directory = path.rpartition("/")[0]
            delays = [each.lock_delay_ms for each in before.values() if each.directory == directory
                      and machine.locks.record(each.path) is None]  # fmt: skip
            assert closing.delay_ms == max(delays)
        assert new == (lost if is_loss(command, outcome, lost_sessions) else set())
        EXERCISED.facts["closed by a piece"] += len(new) * isinstance(
            command.operation, FinishSession
        )
        for directory in new:
            assert not any(path.startswith(directory + "/") for path in outcome.granted)


def is_loss(command: Command, outcome: Outcome, lost_sessions: set[str]) -> bool:
    """Whether a session ends as lost, or goes on to; note which ended so."""
    operation = command.operation
    if isinstance(operation, FinishSession):
        return operation.session_id in lost_sessions
    if not isinstance(operation, ExpireSession | CloseSession):
        return False
    if not isinstance(outcome.result, SessionEnded) or not outcome.result.was_open:
        return False
    if isinstance(operation, CloseSession) and not operation.failure:
        return False
    lost_sessions.add(operation.session_id)
    return True


@about(resized=8, noted=8, several_hold_slot=15)
@thorough
@given(lock_histories)
def test_what_is_kept_of_semaphores_goes_with_their_directories(history: list[Command]) -> None:
    """A size belongs to a directory that is there; a restored machine knows the same sizes."""
    for machine, command in steps(history):
        before = machine.zxid

        outcome = apply(machine, command)

        for directory in DIRECTORIES:
            if machine.locks.size(directory) is not None:
                assert is_queue(directory)
                assert machine.stat(directory) is not None
        if isinstance(command.operation, Resize | Note) and not outcome.is_repeat:
            assert outcome.events == ()
            assert machine.zxid - before in (0, 1)
