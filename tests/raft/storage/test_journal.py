"""The log as PySyncObj and the engine use it: order, durability, term and vote, failures."""

from __future__ import annotations

import errno
import inspect
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pysyncobj.journal as stock
import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.journal import Journal
from tests.raft.storage.simulated_disk import SimulatedDisk


def open_journal(disk: SimulatedDisk, segment_bytes: int = 4000) -> Journal:
    return Journal("data", disk, segment_bytes=segment_bytes)


def add(journal: Journal, *indexes: int) -> None:
    for index in indexes:
        journal.add(b"command %d" % index, index, journal.getCurrentTerm())


def indexes(journal: Journal) -> list[int]:
    return [index for _, index, _ in journal[:]]


def test_it_has_the_interface_that_pysyncobj_calls() -> None:
    """Every method of the library's Journal is here, with the same argument names."""
    for name, method in vars(stock.Journal).items():
        if inspect.isfunction(method) and name not in {"__getitem__", "__len__"}:  # a list's own
            ours = inspect.signature(getattr(Journal, name))
            assert list(ours.parameters) == list(inspect.signature(method).parameters), name


def test_it_answers_as_the_library_s_memory_journal_does() -> None:
    """Random adds, cuts, compactions and slices give the same entries."""
    generator = random.Random(3)
    ours, theirs = open_journal(SimulatedDisk(), 300), stock.MemoryJournal()
    index = 0
    for _ in range(2000):
        match generator.randint(0, 9):
            case 0 if len(theirs) > 2:
                position = generator.randint(1, len(theirs) + 1)
                ours.deleteEntriesFrom(position)
                theirs.deleteEntriesFrom(position)
                index = theirs[-1][1]
            case 1 if len(theirs) > 2:
                position = generator.randint(0, len(theirs) - 1)
                ours.deleteEntriesTo(position)
                theirs.deleteEntriesTo(position)
            case 2:
                ours.clear()
                theirs.clear()
            case 3:
                ours.sync()
            case _:
                index += 1
                ours.add(b"x" * index, index, 0)
                theirs.add(b"x" * index, index, 0)
        assert len(ours) == len(theirs)
        assert ours[:] == theirs[:]
        if len(theirs):
            assert (ours[0], ours[-1], ours[1:3]) == (theirs[0], theirs[-1], theirs[1:3])
        assert ours.bytes_in_memory == sum(len(entry[0]) for entry in ours[:])


def test_entries_are_stable_after_a_sync_and_only_then() -> None:
    """Row 1: what was synced survives a power cut; what was only added is not claimed."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    add(journal, 1, 2)
    assert (journal.durable_index, journal.is_dirty) == (0, True)
    journal.sync()
    add(journal, 3)
    assert (journal.durable_index, journal.last_index) == (2, 3)
    disk.crash()

    assert indexes(open_journal(disk)) == [1, 2]


def test_stock_never_syncs() -> None:
    """Row 1: the library's journal makes no call that would make an entry stable."""
    source = inspect.getsource(stock)

    assert "fsync" not in source
    assert "fdatasync" not in source


def test_after_a_failure_of_another_file_nothing_is_written() -> None:
    """What failed in another thread: the log refuses before the loop has heard of it."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.add(b"a", 1, 0)
    journal.fail(StorageError("rename snapshot: Input/output error"))

    for act in (journal.sync, journal.write, lambda: journal.add(b"b", 2, 0)):
        with pytest.raises(StorageError, match="the log has stopped: rename snapshot"):
            act()
    disk.crash()
    assert indexes(open_journal(disk)) == []


def test_everything_buffered_is_one_write_and_one_sync() -> None:
    """Group commit: a hundred entries cost what one costs."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 100_000)
    writes, syncs = disk.write_count, disk.sync_count
    add(journal, *range(1, 101))

    journal.sync()
    journal.sync()

    assert (disk.write_count - writes, disk.sync_count - syncs) == (1, 1)


def test_a_sync_counts_only_what_was_written_before_it_began() -> None:
    """Entries added and written while a sync is under way need another one."""
    journal = open_journal(SimulatedDisk())
    add(journal, 1, 2)
    token = journal.begin_sync()
    assert token is not None
    add(journal, 3)
    journal.write()
    token()

    journal.end_sync(token)

    assert (journal.durable_index, journal.is_dirty) == (2, True)
    journal.sync()
    assert (journal.durable_index, journal.is_dirty) == (3, False)
    assert journal.begin_sync() is None


def test_a_suffix_cut_while_a_sync_is_under_way_is_not_stable() -> None:
    """What was cut and replaced meanwhile waits for its own sync."""
    journal = open_journal(SimulatedDisk())
    add(journal, 1, 2, 3, 4)
    token = journal.begin_sync()
    assert token is not None
    journal.deleteEntriesFrom(2)
    add(journal, 3, 4, 5)
    token()

    journal.end_sync(token)

    assert journal.durable_index == 2
    journal.sync()
    assert journal.durable_index == 5


def test_a_sync_that_begins_a_segment_holds_the_writes_back() -> None:
    """Entries added meanwhile go to the new segment, which follows the old one without a gap."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 8_193)
    journal.add(bytes(4_096), 1, 0)
    add(journal, 2, 3)
    token = journal.begin_sync()
    assert token is not None
    assert token.is_rolling
    add(journal, 4)
    writes = disk.write_count
    journal.write()
    assert disk.write_count == writes
    token()
    journal.end_sync(token)
    assert (journal.durable_index, journal.is_dirty) == (3, True)
    journal.sync()
    disk.crash()

    assert indexes(open_journal(disk)) == [1, 2, 3, 4]
    assert len([name for name in disk.list_directory("data") if name.endswith(".log")]) == 2


def test_compaction_removes_the_files_that_nothing_needs() -> None:
    """Whole segments before the first kept entry go with the next sync; memory holds the kept
    entries only."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 300)
    for index in range(1, 101):
        add(journal, index)
        journal.sync()
    files = len(disk.list_directory("data"))

    journal.deleteEntriesTo(90)
    journal.sync()

    assert indexes(journal) == list(range(91, 101))
    assert journal._term.first_sequence > 1
    assert len(disk.list_directory("data")) < files / 4
    disk.crash()
    again = open_journal(disk, 300)
    assert again[0][1] <= 91
    assert again.last_index == 100


def test_a_log_begun_anew_forgets_the_old_one() -> None:
    """After a snapshot was installed only its entries are there, and the old files are gone."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 300)
    for index in range(1, 51):
        add(journal, index)
        journal.sync()
    journal.clear()
    add(journal, 1000, 1001)
    assert journal.durable_index == 0
    journal.sync()
    assert journal.durable_index == 1001
    disk.crash()

    again = open_journal(disk, 300)

    assert indexes(again) == [1000, 1001]
    assert len([name for name in disk.list_directory("data") if name.endswith(".log")]) <= 2


def test_the_log_goes_on_beyond_any_one_file() -> None:
    """Row 15: offsets are counted within a segment, so nothing ends at 4 GiB."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 20_000)
    for index in range(1, 301):
        journal.add(bytes(400), index, 0)
        journal.sync()

    sizes = [len(disk.content(f"data/{name}")) for name in disk.list_directory("data")]

    assert max(sizes) < 25_000
    assert len(open_after_kill(disk, 1000)) == 300


def test_stock_ends_at_four_gibibytes(tmp_path: Path) -> None:
    """Row 15: the library's offset has 32 bits; the entry is in memory when that fails."""
    journal = stock.FileJournal(str(tmp_path / "journal"))
    journal._FileJournal__journalFile.write = lambda offset, values: None
    journal._FileJournal__currentOffset = 2**32 - 4

    with pytest.raises(struct.error):
        journal.add(b"x", 1, 0)

    assert len(journal) == 1


def open_after_kill(disk: SimulatedDisk, segment_bytes: int = 4000) -> Journal:
    disk.kill()
    return open_journal(disk, segment_bytes)


def test_a_persisted_commit_index_never_comes_back() -> None:
    """Row 13: it is 1 after each start, so nothing beyond the log is taken for committed."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.setRaftCommitIndex(1000)
    journal.onOneSecondTimer()

    assert journal.getRaftCommitIndex() == 1
    assert open_after_kill(disk).getRaftCommitIndex() == 1


def test_stock_brings_back_a_commit_index_beyond_its_log(tmp_path: Path) -> None:
    """Row 13: the library stores it without the entries."""
    journal = stock.FileJournal(str(tmp_path / "journal"))
    journal.setRaftCommitIndex(1000)
    journal.onOneSecondTimer()

    again = stock.FileJournal(str(tmp_path / "journal"))

    assert again.getRaftCommitIndex() == 1000 > len(again)


def test_term_and_vote_are_stable_after_the_next_sync() -> None:
    """They survive a power cut the moment it returned; the same again costs no sync."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (0, None)
    for term, vote in [(1, None), (1, "2"), (2, None), (7, "é")]:
        journal.setCurrentTerm(term, vote)
        assert not journal.is_term_stable
        journal.sync()
        assert journal.is_term_stable
        disk.crash()
        journal = open_journal(disk)
        assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == (term, vote)
    syncs = disk.sync_count
    journal.setCurrentTerm(7, "é")
    journal.sync()
    assert disk.sync_count == syncs
    assert journal._term.first_sequence == 1


def test_entries_are_not_written_before_the_term_in_which_they_were_added() -> None:
    """A member that dies in between has neither; a log of a later term would be refused."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(3, "2")
    journal.add(b"of term 3", 1, 3)

    assert journal.begin_sync() is not None
    disk.kill()

    again = open_journal(disk)
    assert (again.getCurrentTerm(), indexes(again)) == (0, [])


@pytest.mark.parametrize(("term", "vote"), [(6, None), (6, "2"), (7, "3"), (7, None)])
def test_a_second_vote_in_a_term_stops_the_log(term: int, vote: str | None) -> None:
    """Terms never fall and a vote given is never changed, whatever the caller believes."""
    journal = open_journal(SimulatedDisk())
    journal.setCurrentTerm(7, "2")

    with pytest.raises(StorageError, match="term 7 with a vote for '2'"):
        journal.setCurrentTerm(term, vote)

    with pytest.raises(StorageError, match="the log has stopped"):
        add(journal, 1)


def test_an_entry_out_of_order_stops_the_log() -> None:
    """A gap, or a term not stored, would make a log that cannot be read back."""
    for index, term in [(3, 0), (1, 0), (2, 1)]:
        journal = open_journal(SimulatedDisk())
        add(journal, 1)
        with pytest.raises(StorageError):
            journal.add(b"x", index, term)
        assert journal.failure is not None
        assert len(journal) == 1


def refuses_everything(journal: Journal) -> None:
    calls: list[Callable[[], object]] = [
        lambda: journal.add(b"x", journal.last_index + 1, 0),
        journal.clear,
        journal.write,
        journal.sync,
        journal.begin_sync,
        lambda: journal.deleteEntriesFrom(0),
        lambda: journal.deleteEntriesTo(0),
        lambda: journal.setCurrentTerm(100, None),
    ]
    for call in calls:
        with pytest.raises(StorageError):
            call()


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_ends_the_log(operation: str) -> None:
    """Nothing is acknowledged or tried again after it; what was synced before is there."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        journal = open_journal(disk)
        add(journal, 1, 2)
        journal.sync()
        add(journal, 3, 4)
        disk.fail(operation)
        with pytest.raises(StorageError):
            journal.sync()
        syncs, writes = disk.sync_count, disk.write_count

        refuses_everything(journal)
        journal.onOneSecondTimer()

        assert (disk.sync_count, disk.write_count) == (syncs, writes)
        assert journal.durable_index == 2
        journal._destroy()
        disk.crash()
        assert indexes(open_journal(disk))[:2] == [1, 2]


def test_a_failed_sync_in_a_thread_ends_the_log_even_if_nobody_asks() -> None:
    """The token itself stops the journal; its end cannot be taken note of."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    add(journal, 1)
    token = journal.begin_sync()
    assert token is not None
    disk.fail("sync")
    with pytest.raises(StorageError):
        token()

    with pytest.raises(StorageError):
        journal.end_sync(token)

    refuses_everything(journal)
    assert journal.durable_index == 0


def test_what_a_failed_sync_left_in_the_cache_is_written_again() -> None:
    """After a restart such an entry can be read but is not on the disk: it is made stable before
    it counts, or a later power cut would take it although it was acknowledged."""
    for seed in range(20):
        disk = SimulatedDisk(seed)
        journal = open_journal(disk)
        add(journal, 1)
        journal.sync()
        add(journal, 2, 3)
        disk.fail("sync")
        with pytest.raises(StorageError):
            journal.sync()
        again = open_after_kill(disk)
        assert again.durable_index == 3

        disk.crash()

        assert indexes(open_journal(disk)) == [1, 2, 3]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_vote_that_could_not_be_stored_ends_the_log(operation: str) -> None:
    """The caller is told, the vote is not given, and the old or the new one is there after."""
    for seed in range(10):
        disk = SimulatedDisk(seed)
        journal = open_journal(disk)
        journal.setCurrentTerm(1, "1")
        journal.sync()
        journal.setCurrentTerm(2, "2")
        disk.fail(operation)
        with pytest.raises(StorageError):
            journal.sync()

        refuses_everything(journal)

        assert not journal.is_term_stable
        journal._destroy()
        disk.crash()
        again = open_journal(disk)
        assert (again.getCurrentTerm(), again.getVotedForNodeId()) in {(1, "1"), (2, "2")}


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_segment_that_could_not_be_begun_ends_the_log(operation: str) -> None:
    """Everything synced before is there after, and the log can be opened."""
    for skip in (0, 1):
        disk = SimulatedDisk(skip)
        journal = open_journal(disk, 200)
        add(journal, 1)
        journal.sync()
        add(journal, *range(2, 20))
        disk.fail(operation, skip=skip if operation in {"write", "sync"} else 0)
        with pytest.raises(StorageError):
            journal.sync()
        refuses_everything(journal)
        journal._destroy()
        disk.crash()

        assert indexes(open_journal(disk, 200))[:1] == [1]


def test_a_full_disk_is_told_apart_on_the_real_one() -> None:
    """The system's own refusal becomes the same error."""
    file = OsDisk().open_append("/dev/full")

    with pytest.raises(DiskFullError):
        file.write(b"x")

    file.close()


def test_an_error_of_another_kind_is_not_a_full_disk() -> None:
    """Only the errors that mean no room are DiskFullError."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    add(journal, 1)
    disk.fail("write", error=errno.EROFS)

    with pytest.raises(StorageError) as caught:
        journal.sync()

    assert not isinstance(caught.value, DiskFullError)
    assert caught.value.operation == "write"


def test_a_directory_has_one_user(tmp_path: Path) -> None:
    """A second member started on the same directory is refused, until the first is gone."""
    directory = str(tmp_path / "raft")
    journal = Journal(directory, OsDisk())
    with pytest.raises(StorageError, match="another process uses this directory"):
        Journal(directory, OsDisk())

    journal._destroy()

    Journal(directory, OsDisk())._destroy()


def test_a_closed_log_refuses() -> None:
    """After the member stopped nothing reaches the file."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    add(journal, 1)
    journal.sync()

    journal._destroy()

    refuses_everything(journal)
    assert indexes(open_journal(disk)) == [1]
