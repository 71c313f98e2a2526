"""The zeros behind the log's records: whatever happens to them, the log is the same.

They are the one thing that is written without being told to a client, and by another thread; so
they must never come over a record, never hide one, and never stop a member.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import StorageError
from coordinator.raft.blocking import run_in_thread, start_in_place
from coordinator.raft.storage.disk import DiskFile, OsDisk, OsFile
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.records import BLOCK_BYTES
from coordinator.raft.storage.reserve import (
    PIECES,
    RESERVE_BYTES,
    SHORT_BATCH_BYTES,
    Reservation,
)
from coordinator.raft.storage.sync import LogSync
from tests.amount import drawn
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

SEGMENT_BYTES = 16 * 8 * BLOCK_BYTES
RESERVE = 8 * BLOCK_BYTES
"""What is reserved of a segment of this size at once."""


def open_journal(disk: SimulatedDisk, segment_bytes: int = SEGMENT_BYTES) -> Journal:
    return Journal("data", disk, segment_bytes=segment_bytes, draw_salt=lambda: 12345)


def append(journal: Journal, count: int = 1, *, length: int = 20) -> None:
    for _ in range(count):
        index = journal.last_index + 1
        journal.add(index.to_bytes(4, "big") * (length // 4), index, 0)
        journal.sync()


def reserve(journal: Journal) -> bool:
    """Write what is due; return whether anything was."""
    reservation = journal.begin_reserving()
    if reservation is None:
        return False
    reservation()
    journal.end_reserving()
    return True


def indexes(journal: Journal) -> list[int]:
    return [index for _, index, _ in journal[:]]


def segment_files(disk: SimulatedDisk) -> list[str]:
    return [f"data/{name}" for name in disk.list_directory("data") if name.endswith(".log")]


def zeros_behind(disk: SimulatedDisk, path: str) -> int:
    data = disk.content(path)
    return len(data) - len(data.rstrip(b"\0"))


def with_reserve() -> tuple[SimulatedDisk, Journal]:
    """A log with some entries, and zeros behind them."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, 5)
    assert reserve(journal)
    return disk, journal


def test_the_log_is_written_over_its_zeros() -> None:
    """The file does not grow with each entry, and every entry is there after a power cut."""
    disk, journal = with_reserve()
    (path,) = segment_files(disk)
    size = len(disk.content(path))
    assert zeros_behind(disk, path) == RESERVE

    append(journal, 3)

    assert len(disk.content(path)) == size
    assert zeros_behind(disk, path) == RESERVE - 3 * BLOCK_BYTES
    disk.crash()
    assert indexes(open_journal(disk)) == list(range(1, 9))


def test_there_are_more_before_the_last_are_used_and_none_beyond_the_segment() -> None:
    """So no sync waits for them, and no file is larger than it would be."""
    disk, journal = with_reserve()
    path, left = segment_files(disk)[0], []
    while len(segment_files(disk)) == 1:
        append(journal)
        left.append(zeros_behind(disk, path))
        reserve(journal)
        assert len(disk.content(path)) <= SEGMENT_BYTES

    assert min(left[: -RESERVE // BLOCK_BYTES]) >= RESERVE // 2 - BLOCK_BYTES
    assert zeros_behind(disk, path) == 0


def test_a_member_that_writes_next_to_nothing_has_none() -> None:
    """Sixteen lone writes, or fewer, are not worth a megabyte; nor are idle members."""
    disk = SimulatedDisk()
    journal = Journal("data", disk)
    append(journal, RESERVE_BYTES // 16 // BLOCK_BYTES - 1)
    assert not reserve(journal)

    append(journal)

    assert reserve(journal)
    assert zeros_behind(disk, segment_files(disk)[0]) == RESERVE_BYTES


def test_long_batches_gain_nothing_and_have_none() -> None:
    """What is written for each of them would only double."""
    disk = SimulatedDisk()
    journal = open_journal(disk)

    append(journal, 3, length=SHORT_BATCH_BYTES)

    assert not reserve(journal)


def end(disk: SimulatedDisk, *, is_power_cut: bool) -> None:
    disk.crash() if is_power_cut else disk.kill()


def check_whole_and_going_on(disk: SimulatedDisk, least: int) -> None:
    """Every synced entry is there, once; so it is after more of everything and two power cuts."""
    for _ in range(2):
        journal = open_journal(disk)
        assert journal.last_index >= least
        assert indexes(journal) == list(range(1, journal.last_index + 1))
        assert all(command[:4] == index.to_bytes(4, "big") for command, index, _ in journal[:])
        append(journal, 3)
        reserve(journal)
        append(journal, 3)
        least = journal.last_index
        disk.crash()
    assert indexes(open_journal(disk)) == list(range(1, least + 1))


def dying(step: int, seed: int, deed: Callable[[Journal], None], *, entries: int) -> SimulatedDisk:
    """Return the disk on which the deed was done up to this step, and then the machine died."""
    disk = SimulatedDisk(seed, is_orderly=bool(seed % 3))
    disk.is_spoiling = bool(seed % 2)
    journal = open_journal(disk)
    append(journal, entries)
    disk.crash_at_step = disk.step_count + step
    with suppress(SimulatedCrashError):
        deed(journal)
    disk.crash_at_step = None
    return disk


@pytest.mark.parametrize("is_power_cut", [True, False])
def test_death_at_every_step_of_writing_zeros_loses_nothing(is_power_cut: bool) -> None:
    """Before, between and behind their pieces, with a batch that is written at the same time."""

    def deed(journal: Journal) -> None:
        reservation = journal.begin_reserving()
        assert reservation is not None
        journal.add((6).to_bytes(4, "big"), 6, 0)
        journal.write()
        reservation()
        journal.end_reserving()

    for step in range(1, 2 * PIECES + 3):
        for seed in range(12):
            disk = dying(step, seed, deed, entries=5)
            end(disk, is_power_cut=is_power_cut)
            check_whole_and_going_on(disk, 5)


@pytest.mark.histories
@pytest.mark.parametrize("is_power_cut", [True, False])
def test_death_at_every_step_into_the_next_file_loses_nothing(is_power_cut: bool) -> None:
    """The zeros are cut off, and that is stable, before the next file has its name."""
    until_full = SEGMENT_BYTES // BLOCK_BYTES - 2

    def deed(journal: Journal) -> None:
        journal._reserve._due_at_bytes = 0
        journal._reserve._segment_bytes += RESERVE  # zeros beyond what a segment has
        assert reserve(journal)
        append(journal, 2)

    before = SimulatedDisk()
    journal = open_journal(before)
    append(journal, until_full)
    steps = before.step_count
    deed(journal)
    steps = before.step_count - steps
    assert [zeros_behind(before, path) for path in segment_files(before)] == [0, 0]
    for step in range(1, steps + 2):
        for seed in range(drawn(6)):
            disk = dying(step, seed, deed, entries=until_full)
            end(disk, is_power_cut=is_power_cut)
            check_whole_and_going_on(disk, until_full)


def test_no_file_is_begun_while_zeros_are_written() -> None:
    """They would come to the end of a file that is not the last one any more."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, SEGMENT_BYTES // BLOCK_BYTES - 3)
    reservation = journal.begin_reserving()
    assert reservation is not None

    append(journal, 4)
    assert len(segment_files(disk)) == 1
    reservation()
    journal.end_reserving()
    append(journal)

    assert len(segment_files(disk)) == 2
    assert [zeros_behind(disk, path) for path in segment_files(disk)] == [0, 0]


def test_none_are_begun_while_the_next_file_is() -> None:
    """The sync that begins it is under way; the zeros would come behind its cut."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, SEGMENT_BYTES // BLOCK_BYTES - 2)
    journal.add(b"", journal.last_index + 1, 0)
    token = journal.begin_sync()
    assert token is not None
    assert token.is_rolling

    assert journal.begin_reserving() is None

    token()
    journal.end_sync(token)
    assert len(segment_files(disk)) == 2


@pytest.mark.parametrize("operation", ["open", "write"])
@pytest.mark.parametrize("skip", [0, 1, 5])
def test_no_room_for_zeros_stops_nothing(operation: str, skip: int) -> None:
    """The log grows as if there were none; it is not called full, and does not ask again soon."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, 5)
    reservation = journal.begin_reserving()
    assert reservation is not None
    disk.fail(operation, error=errno.ENOSPC, skip=skip if operation == "write" else 0)

    reservation()
    journal.end_reserving()

    assert not journal.is_full
    assert not reserve(journal)
    append(journal, 20)
    disk.crash()
    assert indexes(open_journal(disk)) == list(range(1, 26))


def test_a_log_that_was_closed_has_none_and_is_opened_without_a_write() -> None:
    """It is whole up to its end, as its watermark says."""
    disk, journal = with_reserve()
    journal._destroy()
    assert zeros_behind(disk, segment_files(disk)[0]) == 0
    disk.kill()
    before = disk.content(segment_files(disk)[0])

    again = open_journal(disk)

    assert indexes(again) == [1, 2, 3, 4, 5]
    assert disk.content(segment_files(disk)[0]) == before


def test_a_log_whose_zeros_cannot_be_cut_is_closed_all_the_same() -> None:
    """The next start cuts them."""
    disk, journal = with_reserve()
    disk.fail("truncate")

    journal._destroy()

    assert indexes(open_journal(disk)) == [1, 2, 3, 4, 5]


def test_zeros_over_what_is_known_to_be_stable_are_damage() -> None:
    """A record that is gone is not the end of the log, though zeros are what follows it."""
    for first_block, blocks in ((2, 1), (3, 2), (5, 1), (3, 100)):
        disk, journal = with_reserve()
        journal.onOneSecondTimer()
        disk.kill()
        (path,) = segment_files(disk)
        data = disk.content(path)
        start, until = first_block * BLOCK_BYTES, (first_block + blocks) * BLOCK_BYTES
        zeroed = data[:start] + bytes(len(data[start:until])) + data[until:]
        disk.overwrite(path, zeroed)

        with pytest.raises(StorageError, match=f"damaged at offset {start}"):
            open_journal(disk)


def test_zeros_before_a_later_mark_are_damage_without_the_watermark() -> None:
    """Each batch says how far the ones before it are stable."""
    disk, journal = with_reserve()
    append(journal)
    disk.kill()
    (path,) = segment_files(disk)
    data = disk.content(path)
    for block in range(1, 6):
        start = block * BLOCK_BYTES
        disk.overwrite(path, data[:start] + bytes(BLOCK_BYTES) + data[start + BLOCK_BYTES :])

        with pytest.raises(StorageError, match=f"damaged at offset {start}"):
            open_journal(disk)


def test_a_byte_that_fell_among_the_zeros_is_cut_with_them() -> None:
    """It is behind the end, and says nothing of the records."""
    disk, journal = with_reserve()
    end_bytes = journal._size_bytes
    disk.kill()
    (path,) = segment_files(disk)
    for place in (0, 3, 7, 39, 40, 511, 512, RESERVE - 1):
        for mask in (0x01, 0x80, 0xFF):
            one = disk.copy()
            one.flip(path, end_bytes + place, mask)

            assert indexes(open_journal(one)) == [1, 2, 3, 4, 5]
            assert len(one.content(path)) == end_bytes


class UnsyncedFile(OsFile):
    def sync(self) -> None:
        """Nothing: what is looked at is in which order the system writes."""


class UnsyncedDisk(OsDisk):
    def open_append(self, path: str) -> DiskFile:
        return UnsyncedFile(path, os.O_RDWR | os.O_APPEND)


def test_records_and_zeros_of_two_threads_do_not_meet(tmp_path: Path) -> None:
    """On the real disk: while zeros are appended, the log writes on past the end of the file."""
    directory, disk, reserve_bytes = str(tmp_path / "log"), UnsyncedDisk(), 8_192
    journal = Journal(directory, disk, segment_bytes=1 << 30)
    path, is_over = journal._segments[-1].path, threading.Event()
    failures: list[BaseException] = []

    def write_zeros() -> None:
        try:
            while not is_over.is_set():
                end_bytes = journal._size_bytes + reserve_bytes
                Reservation(disk, directory, path, reserve_bytes, end_bytes, lambda: True)()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write_zeros)
    thread.start()
    try:
        for index in range(1, 1_001):
            journal.add(index.to_bytes(4, "big") * (index * 37 % 6_000), index, 0)
            journal.write()
            if index % 4 == 0:
                time.sleep(0)  # lets the other thread run
    finally:
        is_over.set()
        thread.join()
    written = journal[:]
    journal.failure = StorageError("as if it was killed")
    journal._destroy()

    assert not failures
    assert Journal(directory, disk, segment_bytes=1 << 30)[:] == written


class Syncing:
    """A log and its syncs, as an engine has them; its zeros wait for the test."""

    def __init__(self, disk: SimulatedDisk, run_reserving: Any = None) -> None:
        self.log = open_journal(disk)
        self.failures: list[BaseException] = []
        self.gate = asyncio.Event()
        self.log_sync = LogSync(
            self.log,
            send=lambda _member_id, _message: True,
            start_blocking=start_in_place,
            run_blocking=None,
            run_reserving=run_reserving or self.run_reserving,
            in_place_seconds_max=0.005,
            slow_seconds=0.2,
            on_durable=lambda: None,
            on_failure=self.failures.append,
        )

    async def run_reserving(self, call: Callable[[], Any], /) -> Any:
        await self.gate.wait()
        return call()

    def write(self, count: int) -> None:
        for _ in range(count):
            self.log.add(b"", self.log.last_index + 1, 0)
            self.log_sync.sync()


def test_syncs_go_on_while_zeros_are_written_and_the_end_waits_for_them() -> None:
    """Nothing waits for zeros but what closes the file."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        syncing = Syncing(disk)
        syncing.write(4)
        await asyncio.sleep(0)
        syncing.write(8)
        assert syncing.log.durable_index == 12
        assert zeros_behind(disk, segment_files(disk)[0]) == 0

        stopping = asyncio.ensure_future(syncing.log_sync.stop())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not stopping.done()
        syncing.gate.set()
        await stopping
        syncing.log._destroy()

        assert not syncing.failures
        assert zeros_behind(disk, segment_files(disk)[0]) == 0

    asyncio.run(scenario())


def test_none_are_written_once_the_log_has_failed() -> None:
    """Nothing more is written to that disk: what a later write or sync says may be wrong."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    append(journal, 5)
    size = len(disk.content(segment_files(disk)[0]))
    reservation = journal.begin_reserving()
    assert reservation is not None

    journal.fail(StorageError("another file of this disk"))
    reservation()

    assert len(disk.content(segment_files(disk)[0])) == size


def test_a_disk_that_fails_under_zeros_stops_the_member() -> None:
    """It may have failed under records as well."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        syncing = Syncing(disk, run_in_thread)
        syncing.write(3)
        disk.fail("sync", error=errno.EIO)
        await syncing.log_sync.stop()

        assert [str(each) for each in syncing.failures] == [
            f"sync {segment_files(disk)[0]}: made to fail"
        ]

    asyncio.run(scenario())
