"""Every shape survives the way over the wire, in both encodings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.errors import BadArgumentsError, NoNodeError
from coordinator.model import events as watches
from coordinator.model import operations, sessions
from coordinator.model.status import MemberInfo, Status
from coordinator.model.znodes import Children, Stat, Znode
from coordinator.wire.codec import from_body, to_body, union_from_body
from coordinator.wire.encoding import Encoding, decode, encode
from coordinator.wire.multi import read_multi

STAT = Stat(
    czxid=3,
    mzxid=4,
    pzxid=5,
    ctime_ms=6,
    mtime_ms=7,
    version=1,
    cversion=2,
    aversion=0,
    ephemeral_owner="00000000000000aa",
    data_length=4,
    num_children=0,
    mode="ephemeral",
    ttl_ms=None,
)

LOST = sessions.LostGrant(
    path="/locks/d/lock-0000000001", fencing_token=7, how="forced", by="ann", reason="stuck"
)
SESSION = sessions.SessionInfo(
    session_id="aa", timeout_ms=10, label="me", opened_ms=99, ephemeral_count=1
)
MEMBER = MemberInfo(
    member_id="1", client_url="http://127.0.0.1:7071", is_reachable=True, is_self=True,
    is_leader=True,
)  # fmt: skip


def over_the_wire(body: Any, encoding: Encoding) -> Any:
    return decode(encode(body, encoding), encoding)


@pytest.mark.parametrize("encoding", Encoding)
def test_operations_survive(encoding: Encoding) -> None:
    """A multi and a guarded write are read as what was written."""
    every: tuple[operations.Operation, ...] = (
        operations.Create(
            "/a", data=b"\x00\xff", mode="ttl", session_id=None, ttl_ms=5, parents="container"
        ),
        operations.Create("/e", data=b"text", mode="ephemeral", session_id="aa"),
        operations.SetData("/a", data=b"", expected_version=3),
        operations.Delete("/a", expected_version=2, expected_czxid=9, is_recursive=True),
        operations.Check(
            "/a",
            exists=True,
            expected_version=1,
            expected_czxid=2,
            has_children=False,
            expected_owner="aa",
        ),
        operations.Check("/b", exists=False),
        operations.Read("/a"),
    )
    multi = operations.Multi(every)
    guarded = operations.Guarded(
        (operations.Check("/b", exists=False),), then=every, otherwise=(every[-1],)
    )

    assert read_multi(over_the_wire(to_body(multi, encoding), encoding)) == multi
    assert read_multi(over_the_wire(to_body(guarded, encoding), encoding)) == guarded


@pytest.mark.parametrize("encoding", Encoding)
def test_replies_survive(encoding: Encoding) -> None:
    """Every reply is read as what was answered."""
    values: list[Any] = [
        sessions.SessionLease("aa", 10),
        sessions.SessionLease(
            "aa", timeout_ms=10, holds={"/locks/daily/lock-0000000042": 5},
            lost=(LOST,),
        ),
        sessions.SessionClosed("aa", False),
        replace(SESSION, ephemerals=("/a",)),
        sessions.SessionList((SESSION,), None),
        Status(
            member_id="1", cluster="c", role="leader", leader_id="1", term=2, commit_index=3,
            applied_index=3, zxid=4, is_ready=True, summary="member 1 leads.", version="0.1",
            sessions=0, znodes=1, members=(MEMBER,),
        ),
    ]  # fmt: skip
    for value in values:
        assert from_body(type(value), over_the_wire(to_body(value, encoding), encoding)) == value
    assert from_body(Stat, over_the_wire(to_body(STAT, encoding), encoding)) == STAT


def test_requests_survive() -> None:
    """What a client asks is what the server reads."""
    opening = sessions.SessionRequest(5_000, "me")
    assert from_body(sessions.SessionRequest, to_body(opening)) == opening
    watch = watches.WatchRequest(
        (watches.WatchSelector("/a", watches.WatchKind.SUBTREE),), from_zxid=7, is_one_shot=True
    )
    assert from_body(watches.WatchRequest, to_body(watch)) == watch


def test_stream_lines_survive() -> None:
    """Every kind of line is read as what was said, errors as their class."""
    event = watches.Event(
        watches.EventType.CREATED, path="/a", version=0, czxid=3, ephemeral_owner="aa"
    )
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


def test_a_client_lives_with_fields_of_a_later_server() -> None:
    """A response may grow; a request may not."""
    grown = {"path": "/a", "data": "x", "stat": {**to_body(STAT), "new": 1}, "new": [1]}

    assert from_body(Znode, grown) == Znode("/a", data=b"x", stat=STAT)
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
