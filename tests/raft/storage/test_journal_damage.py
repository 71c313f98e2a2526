"""Damage to the files of the log: every flip, every cut, every zeroed sector, every missing file.

Rows 2 and 14 of the engine's list of defects. What a torn write explains is cut; everything else
refuses to start, and nothing is ever answered from damaged bytes.
"""

from __future__ import annotations

import random
import re
from contextlib import suppress
from pathlib import Path

import pysyncobj.journal as stock
import pytest

from coordinator.errors import StorageError
from coordinator.raft.storage import records, segments
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.records import BLOCK_BYTES, RecordKind, encode
from tests.amount import some
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

SEGMENT_BYTES = 9_000
Entry = tuple[bytes, int, int]


def open_journal(disk: SimulatedDisk, segment_bytes: int = SEGMENT_BYTES) -> Journal:
    return Journal("data", disk, segment_bytes=segment_bytes, draw_salt=lambda: 12345)


def small_log(*, is_closed: bool) -> tuple[SimulatedDisk, list[Entry]]:
    """Three segments; the last sync is known (the member was closed) or only done."""
    disk = SimulatedDisk()
    journal = open_journal(disk)
    journal.setCurrentTerm(3, "member-2")
    for index in range(1, 21):
        journal.add(b"x" * (index * 7 % 100), index, index // 8)
        if index % 3 == 0:
            journal.sync()
        if index == 10:
            journal.deleteEntriesFrom(8)
            journal.add(b"nine", 9, 2)
            journal.add(b"ten", 10, 2)
    journal.sync()
    entries = journal[:]
    if is_closed:
        journal._destroy()
    disk.kill()
    return disk, entries


def files(disk: SimulatedDisk, suffix: str = "") -> list[str]:
    names = disk.list_directory("data")
    return [f"data/{name}" for name in names if name.endswith(suffix) and name != "LOCK"]


def worth_a_look(data: bytes) -> list[int]:
    """Every offset, but of what only fills a block its ends and each 61st byte."""
    filling: set[int] = set()
    for found in re.finditer(rb"\xa5{200,}", data):
        filling.update(range(found.start() + 16, found.end() - 16))
    return [at for at in range(len(data)) if at not in filling or at % 61 == 0]


def opened(disk: SimulatedDisk) -> list[Entry] | StorageError:
    """What a member sees that starts on a copy of this disk."""
    copy = disk.copy()
    try:
        return open_journal(copy)[:]
    except StorageError as error:
        return error


@pytest.mark.histories
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_refuses_to_start(is_closed: bool, mask: int) -> None:
    """No byte of log or term file can change unnoticed, not even in the last record of a member
    that was killed right after its last sync."""
    disk, entries = small_log(is_closed=is_closed)
    assert opened(disk) == entries
    for path in [*files(disk, ".log"), "data/term"]:
        for offset in some(worth_a_look(disk.content(path))):
            disk.flip(path, offset, mask)
            found = opened(disk)
            assert isinstance(found, StorageError), f"{path} at {offset}: {found}"
            assert path in str(found)
            disk.flip(path, offset, mask)


def test_the_refusal_says_where_and_what() -> None:
    """An operator reads the file, the offset, what was expected and what was found."""
    disk, _ = small_log(is_closed=True)
    path = files(disk, ".log")[1]
    disk.flip(path, 100)

    error = opened(disk)

    assert isinstance(error, StorageError)
    assert error.path == path
    assert 40 <= error.offset <= 100
    assert "expected" in error.message
    assert "found" in error.message


def test_every_cut_of_the_last_segment_leaves_whole_entries_before_it() -> None:
    """A file that ends anywhere after its header, as a torn append leaves it, starts with the
    entries before; one that lost its header does not."""
    disk, entries = small_log(is_closed=False)
    path = files(disk, ".log")[-1]
    whole = disk.content(path)
    lengths = set()
    for size in worth_a_look(whole):
        disk.overwrite(path, whole[:size])
        found = opened(disk)
        if size < 40:
            assert isinstance(found, StorageError)
        else:
            assert isinstance(found, list), f"at {size}: {found}"
            assert entries[: len(found)] == found
            lengths.add(len(found))
    assert len(lengths) > 2


def test_every_cut_of_what_was_known_to_be_stable_refuses_to_start() -> None:
    """Once the watermark names them, bytes cannot go missing unnoticed."""
    disk, _ = small_log(is_closed=True)
    path = files(disk, ".log")[-1]
    whole = disk.content(path)
    for size in worth_a_look(whole):
        disk.overwrite(path, whole[:size])
        assert isinstance(opened(disk), StorageError), f"at {size}"


def test_every_cut_of_an_earlier_segment_refuses_to_start() -> None:
    """Only the last segment can have a torn tail."""
    disk, entries = small_log(is_closed=False)
    for path in files(disk, ".log")[:-1]:
        whole = disk.content(path)
        for size in worth_a_look(whole):
            disk.overwrite(path, whole[:size])
            found = opened(disk)
            assert isinstance(found, StorageError) or found == entries, f"{path} at {size}"
        disk.overwrite(path, whole)


def test_every_cut_of_the_term_file_refuses_to_start() -> None:
    """Row 2: a vote that cannot be read is not "no vote"."""
    disk, _ = small_log(is_closed=True)
    whole = disk.content("data/term")
    for size in range(len(whole)):
        disk.overwrite("data/term", whole[:size])
        assert isinstance(opened(disk), StorageError)


def test_stock_takes_an_unreadable_term_file_for_a_new_member(tmp_path: Path) -> None:
    """Row 2: the library starts again at term 0 with its vote free."""
    journal = stock.FileJournal(str(tmp_path / "journal"))
    journal.setCurrentTerm(7, "2")
    (tmp_path / "journal.meta").write_bytes(b"\x00garbage")

    again = stock.FileJournal(str(tmp_path / "journal"))

    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (0, None)


def test_stock_reads_a_flipped_bit_as_data(tmp_path: Path) -> None:
    """Row 14: the library has no checksum, so the command changes and nobody knows."""
    path = tmp_path / "journal"
    journal = stock.FileJournal(str(path))
    journal.add(b"pay 100", 1, 1)
    journal._destroy()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"pay 100", b"pay 900"))

    assert stock.FileJournal(str(path))[0][0] == b"pay 900"


def test_a_missing_file_refuses_to_start() -> None:
    """First, middle or last segment, or the term file: whichever is gone is named."""
    for is_closed in (True, False):
        disk, _ = small_log(is_closed=is_closed)
        last = files(disk, ".log")[-1]
        for path in [*files(disk, ".log"), "data/term"]:
            if path == last and not is_closed:
                continue  # the term file was written last when there was one segment
            copy = disk.copy()
            copy.remove(path)
            with pytest.raises(StorageError):
                open_journal(copy)


def test_a_segment_under_another_name_refuses_to_start() -> None:
    """Files that were exchanged, or copied from elsewhere, are not taken for the log."""
    disk, _ = small_log(is_closed=True)
    first, second, *_ = files(disk, ".log")
    one, two = disk.content(first), disk.content(second)
    disk.overwrite(first, two)
    disk.overwrite(second, one)

    assert isinstance(opened(disk), StorageError)


def test_an_old_term_file_beside_a_newer_log_refuses_to_start() -> None:
    """A term below that of an entry in the log cannot have been the last one stored."""
    disk, _ = small_log(is_closed=True)
    other = SimulatedDisk()
    open_journal(other).setCurrentTerm(1, None)
    disk.overwrite("data/term", other.content("data/term"))

    error = opened(disk)

    assert isinstance(error, StorageError)
    assert "old copy" in error.message


def test_a_lost_or_damaged_watermark_changes_nothing() -> None:
    """It is a hint: without it the log starts as it is."""
    disk, entries = small_log(is_closed=True)
    for offset in range(len(disk.content("data/synced"))):
        disk.flip("data/synced", offset)
        assert opened(disk) == entries
        disk.flip("data/synced", offset)
    disk.remove("data/synced")

    assert opened(disk) == entries


def batch_log(payloads: list[bytes]) -> tuple[SimulatedDisk, str, int]:
    """One synced entry, then a batch of which nobody knows whether it was synced."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 10_000_000)
    journal.add(b"first", 1, 0)
    journal.sync()
    (path,) = files(disk, ".log")
    start = len(disk.content(path))
    for index, payload in enumerate(payloads, 2):
        journal.add(payload, index, 0)
    journal.write()
    disk.kill()
    return disk, path, start


def test_zeros_after_the_log_are_cut() -> None:
    """A file that was extended but not written to ends where its records end."""
    disk, path, _ = batch_log([b"second"])
    whole = disk.content(path)
    for count in (1, 7, 8, 39, 40, 41, 512, 5000):
        disk.overwrite(path, whole + bytes(count))

        assert opened(disk) == [(b"first", 1, 0), (b"second", 2, 0)]


@pytest.mark.parametrize("payload", [b"y" * 1700, bytes(1700), bytes(600) + b"\x01" * 1100])
def test_a_batch_of_which_sectors_never_reached_the_disk_is_cut(payload: bytes) -> None:
    """Sectors reach a disk in any order: zeros in the middle, whole records after them. Also when
    the payload itself is zeros, which look like a sector never written."""
    disk, path, start = batch_log([payload, payload, payload])
    whole = disk.content(path)
    full = opened(disk)
    assert isinstance(full, list)
    assert [entry[0] for entry in full[1:]] == [payload] * 3
    end = start + sum(map(len, encode(RecordKind.ENTRY, 2, 0, payload, 12345))) * 3
    for sector in range(start // 512, end // 512 + 1):
        low, high = max(start, sector * 512), min(end, sector * 512 + 512)
        disk.overwrite(path, whole[:low] + bytes(high - low) + whole[high:])
        found = opened(disk)
        assert isinstance(found, list), found
        assert full[: len(found)] == found
        assert 1 <= len(found) < 4


@pytest.mark.parametrize("payload", [b"y" * 1700, bytes(1700), bytes(600) + b"\x01" * 1100])
def test_a_flipped_bit_in_a_batch_is_not_taken_for_a_torn_write(payload: bytes) -> None:
    """Every byte of it, also when the payload is zeros."""
    disk, path, start = batch_log([payload])
    length = sum(map(len, encode(RecordKind.ENTRY, 2, 0, payload, 12345)))
    for offset in range(start, start + length):
        disk.flip(path, offset, 0x10)
        assert isinstance(opened(disk), StorageError), offset
        disk.flip(path, offset, 0x10)


def test_zeroed_sectors_in_what_is_known_to_be_stable_refuse_to_start() -> None:
    """Row 17 of the test matrix: a later mark, or the watermark, tells them from a torn write."""
    disk = SimulatedDisk()
    journal = open_journal(disk, 10_000_000)
    for index in range(1, 60):
        journal.add(b"z" * 100, index, 0)
        journal.sync()
    journal.onOneSecondTimer()
    disk.kill()
    (path,) = files(disk, ".log")
    whole = disk.content(path)
    for low in range(0, len(whole), 512):
        disk.overwrite(path, whole[:low] + bytes(512) + whole[low + 512 :])
        assert isinstance(opened(disk), StorageError), low


def test_a_client_cannot_forge_a_record() -> None:
    """A command that looks like a record of the log is a command; after a torn write before it,
    it does not make the tail look synced."""
    forged = b"".join(records.encode(records.RecordKind.SYNCED, 1 << 40, 0, b"", 999))
    disk, path, start = batch_log([b"torn" * 300, forged * 50])
    whole = disk.content(path)
    sector = (start // 512 + 1) * 512
    disk.overwrite(path, whole[:sector] + bytes(512) + whole[sector + 512 :])

    assert opened(disk) == [(b"first", 1, 0)]


def test_a_payload_that_defeats_every_mask_is_kept() -> None:
    """Runs of every byte value: stored as it is, read back as it is."""
    payload = b"".join(bytes((value,)) * 512 for value in range(256))
    disk, _, _ = batch_log([payload])

    assert opened(disk) == [(b"first", 1, 0), (payload, 2, 0)]


def test_a_cut_tail_stays_cut() -> None:
    """What recovery cut is gone from the file before anything new is written."""
    disk, path, start = batch_log([b"torn" * 300])
    whole = disk.content(path)
    disk.overwrite(path, whole[: start + 900])
    journal = open_journal(disk)
    journal.add(b"other", 2, 0)
    journal.sync()
    disk.crash()

    assert open_journal(disk)[:] == [(b"first", 1, 0), (b"other", 2, 0)]


def test_unfinished_files_are_removed() -> None:
    """A segment or a term file that never got its name is not looked at."""
    disk, entries = small_log(is_closed=True)
    disk.create("data/0000000009-00000000000000000099.log.tmp")
    disk.create("data/term.tmp")

    assert open_journal(disk)[:] == entries
    assert not [name for name in disk.list_directory("data") if name.endswith(".tmp")]


def a_tail(chance: random.Random, record: bytes) -> bytes:
    """Return what a write that did not finish may leave behind, on whatever file system."""
    garbage = chance.randbytes(chance.choice((1, 8, 39, 40, 41, 100, 512, 513, 4_096, 20_000)))
    part = record[: chance.randrange(8, len(record), 8)]  # lacking a byte, it would be damaged
    zeros = bytes(chance.choice((8, 512, 4_096)))
    stale = b"".join(encode(RecordKind.ENTRY, 9, 9, chance.randbytes(700), chance.getrandbits(32)))
    kinds = (
        garbage, part, zeros, stale, part + garbage, zeros + garbage, garbage + zeros,
        part + stale, stale + garbage, part[:40] + garbage,
    )  # fmt: skip
    return chance.choice(kinds)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_follows_the_last_synced_record_is_cut(seed: int) -> None:
    """Zeros, a part of a record, bytes of another file: a power cut can leave all of these."""
    chance = random.Random(seed)
    payload = chance.randbytes(chance.choice((0, 3, 100, 600, 3_000)))
    disk, path, start = batch_log([payload])
    whole = disk.content(path)
    tail = a_tail(chance, b"".join(encode(RecordKind.ENTRY, 2, 0, payload, 12345)))
    disk.overwrite(path, whole[:start] + tail)

    assert opened(disk) == [(b"first", 1, 0)]


@pytest.mark.parametrize("seed", range(60))
def test_the_same_bytes_over_what_is_known_to_be_stable_refuse_to_start(seed: int) -> None:
    """A mark, or the watermark, says that it was there: it is damage."""
    chance = random.Random(seed)
    disk, path, start = batch_log([b"a", b"b" * 700])
    whole = disk.content(path)
    journal = open_journal(disk, 10_000_000)
    journal.add(b"later", journal.last_index + 1, 0)
    journal.sync()
    journal._destroy()
    disk.kill()
    rest = disk.content(path)[len(whole) :]
    tail = chance.randbytes(len(whole) - start)
    disk.overwrite(path, whole[:start] + tail + rest)

    found = opened(disk)

    assert isinstance(found, StorageError)
    assert "synced" in str(found)


def test_a_wrong_byte_of_a_large_record_is_found() -> None:
    """The checksum tells which single byte would make it right, however long the record is."""
    disk, path, start = batch_log([random.Random(0).randbytes(300_000)])
    for offset in (start + 4, start + 30, start + 41, start + 150_000, start + 300_030):
        copy = disk.copy()
        copy.flip(path, offset, 0x5A)
        assert isinstance(opened(copy), StorageError)


def former_log(payloads: list[bytes]) -> tuple[SimulatedDisk, str]:
    """A log as it was written before batches had blocks of their own: all synced, none known to
    be, the last one ending anywhere."""
    disk, path, _ = batch_log([])
    data = disk.content(path)[: segments.HEADER_BYTES]
    for index, payload in enumerate(payloads, 1):
        mark = encode(RecordKind.SYNCED, len(data), 0, b"", 12345) if index > 1 else ()
        data += b"".join((*mark, *encode(RecordKind.ENTRY, index, 0, payload, 12345)))
    disk.overwrite(path, data)
    disk.overwrite("data/synced", b"")
    return disk, path


def test_a_log_of_before_is_read_and_goes_on_in_a_block_of_its_own() -> None:
    """Its records end anywhere; what is added begins where nothing shares a block with them."""
    payloads = [b"a" * 30, b"b" * 5000, b"c"]
    disk, path = former_log(payloads)

    journal = open_journal(disk, 10_000_000)
    start = len(disk.content(path))
    journal.add(b"d", 4, 0)
    journal.sync()

    assert start % BLOCK_BYTES == 0
    assert disk.content(path)[start : start + 4] == records.MAGIC
    assert opened(disk) == [(each, i, 0) for i, each in enumerate([*payloads, b"d"], 1)]


@pytest.mark.parametrize("length", [0, 3, 400, 3_900, 4_000, 4_012, 4_020, 9_000])
def test_what_was_synced_outlives_a_power_cut_that_spoils_the_sector_after_it(length: int) -> None:
    """Systems write whole blocks, and a disk may spoil the sector that it is writing: whichever of
    the next write's blocks, and of their sectors, the entry that was synced before stays."""
    disk, path, start = batch_log([bytes(length), b"third"])
    whole = disk.content(path)
    chance = random.Random(length)
    first = start - start % BLOCK_BYTES
    for sector in range(first, len(whole), 512):
        spoilt = chance.randbytes(len(whole[sector : sector + 512]))
        disk.overwrite(path, whole[:sector] + spoilt + whole[sector + 512 :])
        found = opened(disk)
        assert isinstance(found, list), f"at {sector}: {found}"
        assert found[:1] == [(b"first", 1, 0)], f"at {sector}"


@pytest.mark.parametrize("is_former", [True, False])
def test_a_start_in_which_the_power_goes_loses_nothing_that_was_synced(is_former: bool) -> None:
    """It writes again what may not be stable, and fills the last block: also if that spoils a
    sector, at any step, and again at the next start, what was synced is there."""
    if is_former:
        disk, _ = former_log([b"a" * 30, b"b" * 5000, b"c" * 100])
    else:
        disk, path, _ = batch_log([b"a" * 30, b"b" * 5000])
        disk.overwrite("data/synced", b"")
        disk.overwrite(path, disk.content(path)[:-40])  # and a torn tail behind
    entries = opened(disk)
    assert isinstance(entries, list)
    for seed in range(60):
        disk.random.seed(seed)
        copy = disk.copy()
        copy.is_spoiling = True
        for _ in range(3):
            copy.crash_at_step = copy.step_count + copy.random.randint(1, 10)
            with suppress(SimulatedCrashError):
                open_journal(copy)
            copy.crash()

        assert open_journal(copy)[:] == entries, f"seed {seed}"


def test_a_start_without_room_goes_on_where_the_log_ends() -> None:
    """Neither the copy of the tail nor what fills a block is needed to go on."""
    disk, path = former_log([b"a" * 30, b"b" * 5000])
    size = len(disk.content(path))
    disk.capacity_bytes = 0
    disk.capacity_bytes = -disk.room_bytes() + 100

    journal = open_journal(disk)

    assert [entry[1] for entry in journal[:]] == [1, 2]
    assert len(disk.content(path)) == size
