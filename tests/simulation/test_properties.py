"""Every check of the end finds the log, or the story, that it is there for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from coordinator.client.calling.transport import Request, Response
from coordinator.model import events as watches
from coordinator.model.events import Event
from coordinator.model.limits import MachineLimits
from coordinator.state.codec import encode_command
from coordinator.state.commands import (
    CloseSession,
    Command,
    Create,
    CreateMode,
    Delete,
    ExpireSession,
    OpenSession,
    Operation,
    Release,
    RequestId,
    SetData,
)
from coordinator.state.machine import StateMachine
from tests.history.operations import Recorder
from tests.simulation import properties
from tests.simulation.log import Entry
from tests.simulation.reading import ReadOrder
from tests.simulation.record import BegunAgain, Record
from tests.simulation.told import Watching, Written
from tests.state.values import changed

SESSION = "00000000000000aa"
Log = list[Entry]


def log_of(*operations: Operation | tuple[Operation, int]) -> Log:
    """Apply operations to a machine; with a number they are requests of one client."""
    machine = StateMachine(MachineLimits())
    log = []
    for index, asked in enumerate(operations, 2):
        operation, number = asked if isinstance(asked, tuple) else (asked, None)
        request = None if number is None else RequestId("client", number)
        command = Command(operation, wall_ms=1_000, request=request)
        outcome = machine.apply(command, index, 1)
        log.append(Entry(index, 0, 1, encode_command(command), command, outcome, 0.0))
    return log


def a_log() -> Log:
    """Return some of everything, as it should be: a queue of two, written data, an ephemeral."""
    queue = Create("/locks/a/lock-", mode=CreateMode.EPHEMERAL_SEQUENTIAL, session_id=SESSION)
    return log_of(
        OpenSession(SESSION, 5_000),
        Create("/r", b"c1:1"),
        (SetData("/r", b"c1:2"), 1),
        (SetData("/r", b"c1:2"), 1),
        changed(queue, parents=CreateMode.CONTAINER),
        queue,
        Create("/e", data=b"c1:3", mode=CreateMode.EPHEMERAL, session_id=SESSION),
        Release("/locks/a/lock-0000000000", 4),
        Create("/r", b"c1:4"),
        Delete("/r"),
        CloseSession(SESSION),
    )


WRITTEN = Written("c1", "/r", b"c1:2", 3)


def watched(log: Log) -> Watching:
    """Return what a watch of everything should have told."""
    watching = Watching("c1", ("/",), "subtree", 0, told_zxid=log[-1].outcome.zxid)
    for entry in log:
        outcome = entry.outcome
        if outcome.events and not outcome.is_repeat:
            told = tuple(_told(event) for event in outcome.events)
            watching.changes.append(watches.Change(outcome.zxid, told))
    return watching


def _told(event: Event) -> watches.Event:
    return watches.Event(
        event.type.value,
        path=event.path,
        version=event.version,
        czxid=event.czxid,
        ephemeral_owner=event.ephemeral_owner,
    )


def promises(found: properties.Found) -> set[str]:
    return {promise for promise, _ in found}


def outcome_changed(log: Log, position: int, **changes: object) -> Log:
    """Return the log with another outcome at ``position``."""
    entry = log[position]
    changed = replace(entry, outcome=structs.replace(entry.outcome, **changes))
    return [*log[:position], changed, *log[position + 1 :]]


def test_a_good_log_breaks_nothing() -> None:
    """What a machine did, and what was told of it, passes every check."""
    log = a_log()

    assert promises(properties.check_zxids(log)) == set()
    assert promises(properties.check_once(log)) == set()
    assert promises(properties.check_sequences(log)) == set()
    assert promises(properties.check_ephemerals(log)) == set()
    assert promises(properties.check_written(log, [WRITTEN])) == set()
    assert promises(properties.check_refused(log, {b"c1:4": "NodeExists"})) == set()
    assert promises(properties.check_abandoned(log, [("client", 2, 0)])) == set()
    assert promises(properties.check_watching(log, watched(log))) == set()


@pytest.mark.parametrize("zxid", [1, 3, 9])
def test_a_zxid_given_twice_or_left_out_is_found(zxid: int) -> None:
    """The zxid grows by one with each change."""
    log = outcome_changed(a_log(), 1, zxid=zxid)

    assert promises(properties.check_zxids(log)) == {"one order"}


def test_a_refusal_with_events_is_found() -> None:
    """What was refused changed nothing."""
    log = a_log()
    refused = next(i for i, entry in enumerate(log) if entry.outcome.refusal is not None)
    log = outcome_changed(log, refused, events=log[1].outcome.events)

    assert "all or nothing" in promises(properties.check_zxids(log))


def test_a_request_applied_twice_is_found() -> None:
    """The second time it must be a repeat with the first outcome."""
    log = a_log()

    assert promises(properties.check_once(outcome_changed(log, 3, is_repeat=False))) == {"once"}
    assert promises(properties.check_once(outcome_changed(log, 3, zxid=9))) == {"once"}


def test_a_value_written_twice_is_found() -> None:
    """Even when its client numbered the two requests differently."""
    log = log_of(Create("/r"), SetData("/r", b"c1:1"), SetData("/r", b"c1:1"))

    assert promises(properties.check_once(log)) == {"once"}


def test_a_number_that_comes_again_is_found() -> None:
    """Also after the parent was deleted and made anew."""
    child = Create("/q/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    log = log_of(Create("/q"), child)

    assert promises(properties.check_sequences([*log, log[-1]])) == {"sequences"}


def test_a_number_that_was_lost_and_comes_again_is_found() -> None:
    """The cluster was begun again, and counts on from what is left."""
    child = Create("/q/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    *log, lost = log_of(Create("/q"), child, child)
    again = BegunAgain(kept=2, held=0, zxid=2, first_zxid=10, first_sequence=10)

    assert promises(properties.check_sequences([*log, lost], [], [again])) == {"sequences"}
    assert promises(properties.check_sequences(log, [lost], [again])) == set()


def test_an_ephemeral_that_outlives_its_session_is_found() -> None:
    """All of a session's znodes go in the command that ends it."""
    log = a_log()

    found = properties.check_ephemerals(outcome_changed(log, -1 % len(log), events=()))

    assert promises(found) == {"ephemerals"}


def test_an_ephemeral_that_goes_by_itself_is_found() -> None:
    """Only its session's end and a deletion by name may take it."""
    log = log_of(
        OpenSession(SESSION, 5_000),
        Create("/e", data=b"c1:1", mode=CreateMode.EPHEMERAL, session_id=SESSION),
        SetData("/e", b"c1:2"),
        Delete("/e"),
    )
    log = outcome_changed(log, 2, events=log[3].outcome.events)

    assert promises(properties.check_ephemerals(log)) == {"ephemerals"}


@pytest.mark.parametrize(
    "written",
    [replace(WRITTEN, value=b"c1:9"), replace(WRITTEN, zxid=8), replace(WRITTEN, path="/s")],
)
def test_an_acknowledged_write_that_is_not_there_is_found(written: Written) -> None:
    """The log has it at the zxid that was told, or it was lost."""
    found = properties.check_written(a_log(), [written])

    assert promises(found) == {"acknowledged writes stay"}


def test_a_write_that_happened_though_it_was_refused_is_found() -> None:
    """A definite error means that it was not done."""
    found = properties.check_refused(a_log(), {b"c1:2": "NoLeader"})

    assert promises(found) == {"the truth about outcomes"}


def _without_one(changes: list[watches.Change]) -> list[watches.Change]:
    return changes[:2] + changes[3:]


def _with_one_twice(changes: list[watches.Change]) -> list[watches.Change]:
    return [*changes[:3], *changes[2:]]


def _in_another_order(changes: list[watches.Change]) -> list[watches.Change]:
    return [changes[1], changes[0], *changes[2:]]


def _with_one_split(changes: list[watches.Change]) -> list[watches.Change]:
    last = changes[-1]
    halves = [changed(last, events=last.events[:1]), changed(last, events=last.events[1:])]
    return [*changes[:-1], *halves]


@pytest.mark.parametrize(
    "spoil", [_without_one, _with_one_twice, _in_another_order, _with_one_split]
)
def test_a_watch_that_tells_another_story_is_found(
    spoil: Callable[[list[watches.Change]], list[watches.Change]],
) -> None:
    """Nothing left out, nothing twice, in order, and the events of one zxid together."""
    log = a_log()
    watching = watched(log)
    watching.changes = spoil(watching.changes)

    assert promises(properties.check_watching(log, watching)) == {"watches"}


def test_a_history_that_goes_back_is_found() -> None:
    """A register that shows an old value after a new one is not linearizable."""
    recorder = Recorder()
    for kind, asked, told in (
        ("create", {"value": "a"}, {"version": 0}),
        ("set", {"value": "b", "expected_version": -1}, {"version": 1}),
        ("read", {}, {"value": "a", "version": 0}),
    ):
        recorder.answered(recorder.call("c1", "/r", kind, **asked), **told)

    assert promises(properties.check_history(recorder.history())) == {"linearizable"}


def test_a_member_that_differs_from_the_log_is_found() -> None:
    """The state in the end is what the log makes of an empty machine."""
    log = log_of(Create("/r", b"c1:1"), SetData("/r", b"c1:2"))
    behind = StateMachine(MachineLimits())
    behind.apply(log[0].command, 2, 1)

    assert promises(properties.check_replay(log, [behind])) == {"equal digests"}


@pytest.mark.parametrize(("length", "found"), [(2, {"nothing is left behind"}), (3, set())])
def test_an_attempt_that_was_undone_and_is_made_after_that_is_found(
    length: int, found: set[str]
) -> None:
    """What comes late must find its number spent; what was done before it was undone may stand."""
    log = a_log()

    assert promises(properties.check_abandoned(log, [("client", 1, length)])) == found


def read_of(order: ReadOrder, called_at: int, zxid: int, target: str = "/v1/tree/r") -> set[str]:
    """Return what is wrong with this answer to a read, heard at moment 4."""
    response = Response(status=200, headers={"coordinator-zxid": str(zxid)}, body=b"")
    return promises(order.heard(Request("GET", target), response, called_at=called_at, now=4))


def an_order_that_was_shown(zxid: int, request: Request | None = None) -> ReadOrder:
    """Return one in which an answer to ``request`` was heard at moment 2, or a stream's word."""
    order = ReadOrder()
    if request is None:
        order.note_shown(2, zxid)
    else:
        response = Response(status=200, headers={"coordinator-zxid": str(zxid)}, body=b"")
        assert not promises(order.heard(request, response, called_at=1, now=2))
    return order


BACK = {"reads never go back"}


@pytest.mark.parametrize(
    ("called_at", "zxid", "found"), [(3, 6, BACK), (3, 7, set()), (1, 6, set())]
)
@pytest.mark.parametrize("target", ["/v1/tree/r", "/v1/tree/?children", "/v1/locks/a"])
def test_a_read_that_goes_back_is_found(
    called_at: int, zxid: int, found: set[str], target: str
) -> None:
    """What is asked after an answer shows at least the same state; what overlaps it need not."""
    order = an_order_that_was_shown(7, Request("GET", "/v1/tree/r"))

    assert read_of(order, called_at, zxid, target) == found


@pytest.mark.parametrize(
    "request_",
    [
        Request("GET", "/v1/tree/r?stale"),
        Request("GET", "/v1/locks/a"),
        Request("PUT", "/v1/tree/r"),
        Request("POST", "/v1/multi"),
        Request("POST", "/v1/sessions/1/heartbeat"),
        Request("PUT", "/v1/locks/s/size"),
        None,
    ],
    ids=lambda each: "stream" if each is None else f"{each.method} {each.target}",
)
def test_whatever_shows_a_state_binds_the_reads_after_it(request_: Request | None) -> None:
    """Reads of every kind, writes, heartbeats, grants and watches: what they tell is committed."""
    order = an_order_that_was_shown(7, request_)

    assert read_of(order, 3, 6, "/v1/locks/a") == BACK
    assert read_of(order, 3, 6, "/v1/locks/a?stale") == set()


@pytest.mark.parametrize(("zxid", "found"), [(6, {"reads show what was asked for"}), (7, set())])
@pytest.mark.parametrize("status", [200, 404])
def test_a_read_that_shows_less_than_was_asked_for_is_found(
    zxid: int, found: set[str], status: int
) -> None:
    """Whoever asks for a zxid is shown that one or a later one, also that nothing is there."""
    response = Response(status=status, headers={"coordinator-zxid": str(zxid)}, body=b"")
    request = Request("GET", "/v1/tree/r?at_least_zxid=7")

    assert promises(ReadOrder().heard(request, response, called_at=1, now=2)) == found


# --- what is noticed at once


def a_record() -> Record:
    return Record(lambda: 0.0)


def found_by(record: Record) -> set[str]:
    return {violation.promise for violation in record.violations}


def applied(record: Record, log: Sequence[Entry], who: str) -> None:
    for entry in log:
        record.note_applied(who, entry.index, entry.part, entry.term, entry.payload, entry.outcome)


def test_members_that_apply_the_same_break_nothing() -> None:
    """The log is what all of them apply."""
    record = a_record()
    for who in ("m1", "m2"):
        applied(record, a_log(), who)

    assert found_by(record) == set()


def test_members_that_apply_different_commands_are_found() -> None:
    """A committed entry is never replaced."""
    record, log = a_record(), a_log()
    applied(record, log, "m1")
    applied(record, [replace(log[2], payload=log[3].payload + b"x")], "m2")
    applied(record, [replace(log[2], term=2)], "m3")

    assert [violation.promise for violation in record.violations] == ["one log", "one log"]


def test_outcomes_that_differ_between_members_are_found() -> None:
    """The same entry comes to the same everywhere."""
    record, log = a_record(), a_log()
    applied(record, log, "m1")
    applied(record, outcome_changed(log, 1, zxid=7)[1:2], "m2")

    assert found_by(record) == {"equal outcomes"}


def test_an_entry_that_the_first_member_skipped_is_found() -> None:
    """Nothing appears in the log before what was applied already."""
    record, log = a_record(), a_log()
    applied(record, [log[0], log[2], log[1]], "m1")

    assert found_by(record) == {"one log"}


@pytest.mark.parametrize(
    ("arrived_s", "ended_s", "found"),
    [(10.0, 15.0, set()), (10.0, 14.9, {"no session ends early"}), (10.0, 14.96, set())],
    ids=["in time", "early", "by a clock 1 % fast"],
)
@pytest.mark.parametrize("is_told_late", [False, True])
def test_a_session_that_ends_before_its_acknowledged_lease_is_found(
    arrived_s: float, ended_s: float, found: set[str], is_told_late: bool
) -> None:
    """It lives for its timeout after the arrival of a heartbeat, whoever heard of that."""
    now_s = [arrived_s]
    record = Record(lambda: now_s[0])
    log = log_of(OpenSession(SESSION, 5_000), ExpireSession(SESSION, 1))

    applied(record, log[:1], "m1")
    if not is_told_late:
        record.note_heartbeat(SESSION, arrived_s)
    now_s[0] = ended_s
    applied(record, log[1:], "m1")
    if is_told_late:
        record.note_heartbeat(SESSION, arrived_s)

    assert found_by(record) == found


def test_digests_that_differ_are_found() -> None:
    """At one place of the log all members have one state."""
    record = a_record()
    record.note_digest("m1", (5, 0), "aa")
    record.note_digest("m2", (5, 0), "bb")

    assert found_by(record) == {"equal digests"}


def test_two_leaders_of_one_term_are_found() -> None:
    """A term has at most one leader."""
    record = a_record()
    record.note_leader("1", 4)
    record.note_leader("1", 4)
    record.note_leader("2", 5)
    assert found_by(record) == set()

    record.note_leader("3", 5)

    assert found_by(record) == {"one leader"}
