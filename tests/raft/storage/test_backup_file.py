"""The backup file: what was sent is read back, and nothing that was cut or changed."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.errors import StorageError, UnavailableError
from coordinator.raft.backup import HeldBackup, entries_behind, replay
from coordinator.raft.engine import BackupFacts
from coordinator.raft.entries import NO_OP, REGULAR
from coordinator.raft.rejoin.refounding import Position
from coordinator.raft.storage.backup_file import (
    ENTRY_BYTES_MAX,
    HEADER_BYTES_MAX,
    BackupFile,
    encode_entry,
)
from coordinator.raft.storage.disk import write_file
from coordinator.raft.storage.segments import Entry
from coordinator.raft.storage.snapshot_store import SnapshotReader, SnapshotStore
from tests.raft.simulated_cluster import ListReplica
from tests.raft.storage.simulated_disk import SimulatedDisk

FACTS = BackupFacts(
    backup_id="0a1b",
    cluster="prod",
    release="1.2.3",
    level=1,
    time="2026-11-29T21:30:00.000+00:00",
    zxid=7,
)


def group_of(command: bytes) -> bytes:
    packed: bytes = msgpack.packb([command])
    return REGULAR + packed


def entries(first: int, last: int, term: int = 3) -> list[Entry]:
    return [(group_of(b"c%d" % index), index, term) for index in range(first, last + 1)]


def snapshot(disk: SimulatedDisk, replica: ListReplica, index: int) -> SnapshotReader:
    store = SnapshotStore("snapshots", disk, piece_bytes=100)
    writer = store.begin_write((NO_OP, index, 2), (NO_OP, index - 1, 2))
    for piece in replica.snapshot():
        writer.write(piece)
    return store.open(writer.finish())


def held(reader: SnapshotReader | None, found: Sequence[Entry]) -> HeldBackup:
    backup = HeldBackup(reader, found, FACTS, "2", "ab" * 16)
    for _ in backup.prepare():
        pass
    return backup


def bytes_of(backup: HeldBackup, length: int = 1_000) -> bytes:
    whole = b""
    while piece := backup.read(len(whole), length):
        whole += piece
    return whole


def whole() -> bytes:
    """Return a backup of a snapshot after entry 4 and the entries 5 to 9."""
    replica = ListReplica()
    for index in range(1, 5):
        replica.apply(index, 2, b"c%d" % index)
    return bytes_of(held(snapshot(SimulatedDisk(1), replica, 4), entries(5, 9)))


def opened(data: bytes) -> BackupFile:
    disk = SimulatedDisk(2)
    disk.make_directory("backups")
    write_file(disk, "backups/prod", data)
    return BackupFile(disk, "backups/prod")


def check(data: bytes) -> None:
    file = opened(data)
    try:
        file.check()
    finally:
        file.close()


def test_what_is_read_back_is_the_state_at_its_last_entry() -> None:
    """The snapshot and every entry behind it, once and in order."""
    file = opened(whole())
    file.check()
    replica = ListReplica()

    at = replay(file, replica)

    assert at == Position(9, 3)
    assert replica.commands == [b"c%d" % index for index in range(1, 10)]
    assert "cluster 'prod'" in file.header.in_words()
    assert (file.header.zxid, file.header.last_index, file.header.entries) == (7, 9, 5)


def test_without_a_snapshot_all_entries_are_there() -> None:
    """A young member has made none."""
    log = [(NO_OP, 1, 0), *entries(2, 5)]
    file = opened(bytes_of(held(None, entries_behind(None, log, 4))))
    file.check()
    replica = ListReplica()

    assert replay(file, replica) == Position(4, 3)
    assert replica.commands == [b"c2", b"c3", b"c4"]


def test_the_same_bytes_are_read_in_any_pieces() -> None:
    """A reader goes on anywhere: what it has is the beginning of what it gets."""
    expected = whole()
    replica = ListReplica()
    for index in range(1, 5):
        replica.apply(index, 2, b"c%d" % index)
    backup = held(snapshot(SimulatedDisk(1), replica, 4), entries(5, 9))

    assert backup.size_bytes == len(expected)
    assert bytes_of(backup, 1) == bytes_of(backup, 7) == bytes_of(backup, 10**6) == expected
    for offset in range(len(expected) + 3):
        piece = backup.read(offset, 50)
        assert piece == expected[offset : offset + len(piece)]
        assert bool(piece) == (offset < len(expected))


def test_a_file_that_was_cut_anywhere_is_refused() -> None:
    """At every byte, so at every boundary; and one that has a byte more."""
    data = whole()

    for length in range(len(data)):
        with pytest.raises(StorageError):
            check(data[:length])
    for more in (b"\n", b"\0", data):
        with pytest.raises(StorageError, match="no whole backup"):
            check(data + more)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_a_file_that_was_changed_at_any_byte_is_refused(mask: int) -> None:
    """One bit, the case of a letter, or all bits of one byte, wherever it is."""
    data = whole()

    for offset in range(len(data)):
        changed = bytearray(data)
        changed[offset] ^= mask
        with pytest.raises(StorageError):
            check(bytes(changed))


def test_parts_of_two_backups_are_no_backup() -> None:
    """Entries of another log, or another snapshot, do not fit, though each is sound by itself."""
    data = whole()
    at = data.index(encode_entry(entries(7, 7)[0]))
    other = encode_entry((group_of(b"xx"), 7, 3))
    assert len(other) == len(encode_entry(entries(7, 7)[0]))

    with pytest.raises(StorageError, match="digest"):
        check(data[:at] + other + data[at + len(other) :])


def test_bytes_by_chance_are_refused_with_a_sentence() -> None:
    """Whatever they are: another file was named by mistake."""
    chance = random.Random(30)
    for data in (b"", b"{}\n", b"[1]\n", b'{"coordinator_backup": 2}\n', chance.randbytes(5_000)):
        with pytest.raises(StorageError, match="no whole backup"):
            check(data)
    with pytest.raises(StorageError, match="format 1, found one of format 2"):
        check(b'{"coordinator_backup": 2}\n')
    with pytest.raises(StorageError, match="no whole backup"):
        check(b" " * (HEADER_BYTES_MAX + 1) + b"\n")


def test_an_entry_is_not_read_beyond_its_bound() -> None:
    """A length that was changed asks for no memory."""
    data = whole()
    at = data.index(encode_entry(entries(7, 7)[0]))
    length = (ENTRY_BYTES_MAX + 1).to_bytes(4, "little")

    with pytest.raises(StorageError, match="ends before the footer"):
        check(data[: at + 4] + length + data[at + 8 :])


def test_a_snapshot_that_is_not_installed_yet_is_not_sent() -> None:
    """The state is behind it, so there is no moment that the file could be of."""
    reader = snapshot(SimulatedDisk(1), ListReplica(), 9)

    with pytest.raises(UnavailableError):
        entries_behind(reader, [(NO_OP, 1, 0), *entries(2, 5)], 5)
    assert entries_behind(reader, [(NO_OP, 9, 2)], 9) == []
    with pytest.raises(StorageError, match="entry 10"):
        entries_behind(reader, entries(11, 12), 12)


def test_a_snapshot_can_be_read_after_it_was_replaced() -> None:
    """The member goes on making snapshots, and removes old ones."""
    disk = SimulatedDisk(1)
    replica = ListReplica()
    replica.apply(1, 2, b"c1")
    reader = snapshot(disk, replica, 4)
    expected = bytes_of(held(reader, entries(5, 6)))
    for index in (10, 20, 30):
        snapshot(disk, ListReplica(), index).close()

    found = bytes_of(held(reader, entries(5, 6)))

    assert found == expected
    check(found)

