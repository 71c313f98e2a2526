"""Each check of an event log accepts what is right and names what is wrong."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.history.generation import Facts, Shape, generate
from tests.history.operations import Operation
from tests.history.properties import (
    CREATED,
    DATA_CHANGED,
    DELETED,
    Acknowledgement,
    Belief,
    Numbered,
    SessionMark,
    Violation,
    WatchRun,
    acknowledged_writes_are_kept,
    clients_never_go_back,
    digests_agree,
    ephemerals_follow_sessions,
    leases_are_kept,
    requests_are_applied_once,
    sequence_numbers_grow,
    watch_is_complete,
    zxids_follow_real_time,
)
from tests.history.queues import Grant, LockEvent, grants_do_not_overlap, grants_follow_the_queue


@dataclass(frozen=True, slots=True)
class _Event:
    type: str
    path: str
    version: int = 0
    czxid: int = 0
    ephemeral_owner: str | None = None


@dataclass(frozen=True, slots=True)
class _Change:
    zxid: int
    events: tuple[_Event, ...]


def _texts(violations: list[Violation]) -> str:
    return "\n".join(map(str, violations))


# --- writes


_WRITES = [
    _Change(1, (_Event(CREATED, "/a"),)),
    _Change(2, (_Event(DATA_CHANGED, "/a", 1), _Event(CREATED, "/b"))),
    _Change(3, (_Event(DELETED, "/a", 1),)),
]


def test_acknowledged_writes_that_are_there_are_accepted() -> None:
    """Every acknowledged write is in its change; a repeated answer to one request is the same."""
    acks = [
        Acknowledgement(("c", 1), 1, CREATED, "/a", 0),
        Acknowledgement(("c", 2), 2, DATA_CHANGED, "/a", 1),
        Acknowledgement(("c", 2), 2, DATA_CHANGED, "/a", 1),
        Acknowledgement(("c", 3), 3, DELETED, "/a"),
    ]

    assert acknowledged_writes_are_kept(acks, _WRITES) == []


@pytest.mark.parametrize(
    ("ack", "message"),
    [
        (Acknowledgement(("c", 1), 9, CREATED, "/a"), "nothing is known of zxid 9"),
        (Acknowledgement(("c", 1), 1, CREATED, "/x"), "is not among"),
        (Acknowledgement(("c", 1), 1, DELETED, "/a"), "is not among"),
        (Acknowledgement(("c", 1), 2, DATA_CHANGED, "/a", 2), "is not among"),
        (Acknowledgement(("c", 1), 2, CREATED, "/b"), "was the write of ('d', 7) already"),
    ],
)
def test_an_acknowledged_write_that_is_lost_is_named(ack: Acknowledgement, message: str) -> None:
    """A missing zxid, another znode, another event, another version, another request's write."""
    acks = [Acknowledgement(("d", 7), 2, CREATED, "/b"), ack]

    violations = acknowledged_writes_are_kept(acks, _WRITES)

    assert len(violations) == 1
    assert message in _texts(violations)


def test_a_request_applied_twice_is_named() -> None:
    """One request number at two zxids is one application too many; at one zxid it is one."""
    assert requests_are_applied_once([("c", 1, 5), ("c", 2, 6), ("d", 1, 7), ("c", 1, 5)]) == []
    assert "request 1 of c" in _texts(requests_are_applied_once([("c", 1, 5), ("c", 1, 8)]))


def test_sequence_numbers_that_repeat_or_fall_are_named() -> None:
    """Numbers grow with the zxid under each parent, whatever the order of the log."""
    good = [Numbered("/q", 7, 30), Numbered("/q", 0, 10), Numbered("/r", 0, 20)]

    assert sequence_numbers_grow(good) == []
    assert len(sequence_numbers_grow([*good, Numbered("/q", 7, 40)])) == 1
    assert len(sequence_numbers_grow([*good, Numbered("/q", 6, 40)])) == 1
    assert len(sequence_numbers_grow([*good, Numbered("/q", 8, 30)])) == 0


# --- reads


def _told(client: str, kind: str, call: int, ret: int, zxid: int, key: str = "/a") -> Operation:
    return Operation(client, key, kind, {}, {"zxid": zxid}, call, ret)


def test_zxids_of_a_correct_store_follow_real_time() -> None:
    """Generated histories of many keys never go back."""
    for seed in range(5):
        history = generate(seed, Shape(2_000, 20, 8, Facts.ALL, unknown_ratio=0.2))

        assert zxids_follow_real_time(history) == []
        assert clients_never_go_back(history) == []


@pytest.mark.parametrize(
    ("second", "is_fine"),
    [
        (_told("d", "read", 3, 4, 5, "/b"), True),
        (_told("d", "read", 3, 4, 4, "/b"), False),
        (_told("d", "read", 2, 4, 4, "/b"), True),
        (_told("d", "set", 3, 4, 5, "/b"), False),
        (_told("d", "set", 3, 4, 6, "/b"), True),
        (_told("d", "stale_read", 3, 4, 1, "/b"), True),
    ],
)
def test_an_answer_older_than_one_before_is_named(second: Operation, is_fine: bool) -> None:
    """Also on another key and by another client; not beside each other; not for stale reads."""
    first = _told("c", "read", 1, 2, 5)

    violations = zxids_follow_real_time([second, first])

    assert (violations == []) == is_fine


def test_a_client_never_goes_back_even_with_stale_reads() -> None:
    """A client's stale reads may lag behind others', not behind its own."""
    seen = [_told("c", "read", 1, 2, 5), _told("d", "stale_read", 3, 4, 3)]

    assert clients_never_go_back(seen) == []
    assert len(clients_never_go_back([*seen, _told("d", "stale_read", 5, 6, 2)])) == 1
    assert len(clients_never_go_back([*seen, _told("c", "stale_read", 5, 6, 4)])) == 1


# --- watches


_CHANGES = [
    _Change(1, (_Event(CREATED, "/w"),)),
    _Change(2, (_Event(CREATED, "/w/x"), _Event(CREATED, "/other"), _Event(CREATED, "/w/y"))),
    _Change(3, (_Event(CREATED, "/other/z"),)),
    _Change(5, (_Event(DATA_CHANGED, "/w/x", 1),)),
    _Change(6, (_Event(DELETED, "/w/y"),)),
]
_TWO = _Change(2, (_Event(CREATED, "/w/x"), _Event(CREATED, "/w/y")))


def _run(start: int, delivered: list[_Change], through: int | None = None) -> WatchRun:
    return WatchRun("w", start, delivered, lambda event: event.path.startswith("/w"), through)


@pytest.mark.parametrize(
    "run",
    [
        _run(0, [_CHANGES[0], _TWO, _CHANGES[3], _CHANGES[4]], 6),
        _run(1, [_TWO]),
        _run(2, [], 4),
        _run(5, [_CHANGES[4]], 100),
        _run(0, []),
    ],
)
def test_a_complete_watch_is_accepted(run: WatchRun) -> None:
    """Everything after the start up to where the watcher is, and no more is asked."""
    assert watch_is_complete(run, _CHANGES) == []


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (_run(1, [_TWO, _CHANGES[4]]), "zxids [5] up to 6 did not come"),
        (_run(1, [], 2), "zxids [2] up to 2 did not come"),
        (_run(1, [_TWO], 5), "zxids [5] up to 5 did not come"),
        (_run(1, [_TWO, _CHANGES[3], _CHANGES[3]]), "zxid 5 came twice"),
        (_run(1, [_TWO, _CHANGES[4], _CHANGES[3]]), "zxid 5 came after 6"),
        (_run(2, [_TWO]), "zxid 2 came after 2"),
        (_run(1, [_CHANGES[1]]), "zxid 2: expected"),
        (_run(1, [_Change(2, _TWO.events[:1])]), "zxid 2: expected"),
        (_run(1, [_Change(2, _TWO.events[::-1])]), "zxid 2: expected"),
        (_run(1, [_Change(2, _TWO.events[:1]), _Change(2, _TWO.events[1:])]), "in parts"),
        (_run(2, [_CHANGES[2]]), "zxid 3 is no change it asked for"),
        (_run(6, [_Change(7, (_Event(CREATED, "/w/new"),))]), "zxid 7 is no change"),
    ],
)
def test_an_incomplete_watch_is_named(run: WatchRun, message: str) -> None:
    """Gaps, doubles, disorder, splits, strangers: each is found."""
    assert message in _texts(watch_is_complete(run, _CHANGES))


# --- sessions


_EPHEMERAL = _Event(CREATED, "/e", 0, 2, "s")
_VANISHED = _Event(DELETED, "/e", 0, 2, "s")
_OPENED = SessionMark(1, "s", is_end=False)
_ENDED = SessionMark(5, "s", is_end=True)


def test_ephemerals_that_end_with_their_session_are_accepted() -> None:
    """At the very zxid, or before by somebody's wish, or not at all while the session lives."""
    created = _Change(2, (_EPHEMERAL,))
    gone = _Change(5, (_VANISHED,))
    asked = _Change(4, (_VANISHED,))

    assert ephemerals_follow_sessions([created, gone], [_OPENED, _ENDED], set()) == []
    assert ephemerals_follow_sessions([created, asked], [_OPENED, _ENDED], {(4, "/e")}) == []
    assert ephemerals_follow_sessions([created], [_OPENED], set()) == []


@pytest.mark.parametrize(
    ("changes", "marks", "message"),
    [
        ([_Change(2, (_EPHEMERAL,))], [_OPENED, _ENDED], "outlived s"),
        ([_Change(2, (_EPHEMERAL,)), _Change(6, (_VANISHED,))], [_OPENED, _ENDED], "by itself"),
        ([_Change(2, (_EPHEMERAL,)), _Change(4, (_VANISHED,))], [_OPENED, _ENDED], "by itself"),
        ([_Change(2, (_EPHEMERAL,)), _Change(4, (_VANISHED,))], [_OPENED], "by itself"),
        ([_Change(6, (_EPHEMERAL,))], [_OPENED, _ENDED], "was not open"),
        ([_Change(2, (_EPHEMERAL,))], [], "was not open"),
    ],
)
def test_ephemerals_that_do_not_follow_their_session_are_named(
    changes: list[_Change], marks: list[SessionMark], message: str
) -> None:
    """Too long, too late, too early, never, after the end, without a session."""
    assert message in _texts(ephemerals_follow_sessions(changes, marks, set()))


def test_a_session_that_ended_before_its_lease_is_named() -> None:
    """The latest acknowledged heartbeat counts, not the last one in the log."""
    beliefs = [Belief("s", 900.0), Belief("s", 1_900.0), Belief("s", 1_500.0), Belief("t", 50.0)]

    assert leases_are_kept(beliefs, [("s", 1_900.0), ("t", 60.0), ("unheard", 1.0)]) == []
    assert "s ended at 1899" in _texts(leases_are_kept(beliefs, [("s", 1_899.0)]))


def test_digests_that_differ_at_one_index_are_named() -> None:
    """Members may be at different indices; at one index they are equal."""
    reports = [("1", 10, "aa"), ("2", 10, "aa"), ("3", 9, "99")]

    assert digests_agree(reports) == []
    assert "at index 9: 3 has 99, 1 has 98" in _texts(digests_agree([*reports, ("1", 9, "98")]))


# --- locks


def _granted(token: int, owner: str = "a", lock: str = "l") -> LockEvent:
    return LockEvent(lock, token, is_grant=True, owner=owner)


def _freed(token: int, lock: str = "l") -> LockEvent:
    return LockEvent(lock, token, is_grant=False)


def test_grants_one_after_another_are_accepted() -> None:
    """Locks are independent; each token is larger than those before of its lock."""
    events = [
        _granted(3), _granted(2, lock="m"), _freed(3), _granted(5), _freed(2, "m"), _freed(5),
    ]  # fmt: skip

    assert grants_do_not_overlap(events) == []


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([_granted(3), _granted(5)], "while"),
        ([_granted(3), _freed(3), _granted(3)], "after token 3"),
        ([_granted(3), _freed(3), _granted(2)], "after token 3"),
        ([_granted(3), _freed(2)], "but the holder was"),
        ([_freed(2)], "but the holder was None"),
        ([_granted(5), _freed(5), _granted(3), _freed(3), _granted(4)], "after token 5"),
    ],
)
def test_grants_that_overlap_or_go_back_are_named(events: list[LockEvent], message: str) -> None:
    """Two holders, tokens that stay or fall, a lock freed from who does not hold it."""
    assert message in _texts(grants_do_not_overlap(events))


def _contender(number: int, czxid: int, kind: str = CREATED) -> _Event:
    return _Event(kind, f"/locks/l/lock-{number:010}", 0, czxid, f"s{number}")


_QUEUE = [
    _Change(1, (_Event(CREATED, "/locks/l"),)),
    _Change(2, (_contender(0, 2),)),
    _Change(4, (_contender(1, 4),)),
    _Change(5, (_contender(2, 5),)),
    _Change(7, (_contender(1, 4, DELETED),)),
    _Change(9, (_contender(0, 2, DELETED),)),
]


@pytest.mark.parametrize(
    ("token", "zxid", "is_fine"),
    [
        (2, 2, True),
        (2, 8, True),
        (5, 9, True),
        (5, 50, True),
        (2, 1, False),
        (2, 9, False),
        (4, 4, False),
        (5, 7, False),
        (4, 9, False),
        (3, 3, False),
    ],
)
def test_only_the_first_in_the_queue_is_granted(token: int, zxid: int, is_fine: bool) -> None:
    """A grant is judged by the queue at its own zxid."""
    violations = grants_follow_the_queue([Grant("/locks/l", token, zxid)], _QUEUE)

    assert (violations == []) == is_fine


def test_a_queue_whose_tokens_fall_is_named() -> None:
    """A recreated queue whose numbers start again must still give larger tokens."""
    again = [*_QUEUE, _Change(10, (_contender(2, 5, DELETED),)), _Change(11, (_contender(3, 4),))]

    violations = grants_follow_the_queue([Grant("/locks/l", 5, 9)], again)

    assert "token 4 at zxid 11 after 5" in _texts(violations)
