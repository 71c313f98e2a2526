"""No message of another member takes long to read: at its largest, less than the loop may be held.

One row for each kind whose size is not fixed; a kind of message with a field that may grow, and
without a row, fails. What is no message, but as long as a frame may be, is refused as soon.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import (
    APPEND_ENTRIES_MAX,
    INCARNATION_ID_BYTES,
    INCARNATIONS_SHOWN_MAX,
    FrameError,
)
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed

RAFT = RaftConfig()
ENTRY = b"e" * (RAFT.append_batch_bytes // APPEND_ENTRIES_MAX)
LARGE = b"p" * (RAFT.frame_bytes_max - 64 * 1024)
GROWS = frozenset({"bytes", "str", "Sequence[tuple[int, bytes]]"})
ROWS: dict[type, say.Message] = {
    say.Append: say.Append(
        term=5,
        epoch=1,
        commit_index=7,
        prev_index=9,
        prev_term=5,
        entries=[(5, ENTRY)] * APPEND_ENTRIES_MAX,
    ),
    say.Incarnation: say.Incarnation(
        number=5,
        ids=b"i" * INCARNATIONS_SHOWN_MAX * INCARNATION_ID_BYTES,
        life_id=b"l" * 8,
        is_proven=True,
        is_asking=False,
        proof_term=5,
        proof_index=9,
    ),
    say.SnapshotPiece: say.SnapshotPiece(
        term=5,
        snapshot_index=9,
        total_bytes=2**40,
        sha256=b"s" * 32,
        offset=0,
        data=b"d" * RAFT.snapshot_piece_bytes,
    ),
    say.MemberRequest: say.MemberRequest(request_id=1, kind="propose", payload=LARGE),
    say.Reply: say.Reply(request_id=1, status=say.REPLY_OK, code="", payload=LARGE),
}
FIXED = frozenset(
    {
        say.Appended,
        say.IncarnationLost,
        say.Doubt,
        say.LogLost,
        say.SnapshotReply,
        say.Vouch,
    }
)
"""What may grow in these are ids and seals of a fixed length."""


def test_every_message_that_may_grow_has_a_row() -> None:
    """A new one says how large it gets."""
    growing = {
        kind
        for kind in [each.type for each in say.KINDS]
        if GROWS
        & {getattr(note, "__forward_arg__", note) for note in kind.__annotations__.values()}
    }
    assert growing - FIXED == set(ROWS)


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_no_message_takes_long_to_read(kind: type) -> None:
    """By the processor's clock, the least of some repetitions."""
    payload = say.NEWEST.encode(ROWS[kind])

    assert type(say.NEWEST.decode(payload)) is kind
    assert least_ms(lambda: say.NEWEST.decode(payload)) <= HELD_MS_MAX


def refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        say.NEWEST.decode(payload)


def least_ms(act: Callable[[], object]) -> float:
    least = float("inf")
    for _ in range(6):
        started = time.thread_time()
        act()
        least = min(least, (time.thread_time() - started) * 1_000 / fixed_work_speed())
    return least


FRAME = RAFT.frame_bytes_max - 64
ROW_OF_NUMBERS = b"\xdc\x03\xff" + b"\x01" * 1_023
BOMBS: dict[str, bytes] = {
    "empty rows": b"\xdd" + FRAME.to_bytes(4, "big") + b"\x90" * FRAME,
    "numbers": b"\xdd" + FRAME.to_bytes(4, "big") + b"\x01" * FRAME,
    "rows of numbers": b"\xdc\x04\x00" + ROW_OF_NUMBERS * 1_024,
    "rows of rows of empty rows": b"\xdc\x04\x00" * 2 + b"\x90" * FRAME,
    "rows within rows": (b"\xdc\x04\x00" + b"\x01" * 1_023) * 1_020 + b"\x01" * FRAME,
    "names": b"\xdf" + (FRAME // 4).to_bytes(4, "big") + b"\xa1n\x90\x01" * (FRAME // 4),
    "numbers in rows within rows": b"\x97\x01"
    + (b"\xdc\x04\x00" + b"\xcd\xff\xff" * 1_023) * 1_020,
    "texts in rows within rows": b"\x97\x01" + (b"\xdc\x04\x00" + b"\xa3xyz" * 1_023) * 1_020,
    "entries that are rows": msgpack.packb((1, 5, 1, 7, 9, 5, [(5, [0] * 1_000)] * 1_024)),
    "ids": say.NEWEST.encode(
        say.Incarnation(
            number=5,
            ids=b"i" * FRAME,
            life_id=b"l" * 8,
            is_proven=True,
            is_asking=False,
            proof_term=5,
            proof_index=9,
        )
    ),
    "an id": say.NEWEST.encode(say.Vouch("2", b"l" * FRAME)),
    "a kind": say.NEWEST.encode(say.MemberRequest(request_id=1, kind="k" * FRAME, payload=b"")),
}
"""What a member that knows the secret could send, and none of ours does."""


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_is_no_message_is_refused_as_soon(bomb: str) -> None:
    """The first value of another type than expected ends it, and so does one that is too long."""
    assert least_ms(lambda: refused(BOMBS[bomb])) <= HELD_MS_MAX


def test_one_more_than_a_message_holds_is_refused() -> None:
    """At each bound it is read, one beyond it is not."""
    entry = (5, b"e")
    ids = b"i" * INCARNATIONS_SHOWN_MAX * INCARNATION_ID_BYTES
    incarnation = say.Incarnation(
        number=5,
        ids=ids,
        life_id=b"l" * 128,
        is_proven=True,
        is_asking=False,
        proof_term=5,
        proof_index=9,
    )
    largest = say.Append(
        term=5,
        epoch=1,
        commit_index=7,
        prev_index=9,
        prev_term=5,
        entries=(entry,) * APPEND_ENTRIES_MAX,
    )
    asked = say.MemberRequest(request_id=1, kind="k" * 128, payload=b"")

    for said in (largest, incarnation, asked):
        assert say.NEWEST.decode(say.NEWEST.encode(said)) == said
    refused(say.NEWEST.encode(largest._replace(entries=(entry,) * (APPEND_ENTRIES_MAX + 1))))
    refused(say.NEWEST.encode(incarnation._replace(ids=ids + b"i")))
    refused(say.NEWEST.encode(incarnation._replace(life_id=b"l" * 129)))
    refused(say.NEWEST.encode(asked._replace(kind="k" * 129)))
