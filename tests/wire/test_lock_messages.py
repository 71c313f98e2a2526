"""What is asked and said of locks, elections and grants survives the way over the wire."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from coordinator.errors import BadArgumentsError
from coordinator.model import acquire, grants, history, views
from coordinator.model.events import StreamError
from coordinator.wire import if_held
from coordinator.wire.codec import from_body, to_body, union_from_body
from coordinator.wire.encoding import Encoding, decode, encode
from coordinator.wire.lock_requests import read_acquire, read_acquire_several, read_revoke

GRANT = grants.GrantReply(
    grant_id="42-1337",
    lock="daily",
    fencing_token=1337,
    session_id="aa",
    path="/locks/daily/lock-0000000042",
    zxid=1340,
)
PREVIOUS = history.Previous(
    grant_id="41-1300", fencing_token=1300, how="expired", note=b"at 7\x00", ended_zxid=1330
)
SEVERAL = replace(GRANT, kind="shared", max_hold_ms=9, previous=PREVIOUS, grants=(GRANT, GRANT))
RECORD = history.GrantRecord(
    lock="daily", grant_id="42-1337", path="/locks/daily/lock-0000000042", fencing_token=1337,
    kind="exclusive", session_id="aa", entered_zxid=1337, entered_ms=5, granted_zxid=1340,
    granted_ms=6, owner="o", label="me", host="h", pid=7, trace_id="t", when_unsure="stop",
    purpose="correctness", guard="pg", ended_zxid=1350, ended_ms=9, how="forced", by="ann",
    reason="stuck", silent_ms=3, term=2, next_token=1360, note=b"\xff",
    group=("/locks/daily/lock-0000000042",),
)  # fmt: skip
HOLDER = views.Contender(
    grant_id="42-1337", fencing_token=1337, session_id="aa", path="/locks/daily/lock-42",
    since_ms=9, label="me", host="h", pid=7, trace_id="t",
)  # fmt: skip
ELECTED = views.Candidate(
    grant_id="1-5", fencing_token=5, epoch=5, session_id="aa", value=b"\x00\xff"
)
VALUES: tuple[Any, ...] = (
    views.LockView(
        lock="daily", holder=HOLDER, holders=(), queue=(HOLDER,), zxid=9, is_current=True
    ),
    views.LockView(lock="daily", holder=None, holders=(), queue=(), zxid=9),
    views.LockView(
        lock="daily",
        holder=HOLDER,
        holders=(HOLDER,),
        queue=(),
        zxid=9,
        size=3,
        closed=views.Closed(5, 2),
        waits=views.Spread(count=9, p50_ms=1, p95_ms=2, p99_ms=3),
        holds=views.Spread(count=9, p50_ms=4, p95_ms=5, p99_ms=6),
        denied=views.Denied(1, left=2, since_ms=3),
    ),
    replace(HOLDER, kind="slot", is_holder=True, note=b"\xff", lease_ms=9, safe_ms=3, granted_ms=8),
    views.LockList(
        (views.LockSummary("daily", holder=HOLDER, queue_length=3, held_ms=0),), "daily"
    ),
    views.ElectionView("e", elected=ELECTED, candidates=(replace(ELECTED, value=None),), zxid=9),
    views.Elected(ELECTED, 9),
    history.GrantPage((RECORD, replace(RECORD, is_election=True, how="")), 7),
    history.GrantStory(RECORD, next=None, sentences=("It was forced.",)),
    history.GrantStory(RECORD, next=RECORD, sentences=()),
    SEVERAL,
    replace(GRANT, is_election=True, lease_ms=9, safe_ms=3),
    grants.AcquireReply(GRANT),
    grants.NoteReply("42-1337", 9),
    grants.SizeReply("daily", size=3, zxid=9),
    grants.RevokeReply(RECORD, 1338),
    grants.ReleaseReply("42-1337"),
    grants.AbandonReply(None),
    grants.Proclaimed("42-1337", epoch=1337, zxid=1340),
)


def over_the_wire(body: Any, encoding: Encoding) -> Any:
    return decode(encode(body, encoding), encoding)


@pytest.mark.parametrize("encoding", Encoding)
def test_replies_survive(encoding: Encoding) -> None:
    """Every reply is read as what was answered."""
    for value in VALUES:
        assert from_body(type(value), over_the_wire(to_body(value, encoding), encoding)) == value


def test_requests_survive() -> None:
    """What a client asks is what the server reads."""
    for wish in (
        acquire.Acquire(
            "me", host="h", pid=7, trace_id="t", session_id="aa", timeout_ms=0, on_disconnect="stay"
        ),
        acquire.Acquire(
            session_id="aa",
            kind="slot",
            owner="o",
            size=3,
            lock_delay_ms=1,
            max_hold_ms=2,
            when_unsure="continue",
            purpose="correctness",
            guard="postgresql",
        ),
    ):
        assert read_acquire(to_body(wish)) == wish
    several = acquire.AcquireSeveral(session_id="aa", names=("b", "a"))
    assert read_acquire_several(to_body(several)) == several
    campaign = acquire.Acquire(lease_ms=5_000, value=b"\x00")
    body = to_body(campaign, Encoding.MSGPACK)
    assert read_acquire(body, is_election=True) == campaign


def test_stream_lines_survive() -> None:
    """Every kind of line is read as what was said."""
    won = replace(GRANT, is_election=True)
    for line in (grants.Queued(2, "aa"), grants.Granted(GRANT), grants.Granted(won)):
        assert union_from_body(grants.AcquireLine, to_body(line)) == line
    elected = views.Elected(ELECTED, 9)
    assert union_from_body(views.Elected | StreamError, to_body(elected)) == elected


def test_a_grant_of_the_history_is_of_a_lock_or_of_an_election() -> None:
    """Its name says which; both names at once are refused."""
    body = to_body(replace(RECORD, is_election=True))

    assert body["election"] == "daily"
    assert "lock" not in body
    assert "is_election" not in body
    with pytest.raises(BadArgumentsError, match="expected lock or election, found both"):
        from_body(history.GrantRecord, {**body, "lock": "daily"})


def test_an_election_says_epoch_where_a_lock_says_lock() -> None:
    """The epoch of an election is its fencing token."""
    body = to_body(replace(GRANT, is_election=True))

    assert (body["election"], body["epoch"], body["fencing_token"]) == ("daily", 1337, 1337)
    assert "lock" not in body


def test_what_is_asked_of_a_held_grant_survives() -> None:
    """Note, size, forced end: what a client asks is what the server reads."""
    for asked in (
        *[grants.NoteRequest(note) for note in (b"page 7", b"\x00\xff", b"")],
        *[grants.ProclaimRequest(value) for value in (b"\xff", b"")],
        grants.SizeRequest(3),
        *[grants.ExtendRequest(*times) for times in ((500, 0), (0, 500))],
        grants.DowngradeRequest(),
    ):
        assert from_body(type(asked), to_body(asked)) == asked
    for revoke in (
        grants.RevokeBody("ann", "stuck"),
        grants.RevokeBody("ann", reason="stuck", grant_id="42-1337"),
    ):
        assert read_revoke(to_body(revoke)) == revoke


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
        read_revoke(body)


def test_a_note_has_its_limit() -> None:
    """A checkpoint note is small, and is given."""
    with pytest.raises(BadArgumentsError, match="at most 1024 bytes"):
        from_body(grants.NoteRequest, {"note": "x" * 1_025})
    with pytest.raises(BadArgumentsError, match="found none"):
        from_body(grants.NoteRequest, {})


def test_a_condition_on_a_grant_survives_in_body_and_query() -> None:
    """``if_held`` is one object or several, or a parameter; a name may have colons."""
    lock, election = acquire.IfHeld("a:b/c", 7), acquire.IfHeld("e", 9, is_election=True)

    assert if_held.read_if_held(if_held.if_held_body((lock, election))) == (lock, election)
    assert if_held.read_if_held({"if_held": to_body(lock)}) == (lock,)
    assert if_held.read_if_held({}) == ()
    for each in (lock, election):
        assert if_held.if_held_in(*if_held.if_held_query(each)) == each


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
        if_held.if_held_in("if_held", value)


def test_a_multi_lock_names_its_locks() -> None:
    """Names only where several are taken, at least one, not without end."""
    lease = {"session_id": "aa"}
    for names in (None, [], [7], ["a"] * 65):
        with pytest.raises(BadArgumentsError, match="names"):
            read_acquire_several({**lease, "names": names})
    with pytest.raises(BadArgumentsError, match="names"):
        read_acquire({**lease, "names": ["a"]})


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "neither"),
        ({"session_id": "aa", "lease_ms": 5}, "16 digits"),
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
        read_acquire(body)
