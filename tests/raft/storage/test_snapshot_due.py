"""When the next snapshot is due."""

from __future__ import annotations

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.storage.snapshot_due import SnapshotDue

RAFT = RaftConfig(snapshot_every_entries=100, snapshot_every_bytes=30_000)


@pytest.mark.parametrize(
    ("size", "entries", "applied", "is_due"),
    [
        (0, 99, 29_999, False),
        (0, 100, 0, True),
        (0, 1, 30_000, True),
        (30_000, 1, 30_000, True),
        (400_000, 1, 99_999, False),
        (400_000, 1, 100_000, True),
        (400_000, 390, 0, False),
        (400_000, 391, 0, True),  # of 256 bytes each
    ],
)
def test_by_entries_or_bytes_and_for_a_large_state_by_a_part_of_it(
    size: int, entries: int, applied: int, is_due: bool
) -> None:
    due = SnapshotDue(RAFT)
    due.note_begun()
    due.note_made(size)
    due.note_applied(applied)

    assert due.is_due(entries) is is_due


@pytest.mark.parametrize("size", [0, 400_000])
def test_one_that_found_no_room_stays_due(size: int) -> None:
    due = SnapshotDue(RAFT)
    due.note_made(size)
    due.note_applied(100_000)
    assert due.is_due(1)
    due.note_begun()
    assert not due.is_due(1)
    due.note_applied(1)
    due.note_given_up()
    assert due.is_due(1)


def test_it_is_late_by_small_entries_as_by_bytes() -> None:
    due = SnapshotDue(RAFT)
    due.note_applied(100_000)
    due.note_made(400_000)
    due.note_begun()
    for _ in range(390):
        due.note_applied(60)
    assert not due.is_late
    due.note_applied(60)
    assert due.is_late


@pytest.mark.parametrize(("head_start", "left"), [(0.0, 30_000), (1 / 3, 20_000), (2 / 3, 10_000)])
def test_a_head_start_counts_before_the_first_and_after_one_that_was_installed(
    head_start: float, left: int
) -> None:
    due = SnapshotDue(RAFT, head_start)
    for _ in range(2):
        due.note_applied(left - 1)
        assert not due.is_due(1)
        due.note_applied(1)
        assert due.is_due(1)
        due.note_restored(1_000)

    due.note_begun()
    due.note_applied(29_999)
    assert not due.is_due(1), "one after the other is a whole one apart"
