"""The lanes to another member: who goes first, who takes turns, what is refused."""

from __future__ import annotations

import os

import pytest

from coordinator.raft.network import messages as say
from coordinator.raft.network.lanes import PIECE_BYTES, SHORT_BYTES_MAX, Joiner, Lanes
from coordinator.raft.network.messages import NEWEST, FrameError, Message

LANE_BYTES = 4_000_000
LONG = os.urandom(1_000_000)


def lanes(*messages: Message) -> Lanes:
    """Return lanes in which these wait."""
    made = Lanes(LANE_BYTES)
    for each in messages:
        assert made.add(each, NEWEST.encode(each))
    return made


def request(number: int, payload: bytes = LONG) -> say.MemberRequest:
    return say.MemberRequest(number, kind="k", payload=payload)


def append(index: int, *entries: bytes) -> say.Append:
    return say.Append(
        term=1, epoch=1, commit_index=0, prev_index=index, prev_term=1,
        entries=tuple((1, each) for each in entries),
    )  # fmt: skip


def arrived(frames: list[bytes], joiner: Joiner) -> list[Message]:
    """Return the messages that these frames end."""
    wholes = [joiner.take(memoryview(each)) for each in frames]
    return [NEWEST.decode(each) for each in wholes if each is not None]


def all_of(waiting: Lanes, room: int = PIECE_BYTES) -> list[Message]:
    """Return what arrives, in its order, when a little leaves at a time."""
    joiner, found = Joiner(LANE_BYTES), []
    while frames := waiting.take(room):
        assert all(len(each) <= PIECE_BYTES + 2 for each in frames)
        found += arrived(frames, joiner)
    assert waiting.waiting_bytes == 0
    return found


@pytest.mark.parametrize(
    "word",
    [
        say.VoteRequest(1, last_index=1, last_term=1),
        say.Appended(1, 1, next_index=1, is_success=True),
        say.CommitNotice(1, 1),
        say.Probe(1, 0),
        say.SnapshotReply(1, 1, next_offset=1, is_installed=False),
    ],
)
def test_a_word_is_the_next_to_leave(word: Message) -> None:
    """Whatever was sent before it."""
    waiting = lanes(append(1, LONG), request(1), request(2, b"short"))
    waiting.take(PIECE_BYTES)
    assert waiting.add(word, NEWEST.encode(word))

    assert NEWEST.decode(waiting.take(PIECE_BYTES)[0]) == word


def test_each_lane_has_its_turn_after_a_piece_of_the_others() -> None:
    """A short question waits for a piece of an append and one of a long request, and no more."""
    waiting = lanes(append(1, LONG), append(2, b"after it"), request(1), request(2, b"short"))

    found = all_of(waiting)

    assert found[0] == request(2, b"short")
    assert sorted(found[1:3], key=str) == sorted([append(1, LONG), request(1)], key=str)
    assert found[3] == append(2, b"after it")


def test_appends_keep_their_order() -> None:
    """One without entries overtakes none with entries, and is a word where none waits."""
    sent = [append(1), append(2, LONG), append(3), append(4, b"x"), append(5)]
    assert all_of(lanes(*sent)) == sent

    waiting = lanes(request(1), append(1))
    assert NEWEST.decode(waiting.take(1)[0]) == append(1)


def test_short_ones_leave_together() -> None:
    """Many questions are one write, as far as there is room."""
    sent = [request(number, bytes(100)) for number in range(1_000)]
    waiting = lanes(*sent)

    first = waiting.take(PIECE_BYTES)

    assert len(first) > PIECE_BYTES // 130
    assert arrived(first, Joiner(LANE_BYTES)) + all_of(waiting) == sent


def test_a_full_lane_refuses_and_the_others_go_on() -> None:
    """One message has room in any case."""
    waiting = lanes(request(0, bytes(LANE_BYTES + 1)))

    assert not waiting.add(request(1), NEWEST.encode(request(1)))
    assert waiting.add(request(2, b"short"), NEWEST.encode(request(2, b"short")))
    assert waiting.add(append(1, LONG), NEWEST.encode(append(1, LONG)))
    assert not waiting.has_too_many_words
    waiting.clear()
    assert waiting.take(PIECE_BYTES) == []


def test_what_is_just_a_piece_is_not_cut() -> None:
    """Nothing is lost at the edges of pieces."""
    for size in range(PIECE_BYTES - 30, PIECE_BYTES + 5):
        sent = [request(1, bytes(size)), request(2, bytes(2 * size)), request(3, b"")]
        found = sorted(all_of(lanes(*sent)), key=lambda each: each[0])
        assert found == sent
    assert SHORT_BYTES_MAX < PIECE_BYTES


@pytest.mark.parametrize("frame", [b"\0", b"\1\0", b"\0\7x", b"\1\xffx", b"\0\0" + bytes(101)])
def test_what_is_no_piece_ends_the_connection(frame: bytes) -> None:
    """Nor what is longer than a message may be."""
    with pytest.raises(FrameError):
        Joiner(100).take(memoryview(frame))


def test_pieces_of_too_long_a_message_are_not_kept() -> None:
    """The limit counts for all pieces together, in each lane."""
    joiner = Joiner(100)
    for lane in (b"\0", b"\2"):
        assert joiner.take(memoryview(b"\0" + lane + bytes(60))) is None

    with pytest.raises(FrameError, match="at most 100 bytes, found 120"):
        joiner.take(memoryview(b"\0\2" + bytes(60)))
