"""Every shape survives the way over the wire, in both encodings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.model import events as watches
from coordinator.model import operations, sessions
from coordinator.model.status import MemberInfo, Status
from coordinator.model.znodes import Children, Stat, Znode
from coordinator.wire.codec import from_body, to_body, union_from_body
from coordinator.wire.encoding import Encoding, decode, encode
from coordinator.wire.messages import (
    acquire,
    elections,
    history,
    holding,
    if_held,
    locks,
)
from coordinator.wire.multi import read_multi

STAT = Stat(3, 4, 5, 6, 7, 1, 2, 0, "00000000000000aa", 4, 0, "ephemeral", None)
GRANT = acquire.Grant("42-1337", "daily", 1337, "aa", "/locks/daily/lock-0000000042", 1340)
PREVIOUS = history.Previous("41-1300", 1300, "expired", b"at 7\x00", 1330)
SEVERAL = replace(GRANT, kind="shared", max_hold_ms=9, previous=PREVIOUS, grants=(GRANT, GRANT))
RECORD = history.GrantRecord(
    "daily", "42-1337", "/locks/daily/lock-0000000042", 1337, "exclusive", "aa", 1337, 5, 1340, 6,
    "o", "me", "h", 7, "t", "stop", "correctness", "pg", 1350, 9, "forced", "ann", "stuck", 3, 2,
    1360, b"\xff", ("/locks/daily/lock-0000000042",),
)  # fmt: skip
HOLDER = locks.Contender("42-1337", 1337, "aa", "/locks/daily/lock-42", 0, 9, "me", "h", 7, "t")
ELECTED = locks.Contender("1-5", 5, "aa", "/elections/e/candidate-0000000001", value=b"\x00\xff")


def over_the_wire(body: Any, encoding: Encoding) -> Any:
    return decode(encode(body, encoding), encoding)


@pytest.mark.parametrize("encoding", Encoding)
def test_operations_survive(encoding: Encoding) -> None:
    """A multi and a guarded write are read as what was written."""
    every: tuple[operations.Operation, ...] = (
        operations.Create("/a", b"\x00\xff", "ttl", None, 5, "container"),
        operations.Create("/e", b"text", "ephemeral", "aa"),
        operations.SetData("/a", b"", 3),
        operations.Delete("/a", 2, 9, True),
        operations.Check("/a", True, 1, 2, False, "aa"),
        operations.Check("/b", exists=False),
        operations.Read("/a"),
    )
    multi = operations.Multi(every)
    guarded = operations.Guarded((operations.Check("/b", exists=False),), every, (every[-1],))

    assert read_multi(over_the_wire(to_body(multi, encoding), encoding)) == multi
    assert read_multi(over_the_wire(to_body(guarded, encoding), encoding)) == guarded


@pytest.mark.parametrize("encoding", Encoding)
def test_replies_survive(encoding: Encoding) -> None:
    """Every reply is read as what was answered."""
    shapes: list[Any] = [
        locks.LockView("daily", HOLDER, (HOLDER,), 9, True),
        locks.LockView("daily", None, (), 9),
        locks.LockView(
            "daily", HOLDER, (), 9, holders=(HOLDER,), size=3, closed=locks.Closed(5, 2),
            waits=locks.Spread(9, 1, 2, 3), holds=locks.Spread(9, 4, 5, 6),
        ),
        replace(
            HOLDER, kind="slot", is_holder=True, note=b"\xff", lease_ms=9, safe_ms=3, granted_ms=8
        ),
        SEVERAL,
        history.GrantPage((RECORD, replace(RECORD, is_election=True, how="")), 7),
        history.GrantStory(RECORD, None, "It was forced."),
        history.GrantStory(RECORD, RECORD, ""),
        holding.NoteReply("42-1337", 9),
        holding.SizeReply("daily", 3, 9),
        holding.RevokeReply(RECORD, 1338),
        locks.LockList((locks.LockSummary("daily", HOLDER, 3, 0),), "daily"),
        acquire.ReleaseReply("42-1337"),
        acquire.AbandonReply(None),
    ]  # fmt: skip
    values: list[Any] = [
        sessions.SessionLease("aa", 10),
        sessions.SessionLease(
            "aa", 10, {"/locks/daily/lock-0000000042": 5},
            (sessions.LostGrant("/locks/d/lock-0000000001", 7, "forced", "ann", "stuck"),),
        ),
        sessions.SessionClosed("aa", False),
        sessions.SessionInfo("aa", 10, "me", 99, 1, ("/a",)),
        sessions.SessionList((sessions.SessionInfo("aa", 10, "me", 99, 1),), None),
        Status(
            "1", "c", "leader", "1", 2, 3, 3, 4, True, "All is well.", "0.1", 0, 1,
            (MemberInfo("1", "http://127.0.0.1:7071", True, True, True),),
        ),
    ]  # fmt: skip
    for value in values:
        assert from_body(type(value), over_the_wire(to_body(value, encoding), encoding)) == value
    for shape in shapes:
        assert type(shape).from_body(over_the_wire(shape.to_body(), encoding)) == shape
    view = elections.ElectionView("e", ELECTED, (), 9)
    body = over_the_wire(view.to_body(encoding), encoding)
    assert elections.ElectionView.from_body(body) == view
    assert from_body(Stat, over_the_wire(to_body(STAT, encoding), encoding)) == STAT


def test_requests_survive() -> None:
    """What a client asks is what the server reads."""
    opening = sessions.SessionRequest(5_000, "me")
    assert from_body(sessions.SessionRequest, to_body(opening)) == opening
    for wish in (
        acquire.Acquire("aa", None, 0, "me", "h", 7, "t", "stay"),
        acquire.Acquire(
            "aa", kind="slot", owner="o", size=3, lock_delay_ms=1, max_hold_ms=2,
            when_unsure="continue", purpose="correctness", guard="postgresql",
        ),
    ):  # fmt: skip
        assert acquire.Acquire.from_body(wish.to_body()) == wish
    several = acquire.Acquire("aa", names=("b", "a"))
    assert acquire.Acquire.from_body(several.to_body(), is_multi=True) == several
    campaign = acquire.Acquire(None, 5_000, value=b"\x00")
    body = campaign.to_body(Encoding.MSGPACK)
    assert acquire.Acquire.from_body(body, is_election=True) == campaign
    watch = watches.WatchRequest((watches.WatchSelector("/a", watches.WatchKind.SUBTREE),), 7, True)
    assert from_body(watches.WatchRequest, to_body(watch)) == watch
    assert elections.read_proclaim(elections.proclaim_body(b"\xff")) == b"\xff"


def test_stream_lines_survive() -> None:
    """Every kind of line is read as what was said, errors as their class."""
    event = watches.Event(watches.EventType.CREATED, "/a", 0, 3, "aa")
    for line in (
        watches.Watching(1),
        watches.Change(3, (event,)),
        watches.Bookmark(4),
        watches.Resync(5),
    ):
        assert union_from_body(watches.WatchLine, to_body(line)) == line
    told = union_from_body(watches.WatchLine, to_body(watches.StreamError(NoNodeError("gone"))))
    assert isinstance(told, watches.StreamError)
    assert isinstance(told.error, NoNodeError)
    assert acquire.read_acquire_line(acquire.Queued(2).to_body()) == acquire.Queued(2)
    for is_election in (False, True):
        granted = acquire.Granted(GRANT).to_body(is_election=is_election)
        assert acquire.read_acquire_line(granted) == acquire.Granted(GRANT)
    elected = elections.Elected(ELECTED, 9)
    assert elections.read_observe_line(elected.to_body()) == elected


def test_an_election_says_epoch_where_a_lock_says_lock() -> None:
    """The epoch of an election is its fencing token."""
    body = GRANT.to_body(is_election=True)

    assert (body["election"], body["epoch"], body["fencing_token"]) == ("daily", 1337, 1337)
    assert "lock" not in body


def test_a_client_lives_with_fields_of_a_later_server() -> None:
    """A response may grow; a request may not."""
    grown = {"path": "/a", "data": "x", "stat": {**to_body(STAT), "new": 1}, "new": [1]}

    assert from_body(Znode, grown) == Znode("/a", b"x", STAT)
    with pytest.raises(BadArgumentsError, match="unknown field 'new'"):
        read_multi({"operations": [{"op": "read", "path": "/a", "new": 1}]})


def test_children_come_with_or_without_stat() -> None:
    """A listing carries names, or names with their Stats."""
    common = {"path": "/", "stat": to_body(STAT)}
    plain = from_body(Children, {**common, "children": ["a"], "next": "a"})
    child = {"name": "a", "stat": to_body(STAT)}
    full = from_body(Children, {**common, "children": [child], "next": None})

    assert (plain.names, plain.stats, plain.next) == (("a",), (), "a")
    assert (full.names, full.stats, full.next) == (("a",), (STAT,), None)


def test_what_is_asked_of_a_held_grant_survives() -> None:
    """Note, size, forced end: what a client asks is what the server reads."""
    for note in (b"page 7", b"\x00\xff", b""):
        assert holding.read_note(holding.note_body(note)) == note
    assert holding.Resize.from_body(holding.Resize(3).to_body()) == holding.Resize(3)
    for revoke in (holding.Revoke("ann", "stuck"), holding.Revoke("ann", "stuck", "42-1337")):
        assert holding.Revoke.from_body(revoke.to_body()) == revoke


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"by": "ann"},
        {"by": "ann", "reason": "  "},
        {"by": "ann", "reason": "x" * 201},
    ],
)
def test_nobody_is_forced_out_without_a_name_and_a_reason(body: Any) -> None:
    """A forced release says who wants it and why."""
    with pytest.raises(BadArgumentsError, match="body"):
        holding.Revoke.from_body(body)


def test_a_note_has_its_limit() -> None:
    """A checkpoint note is small, and is given."""
    with pytest.raises(BadArgumentsError, match="at most 1024 bytes"):
        holding.read_note({"note": "x" * 1_025})
    with pytest.raises(BadArgumentsError, match="found none"):
        holding.read_note({})


def test_a_condition_on_a_grant_survives_in_body_and_query() -> None:
    """``if_held`` is one object or several, or a parameter; a name may have colons."""
    lock, election = if_held.IfHeld("a:b/c", 7), if_held.IfHeld("e", 9, is_election=True)

    assert if_held.read_if_held(if_held.if_held_body((lock, election))) == (lock, election)
    assert if_held.read_if_held({"if_held": lock.to_body()}) == (lock,)
    assert if_held.read_if_held({}) == ()
    for each in (lock, election):
        assert if_held.IfHeld.from_query(*each.to_query()) == each


@pytest.mark.parametrize(
    "said",
    [
        7,
        "a:7",
        {"lock": "a"},
        {"lock": "a", "fencing_token": 0},
        {"lock": "a", "election": "a", "fencing_token": 1},
        {"lock": "a", "fencing_token": 1, "more": 1},
        [{"lock": "a", "fencing_token": 1}] * 65,
    ],
)
def test_a_condition_that_is_none_is_refused(said: Any) -> None:
    """A mistyped condition never turns into an unconditional write."""
    with pytest.raises(BadArgumentsError, match="if_held"):
        if_held.read_if_held({"if_held": said})


@pytest.mark.parametrize("value", ["", "a", "a:", ":7", "a:x", "a:-1", "a:0", "a:" + "9" * 20])
def test_a_condition_in_the_query_that_is_none_is_refused(value: str) -> None:
    """The same in the query: a name, a colon, a token."""
    with pytest.raises(BadArgumentsError, match=r"query\.if_held"):
        if_held.IfHeld.from_query("if_held", value)


def test_a_multi_lock_names_its_locks() -> None:
    """Names only where several are taken, at least one, not without end."""
    lease = {"session_id": "aa"}
    for names in (None, [], [7], ["a"] * 65):
        with pytest.raises(BadArgumentsError, match="names"):
            acquire.Acquire.from_body({**lease, "names": names}, is_multi=True)
    with pytest.raises(BadArgumentsError, match="names"):
        acquire.Acquire.from_body({**lease, "names": ["a"]})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "neither"),
        ({"session_id": "aa", "lease_ms": 5}, "both"),
        ({"session_id": "aa", "timeout_ms": 3_600_001}, "from 0 to 3600000"),
        ({"session_id": "aa", "on_disconnect": "wait"}, "one of leave, stay"),
        ({"session_id": "aa", "value": "x"}, "unknown field 'value'"),
        ({"session_id": "aa", "label": "x" * 201}, "at most 200 characters"),
        ({"session_id": "aa", "kind": "mutex"}, "one of exclusive, shared, slot"),
        ({"session_id": "aa", "size": 0}, "from 1 to"),
        ({"session_id": "aa", "lock_delay_ms": 60_001}, "from 0 to 60000"),
        ({"session_id": "aa", "purpose": "fun"}, "one of efficiency, correctness"),
    ],
)
def test_nothing_is_held_without_a_lease(body: dict[str, Any], said: str) -> None:
    """An acquire names exactly one lease, and nothing that a lock does not know."""
    with pytest.raises(BadArgumentsError, match=said):
        acquire.Acquire.from_body(body)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"operations": [], "conditions": []},
        {"operations": {}},
        {"operations": [7]},
        {"operations": [{"op": "move", "path": "/a"}]},
        {"operations": [{"op": "create"}]},
        {"operations": [{"op": "set", "path": "/a"}]},
        {"operations": [{"op": "create", "path": "/a", "mode": "PERSISTENT"}]},
        {"operations": [{"op": "delete", "path": "/a", "expected_version": -2}]},
        {"conditions": [{"op": "create", "path": "/a"}]},
        {"conditions": [{"path": "/a", "exists": 1}]},
        {"conditions": [], "otherwise": [None, "x"]},
    ],
)
def test_a_multi_that_is_none_is_refused(body: Any) -> None:
    """Wrong shapes never reach the state machine."""
    with pytest.raises(BadArgumentsError, match=r"body"):
        read_multi(body)
