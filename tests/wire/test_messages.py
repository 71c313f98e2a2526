"""Every shape survives the way over the wire, in both encodings."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.wire.encoding import Encoding, decode, encode
from coordinator.wire.messages import elections, locks, operations, sessions, status, watches
from coordinator.wire.messages.znodes import Children, Stat, Znode, stat_body

STAT = Stat(3, 4, 5, 6, 7, 1, 2, 0, "00000000000000aa", 4, 0, "ephemeral", None)
GRANT = locks.Grant("42-1337", "daily", 1337, "aa", "/locks/daily/lock-0000000042", 1340)
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

    assert operations.read_multi(over_the_wire(multi.to_body(encoding), encoding)) == multi
    assert operations.read_multi(over_the_wire(guarded.to_body(encoding), encoding)) == guarded


@pytest.mark.parametrize("encoding", Encoding)
def test_replies_survive(encoding: Encoding) -> None:
    """Every reply is read as what was answered."""
    shapes: list[Any] = [
        sessions.SessionLease("aa", 10),
        sessions.SessionClosed("aa", False),
        sessions.SessionInfo("aa", 10, "me", 99, 1, ("/a",)),
        sessions.SessionList((sessions.SessionInfo("aa", 10, "me", 99, 1),)),
        locks.LockView("daily", HOLDER, (HOLDER,), 9, True),
        locks.LockView("daily", None, (), 9),
        locks.LockList((locks.LockSummary("daily", HOLDER, 3, 0),), "daily"),
        locks.ReleaseReply("42-1337"),
        locks.AbandonReply(None),
        status.Status(
            "1", "c", "leader", "1", 2, 3, 3, 4, True, "All is well.", "0.1", 0, 1,
            (status.MemberInfo("1", "http://127.0.0.1:7071", True, True, True),),
        ),
    ]  # fmt: skip
    for shape in shapes:
        assert type(shape).from_body(over_the_wire(shape.to_body(), encoding)) == shape
    view = elections.ElectionView("e", ELECTED, (), 9)
    body = over_the_wire(view.to_body(encoding), encoding)
    assert elections.ElectionView.from_body(body) == view
    assert Stat.from_body(over_the_wire(stat_body(STAT), encoding)) == STAT


def test_requests_survive() -> None:
    """What a client asks is what the server reads."""
    opening = sessions.OpenSession(5_000, "me")
    assert sessions.OpenSession.from_body(opening.to_body()) == opening
    acquire = locks.Acquire("aa", None, 0, "me", "h", 7, "t", "stay")
    assert locks.Acquire.from_body(acquire.to_body()) == acquire
    campaign = locks.Acquire(None, 5_000, value=b"\x00")
    body = campaign.to_body(Encoding.MSGPACK)
    assert locks.Acquire.from_body(body, is_election=True) == campaign
    watch = watches.WatchRequest((watches.WatchSelector("/a", "subtree"),), 7, True)
    assert watches.WatchRequest.from_body(watch.to_body()) == watch
    assert elections.read_proclaim(elections.proclaim_body(b"\xff")) == b"\xff"


def test_stream_lines_survive() -> None:
    """Every kind of line is read as what was said, errors as their class."""
    event = watches.Event("NodeCreated", "/a", 0, 3, "aa")
    for line in (
        watches.Watching(1),
        watches.Change(3, (event,)),
        watches.Bookmark(4),
        watches.Resync(5),
    ):
        assert watches.read_watch_line(line.to_body()) == line
    told = watches.read_watch_line(watches.StreamError(NoNodeError("gone")).to_body())
    assert isinstance(told, watches.StreamError)
    assert isinstance(told.error, NoNodeError)
    assert locks.read_acquire_line(locks.Queued(2).to_body()) == locks.Queued(2)
    for is_election in (False, True):
        granted = locks.Granted(GRANT).to_body(is_election=is_election)
        assert locks.read_acquire_line(granted) == locks.Granted(GRANT)
    elected = elections.Elected(ELECTED, 9)
    assert elections.read_observe_line(elected.to_body()) == elected


def test_an_election_says_epoch_where_a_lock_says_lock() -> None:
    """The epoch of an election is its fencing token."""
    body = GRANT.to_body(is_election=True)

    assert (body["election"], body["epoch"], body["fencing_token"]) == ("daily", 1337, 1337)
    assert "lock" not in body


def test_a_client_lives_with_fields_of_a_later_server() -> None:
    """A response may grow; a request may not."""
    grown = {"path": "/a", "data": "x", "stat": {**stat_body(STAT), "new": 1}, "new": [1]}

    assert Znode.from_body(grown) == Znode("/a", b"x", STAT)
    with pytest.raises(BadArgumentsError, match="found new"):
        operations.read_multi({"operations": [{"op": "read", "path": "/a", "new": 1}]})


def test_children_come_with_or_without_stat() -> None:
    """A listing carries names, or names with their Stats."""
    plain = Children.from_body({"path": "/", "children": ["a"], "stat": None, "next": "a"})
    child = {"name": "a", "stat": stat_body(STAT)}
    full = Children.from_body({"path": "/", "children": [child], "stat": None, "next": None})

    assert (plain.names, plain.stats, plain.next) == (("a",), (), "a")
    assert (full.names, full.stats, full.next) == (("a",), (STAT,), None)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "neither"),
        ({"session_id": "aa", "lease_ms": 5}, "both"),
        ({"session_id": "aa", "timeout_ms": 3_600_001}, "from 0 to 3600000"),
        ({"session_id": "aa", "on_disconnect": "wait"}, "one of leave, stay"),
        ({"session_id": "aa", "value": "x"}, "found value"),
        ({"session_id": "aa", "label": "x" * 201}, "at most 200 characters"),
    ],
)
def test_nothing_is_held_without_a_lease(body: dict[str, Any], said: str) -> None:
    """An acquire names exactly one lease, and nothing that a lock does not know."""
    with pytest.raises(BadArgumentsError, match=said):
        locks.Acquire.from_body(body)


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
        operations.read_multi(body)
