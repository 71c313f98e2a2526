"""No message of another member takes long to read: at its largest, less than the loop may be held.

One row for each kind whose size is not fixed; a kind of message with a field that may grow, and
without a row, fails.
"""

from __future__ import annotations

import time

import pytest

from coordinator.config import RaftConfig
from coordinator.raft.network import messages as say
from coordinator.raft.replication import APPEND_ENTRIES_MAX
from tests.loop_meter import HELD_MS_MAX, fixed_work_speed

RAFT = RaftConfig()
ENTRY = b"e" * (RAFT.append_batch_bytes // APPEND_ENTRIES_MAX)
LARGE = b"p" * (RAFT.frame_bytes_max - 64 * 1024)
GROWS = frozenset({"bytes", "str", "Sequence[tuple[int, bytes]]"})
ROWS: dict[type, say.Message] = {
    say.Append: say.Append(5, 1, 7, 9, 5, [(5, ENTRY)] * APPEND_ENTRIES_MAX),
    say.SnapshotPiece: say.SnapshotPiece(
        5, 9, 2**40, b"s" * 32, 0, b"d" * RAFT.snapshot_piece_bytes
    ),
    say.Request: say.Request(1, "propose", LARGE),
    say.Reply: say.Reply(1, say.REPLY_OK, "", LARGE),
}
FIXED = frozenset(
    {
        say.Appended,
        say.Incarnation,
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
        for kind in say.kinds()
        if GROWS
        & {getattr(note, "__forward_arg__", note) for note in kind.__annotations__.values()}
    }
    assert growing - FIXED == set(ROWS)


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_no_message_takes_long_to_read(kind: type) -> None:
    """By the processor's clock, the least of some repetitions."""
    payload = say.encode(ROWS[kind])
    least_ms = float("inf")

    for _ in range(6):
        started = time.thread_time()
        assert type(say.decode(payload)) is kind
        least_ms = min(least_ms, (time.thread_time() - started) * 1_000 / fixed_work_speed())

    assert least_ms <= HELD_MS_MAX
