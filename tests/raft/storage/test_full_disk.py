"""A full disk (row 12 of the faults): nothing stops, nothing is lost, nothing is said too early."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.errors import StorageError
from coordinator.raft.blocking import start_in_place
from coordinator.raft.network.messages import Message, VoteGrant
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.sync import LogSync
from tests.raft.storage.simulated_disk import SimulatedDisk


def a_journal(disk: SimulatedDisk, segment_bytes: int = 4_000) -> Journal:
    return Journal("data", disk, segment_bytes=segment_bytes, draw_salt=lambda: 7)


def a_journal_without_room(disk: SimulatedDisk, left_bytes: int) -> Journal:
    """Return one with an entry on a disk that was filled then, and a longer one to be written."""
    journal = a_journal(disk)
    journal.add(b"a", 1, 0)
    journal.sync()
    disk.fill(left_bytes)
    journal.add(bytes(1_000), 2, 0)
    return journal


def indexes(journal: Journal) -> list[int]:
    return [index for _, index, _ in journal[:]]


@pytest.mark.parametrize("left_bytes", [0, 1, 500, 999])
def test_what_finds_no_room_waits_and_is_written_when_there_is_some(left_bytes: int) -> None:
    """It is not stable meanwhile, not even in part; then it is, in its order."""
    disk = SimulatedDisk()
    journal = a_journal_without_room(disk, left_bytes)

    journal.sync()
    journal.add(b"c", 3, 0)
    journal.sync()

    assert journal.is_full
    assert journal.is_dirty
    assert journal.durable_index == 1
    assert indexes(journal) == [1, 2, 3]
    disk.capacity_bytes = None
    journal.sync()
    assert not journal.is_full
    assert not journal.is_dirty
    assert journal.durable_index == 3
    disk.crash()
    assert indexes(a_journal(disk)) == [1, 2, 3]


@pytest.mark.parametrize("left_bytes", [0, 1, 500, 999])
def test_a_member_that_dies_with_a_full_disk_has_what_was_synced(left_bytes: int) -> None:
    """What was written in part is not damage."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        a_journal_without_room(disk, left_bytes).sync()

        disk.crash()
        disk.capacity_bytes = None

        assert indexes(a_journal(disk)) == [1]


def test_a_cut_that_finds_no_room_counts_at_once() -> None:
    """Entries that were cut and replaced in memory are not told to be durable."""
    disk = SimulatedDisk()
    journal = a_journal(disk)
    for index in (1, 2, 3):
        journal.add(b"old", index, 0)
    journal.sync()
    disk.fill()

    journal.deleteEntriesFrom(1)
    journal.add(b"new", 2, 0)
    journal.sync()

    assert journal.durable_index == 1
    disk.capacity_bytes = None
    journal.sync()
    assert journal.durable_index == 2
    disk.crash()
    assert [command for command, _, _ in a_journal(disk)[:]] == [b"old", b"new"]


def test_a_term_that_finds_no_room_is_not_stable_and_holds_up_what_was_added_since() -> None:
    """No entry of a term reaches the disk before the term; with room both do. (Where the room that
    is kept for terms does not help; see ``test_term``.)"""
    disk = SimulatedDisk()
    disk.has_one_name_only = True
    journal = a_journal(disk)
    journal.add(b"a", 1, 0)
    journal.sync()
    disk.fill()

    journal.setCurrentTerm(3, "2")
    journal.add(b"b", 2, 3)
    journal.sync()

    assert journal.is_full
    assert not journal.is_term_stable
    assert journal.durable_index == 1
    disk.capacity_bytes = None
    journal.sync()
    assert journal.is_term_stable
    assert journal.durable_index == 2
    disk.crash()
    again = a_journal(disk)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (3, "2")
    assert indexes(again) == [1, 2]


def test_a_term_has_room_kept_for_it_and_what_waits_behind_it_goes_on_waiting() -> None:
    """The disk is as full as before: what does not fit is not stable, and the log says so."""
    disk = SimulatedDisk()
    journal = a_journal(disk)
    journal.add(b"a", 1, 0)
    journal.sync()
    disk.fill()
    journal.add(b"b", 2, 0)
    journal.sync()

    for term in range(3, 9):
        journal.setCurrentTerm(term, "2")
        journal.sync()

        assert journal.is_term_stable
        assert journal.is_full
        assert journal.is_dirty
        assert journal.durable_index == 1
    disk.crash()
    disk.capacity_bytes = None
    again = a_journal(disk)
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (8, "2")
    assert indexes(again) == [1]


def test_a_term_that_finds_no_room_is_not_tried_without_a_pause() -> None:
    """Off the loop as on it: nothing became durable, so nothing asks for the next pass at once."""

    async def scenario() -> None:
        disk = SimulatedDisk()
        disk.has_one_name_only = True
        journal = a_journal(disk)
        sent: list[Message] = []
        tries = 0

        async def off_the_loop(call: Callable[[], object]) -> Any:
            nonlocal tries
            tries += 1
            await asyncio.sleep(0)
            return call()

        log_sync = LogSync(
            journal,
            send=lambda _member_id, message: sent.append(message) is None,
            start_blocking=start_in_place,
            run_blocking=off_the_loop,
            run_reserving=off_the_loop,
            in_place_seconds_max=0.0,
            slow_seconds=0.2,
            on_durable=lambda: asyncio.get_running_loop().call_soon(log_sync.sync),
            on_failure=pytest.fail,
        )
        disk.fill()
        journal.setCurrentTerm(3, "2")
        log_sync.hold("2", VoteGrant(3))

        log_sync.sync()
        for _ in range(100):
            await asyncio.sleep(0)

        assert tries == 1
        assert not sent
        disk.capacity_bytes = None
        log_sync.sync()
        for _ in range(100):
            await asyncio.sleep(0)
        assert sent == [VoteGrant(3)]

    asyncio.run(scenario())


def test_a_segment_grows_on_where_there_is_no_room_for_another() -> None:
    """No descriptor of a file left (ENOSPC of a creation) while there is room in those there."""
    disk = SimulatedDisk()
    journal = a_journal(disk, segment_bytes=200)
    disk.fail("create", error=errno.ENOSPC, count=5, path_part=".log")

    for index in range(1, 21):
        journal.add(bytes(50), index, 0)
        journal.sync()

    assert journal.durable_index == 20
    assert not journal.is_full
    disk.crash()
    assert indexes(a_journal(disk)) == list(range(1, 21))


@pytest.mark.parametrize("operation", ["sync", "sync_directory"])
def test_a_sync_that_finds_no_room_is_a_failed_sync(operation: str) -> None:
    """The system may have dropped what it could not store: the log ends, as after any error."""
    disk = SimulatedDisk()
    journal = a_journal(disk)
    journal.setCurrentTerm(1, None)
    journal.add(b"a", 1, 1)
    disk.fail(operation, error=errno.ENOSPC)

    with pytest.raises(StorageError, match="made to fail"):
        journal.sync()

    with pytest.raises(StorageError, match="the log has stopped"):
        journal.sync()


def test_a_hint_that_finds_no_room_is_left_out() -> None:
    """How far the log is stable is noted beside it; without room it is not."""
    disk = SimulatedDisk()
    journal = a_journal(disk)
    journal.add(b"a", 1, 0)
    journal.sync()
    disk.fill()

    journal.onOneSecondTimer()

    assert journal.failure is None
