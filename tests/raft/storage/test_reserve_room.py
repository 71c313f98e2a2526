"""The zeros behind the log where there is little room: they are the first to do without."""

from __future__ import annotations

import errno

import pytest

from coordinator.raft.storage.records import BLOCK_BYTES
from coordinator.raft.storage.reserve import SPARED_RESERVES
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.raft.storage.test_reserve import (
    RESERVE,
    SEGMENT_BYTES,
    append,
    indexes,
    open_journal,
    reserve,
    segment_files,
    with_reserve,
    zeros_behind,
)


def test_what_little_room_there_is_is_left_to_records() -> None:
    """And where it ends, the log waits for room as before, without a byte lost."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, 5)
    disk.fill(SPARED_RESERVES * RESERVE - 1)

    assert reserve(journal)

    assert zeros_behind(disk, segment_files(disk)[0]) == 0
    disk.fill(2 * BLOCK_BYTES)
    append(journal, 3)
    assert journal.is_full
    assert journal.durable_index == 7
    disk.capacity_bytes = None
    journal.sync()
    disk.crash()
    assert indexes(open_journal(disk)) == list(range(1, 9))


def test_a_full_disk_has_room_for_entries_where_zeros_are() -> None:
    """The zeros are used up, then the log waits; the part of a batch behind them is cut off."""
    disk, journal = with_reserve()
    disk.fill()

    append(journal, RESERVE // BLOCK_BYTES + 1)

    assert journal.is_full
    assert journal.durable_index == 5 + RESERVE // BLOCK_BYTES
    assert len(disk.content(segment_files(disk)[0])) == journal._size_bytes
    disk.crash()
    disk.capacity_bytes = None
    assert open_journal(disk).last_index == 5 + RESERVE // BLOCK_BYTES


def test_a_cut_without_room_leaves_the_log_in_its_file() -> None:
    """Some file systems need room to shorten a file. The log goes on behind its records."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, SEGMENT_BYTES // BLOCK_BYTES - 2)
    with_zeros = disk.open_append(segment_files(disk)[0])
    with_zeros.write(bytes(3 * BLOCK_BYTES))
    disk.fail("truncate", error=errno.ENOSPC)

    append(journal)

    assert not journal.failure
    assert len(segment_files(disk)) == 1
    append(journal)
    assert len(segment_files(disk)) == 2
    last = journal.last_index
    disk.crash()
    assert indexes(open_journal(disk)) == list(range(1, last + 1))


@pytest.mark.parametrize("is_known", [True, False])
def test_a_member_that_died_with_zeros_starts_without_room(is_known: bool) -> None:
    """They are cut off, which needs none; ``is_known``: the watermark names the end."""
    disk, journal = with_reserve()
    if is_known:
        journal.onOneSecondTimer()
    disk.kill()
    disk.fill()

    assert indexes(open_journal(disk)) == [1, 2, 3, 4, 5]
