"""Snapshots: whole or not there, kept by two, sent and received in pieces, never half believed.

Rows 11, 12 and 28 of the engine's list of defects.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.errors import DiskFullError, StorageError
from coordinator.node.config import RaftConfig
from coordinator.raft.storage.disk import OsDisk
from coordinator.raft.storage.snapshot_file import read_outline
from coordinator.raft.storage.snapshot_store import (
    SnapshotInfo,
    SnapshotStore,
    SnapshotTransferError,
)
from tests.raft.storage.exchanges import exchange_with
from tests.raft.storage.simulated_disk import SimulatedCrashError, SimulatedDisk

PIECES = [b"one", b"", b"x" * 3000, bytes(700), b"end"]


def open_store(disk: SimulatedDisk, **limits: int) -> SnapshotStore:
    return SnapshotStore("snapshots", disk, **{"piece_bytes": 256, **limits})


def write(
    store: SnapshotStore, index: int, pieces: Iterable[bytes] = PIECES, term: int = 2
) -> SnapshotInfo:
    writer = store.begin_write((b"last", index, term), (b"previous", index - 1, 1))
    for piece in pieces:
        writer.write(piece)
    return writer.finish()


def read(store: SnapshotStore, info: SnapshotInfo) -> list[bytes]:
    reader = store.open(info)
    try:
        return reader.decoded(list)
    finally:
        reader.close()


def send(source: SnapshotStore, target: SnapshotStore) -> SnapshotInfo:
    info = source.latest()
    assert info is not None
    reader = source.open(info)
    target.begin_receive(info.size_bytes, info.sha256)
    while target.received_bytes < info.size_bytes:
        target.receive(target.received_bytes, reader.read(target.received_bytes, 200))
    reader.close()
    return target.finish_receive(term_max=100)


def newest(store: SnapshotStore) -> SnapshotInfo:
    info = store.latest()
    assert info is not None
    return info


def first_piece(disk: SimulatedDisk) -> bytes:
    store = open_store(disk)
    info = store.latest()
    assert info is not None
    return store.open(info).decoded(next)


def test_a_snapshot_comes_back_as_it_was_written() -> None:
    """Pieces with their boundaries, the two entries, after a power cut right after ``finish``."""
    disk = SimulatedDisk()
    store = open_store(disk)
    assert store.latest() is None
    written = write(store, 10)
    disk.crash()

    again = open_store(disk)

    info = again.latest()
    assert info == written
    assert (info.index, info.term) == (10, 2)
    outline = read_outline(disk.open_read(info.path))
    assert (outline.last_entry, outline.previous_entry) == ((b"last", 10, 2), (b"previous", 9, 1))
    assert read(again, info) == PIECES


def test_an_empty_state_has_a_snapshot_too() -> None:
    """No pieces is a snapshot, not a missing one."""
    store = open_store(SimulatedDisk())

    assert read(store, write(store, 5, [])) == []


def test_the_newest_two_are_kept() -> None:
    """Older ones go when a newer one is stable; a reader goes on reading what it opened."""
    disk = SimulatedDisk()
    store = open_store(disk)
    reader = store.open(write(store, 10, [b"ten"]))
    for index in (20, 30, 40):
        write(store, index)

    assert len(disk.list_directory("snapshots")) == 2
    assert newest(store).index == 40
    assert reader.decoded(list) == [b"ten"]


def test_writing_may_die_at_every_step() -> None:
    """Rows 11 and 28: the newest snapshot is the old one or the new one, whole; nothing
    unfinished is ever given a name."""
    outcomes = set()
    for step in range(1, 16):
        for seed in range(10):
            disk = SimulatedDisk(seed, is_orderly=seed % 2 == 0)
            store = open_store(disk)
            write(store, 10, [b"old"])
            disk.crash_at_step = disk.step_count + step
            is_finished = False
            try:
                write(store, 20)
                is_finished = True
            except SimulatedCrashError:
                pass
            disk.crash()

            again = open_store(disk)

            info = again.latest()
            assert info is not None
            assert read(again, info) == ([b"old"] if info.index == 10 else PIECES)
            assert info.index == 20 or not is_finished
            assert not [name for name in disk.list_directory("snapshots") if "tmp" in name]
            outcomes.add(info.index)
    assert outcomes == {10, 20}


def test_every_flip_and_every_cut_is_found_before_a_piece_is_used() -> None:
    """Row 12: no byte of a snapshot can change, and no byte can go, unnoticed."""
    disk = SimulatedDisk()
    path = write(open_store(disk), 10, [b"a" * 50, b"b" * 50]).path
    whole = disk.content(path)
    damaged = [whole[:size] for size in range(len(whole))] + [whole + b"\0"]
    for mask in (0x01, 0x80, 0xFF):
        damaged += [
            whole[:offset] + bytes((whole[offset] ^ mask,)) + whole[offset + 1 :]
            for offset in range(len(whole))
        ]
    for data in damaged:
        disk.overwrite(path, data)
        with pytest.raises(StorageError, match="damaged"):
            first_piece(disk)


def test_what_cannot_be_decoded_is_damage_only_if_the_file_is() -> None:
    """A piece that was given out before the damage was found is not taken for what was written."""
    disk = SimulatedDisk()
    path = write(open_store(disk), 10, [b"a" * 50, b"b" * 50]).path
    whole = disk.content(path)

    def refuse(_pieces: Iterator[bytes]) -> None:
        raise ValueError("it means nothing")

    with pytest.raises(ValueError, match="means nothing"):
        open_store(disk).open(newest(open_store(disk))).decoded(refuse)
    disk.overwrite(path, whole.replace(b"b" * 50, b"c" * 50))
    with pytest.raises(StorageError, match="damaged"):
        open_store(disk).open(newest(open_store(disk))).decoded(refuse)


def test_a_damaged_newest_snapshot_is_not_replaced_by_an_older_one() -> None:
    """Row 12: the log before the newest one may be gone, so an older state would be a lie."""
    disk = SimulatedDisk()
    store = open_store(disk)
    write(store, 10)
    disk.flip(write(store, 20).path, 12)

    with pytest.raises(StorageError) as caught:
        open_store(disk)

    assert "00020-" in caught.value.path
    assert caught.value.offset >= 0


def test_a_snapshot_under_another_name_is_refused() -> None:
    """A copy of an old one named as a new one is not the new one."""
    disk = SimulatedDisk()
    path = write(open_store(disk), 10).path
    disk.rename(path, path.replace("10-", "99-"))

    with pytest.raises(StorageError, match="its own name"):
        open_store(disk)


STOCK_WITH_A_DAMAGED_DUMP = """
import sys
from pysyncobj import SyncObj, SyncObjConf

conf = SyncObjConf(fullDumpFile=sys.argv[1], autoTick=False, useFork=False)
member = SyncObj(None, [], conf)
member.doTick()
member.doTick()
print("goes on at entry", member.getStatus()["last_applied"])
"""


def test_stock_swallows_a_damaged_dump(tmp_path: Path) -> None:
    """Row 12: the library logs it and goes on with an empty state. In a process of its own, for
    ours replaces the library's clock."""
    dump = tmp_path / "dump"
    dump.write_bytes(b"damaged")

    result = subprocess.run(
        [sys.executable, "-c", STOCK_WITH_A_DAMAGED_DUMP, str(dump)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert result.stdout == "goes on at entry 1\n"
    assert "failed to load full dump" in result.stderr


def test_a_snapshot_is_received_as_it_was_sent() -> None:
    """Another member's file, byte for byte, and stable when it is installed."""
    source = open_store(SimulatedDisk(1))
    sent = write(source, 30)
    disk = SimulatedDisk(2)
    target = open_store(disk)
    write(target, 10, [b"old"])

    received = send(source, target)

    disk.crash()
    again = open_store(disk)
    assert again.latest() == received
    assert received.sha256 == sent.sha256
    assert read(again, received) == PIECES


def test_pieces_are_taken_in_sequence_only() -> None:
    """A repeated, early or oversized piece is refused with the offset that is expected."""
    source, target = open_store(SimulatedDisk(1)), open_store(SimulatedDisk(2))
    info = write(source, 30)
    reader = source.open(info)
    with pytest.raises(SnapshotTransferError):
        target.receive(0, b"x")
    target.begin_receive(info.size_bytes, info.sha256)
    target.receive(0, reader.read(0, 100))

    for offset, data in [(0, b"x"), (50, b"x"), (101, b"x"), (100, b"x" * 257)]:
        with pytest.raises(SnapshotTransferError):
            target.receive(offset, data)
        assert target.received_bytes == 100

    while target.received_bytes < info.size_bytes:
        target.receive(target.received_bytes, reader.read(target.received_bytes, 256))
    assert target.finish_receive(term_max=100).index == 30


def test_what_is_received_damaged_changes_nothing() -> None:
    """Every kind of wrong file is refused whole; the old snapshot stays; a new transfer works."""
    source_disk, disk = SimulatedDisk(1), SimulatedDisk(2)
    source, target = open_store(source_disk), open_store(disk)
    info = write(source, 30)
    old = write(target, 10)
    whole = source_disk.content(info.path)
    generator = random.Random(1)
    for _ in range(300):
        data = bytearray(whole)
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
        target.begin_receive(len(data), info.sha256)
        for offset in range(0, len(data), 256):
            target.receive(offset, bytes(data[offset : offset + 256]))
        with pytest.raises(SnapshotTransferError):
            target.finish_receive(term_max=100)
        assert target.latest() == old
        assert len(disk.list_directory("snapshots")) == 1

    assert send(source, target).index == 30


def test_an_unfinished_older_or_too_large_transfer_is_refused() -> None:
    """None of them replaces what is here."""
    source, target = open_store(SimulatedDisk(1)), open_store(SimulatedDisk(2))
    info = write(source, 30)
    newer = write(target, 40)
    with pytest.raises(SnapshotTransferError, match="older"):
        send(source, target)
    target.begin_receive(info.size_bytes, info.sha256)
    target.receive(0, b"some")
    with pytest.raises(SnapshotTransferError, match="4 bytes received"):
        target.finish_receive(term_max=100)
    small = open_store(SimulatedDisk(3), snapshot_bytes_max=1000)

    with pytest.raises(SnapshotTransferError, match="at most 1000"):
        small.begin_receive(info.size_bytes, info.sha256)

    assert target.latest() == newer


def test_receiving_may_die_at_every_step() -> None:
    """The member starts with the old or the new snapshot, and can receive again."""
    source = open_store(SimulatedDisk(1))
    write(source, 30)
    for step in range(1, 26):
        disk = SimulatedDisk(step)
        target = open_store(disk)
        write(target, 10, [b"old"])
        disk.crash_at_step = disk.step_count + step
        try:
            send(source, target)
        except SimulatedCrashError:
            pass
        disk.crash()
        again = open_store(disk)
        info = again.latest()
        assert info is not None
        assert read(again, info) == ([b"old"] if info.index == 10 else PIECES)

        assert send(source, again).index == 30


def test_a_dropped_snapshot_leaves_nothing() -> None:
    """``abort`` removes the file; doing it twice, or after ``finish``, does nothing."""
    disk = SimulatedDisk()
    store = open_store(disk)
    writer = store.begin_write((b"last", 10, 1), (b"previous", 9, 1))
    writer.write(b"x")

    writer.abort()
    writer.abort()

    assert disk.list_directory("snapshots") == []
    with pytest.raises(StorageError, match="finished or dropped"):
        writer.write(b"y")
    write(store, 11)
    assert newest(store).index == 11


def test_a_newer_snapshot_installed_meanwhile_stays() -> None:
    """One that was being written when a newer one was received is dropped at its end."""
    source, disk = open_store(SimulatedDisk(1)), SimulatedDisk(2)
    write(source, 30)
    target = open_store(disk)
    writer = target.begin_write((b"last", 20, 1), (b"previous", 19, 1))
    send(source, target)

    assert writer.finish().index == 30

    assert newest(target).index == 30
    assert len(disk.list_directory("snapshots")) == 1


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_directory"])
def test_a_failing_disk_leaves_the_old_snapshot(operation: str) -> None:
    """The failure is told; nothing unfinished is believed after a restart."""
    disk = SimulatedDisk()
    store = open_store(disk)
    write(store, 10, [b"old"])
    disk.fail(operation)

    with pytest.raises(StorageError):
        write(store, 20)

    assert newest(store).index == 10
    disk.crash()
    again = open_store(disk)
    info = again.latest()
    assert info is not None
    assert read(again, info) == ([b"old"] if info.index == 10 else PIECES)


def test_limits_are_kept() -> None:
    """A full disk and a snapshot over its limit are refused, and the next one can be written."""
    disk = SimulatedDisk()
    store = open_store(disk, snapshot_bytes_max=2000)
    with pytest.raises(StorageError, match="over 2000 bytes"):
        write(store, 10)
    disk.capacity_bytes = 500
    with pytest.raises(DiskFullError):
        write(store, 10, [b"x" * 600])
    disk.capacity_bytes = None

    assert write(store, 10, [b"x" * 600]).index == 10


def test_a_read_for_sending_is_never_longer_than_a_piece(tmp_path: Path) -> None:
    """On the real disk too; and past the end there is nothing."""
    store = SnapshotStore(str(tmp_path / "snapshots"), OsDisk(), piece_bytes=256)
    info = write(store, 10)
    reader = store.open(info)

    assert len(reader.read(0, 10_000)) == 256
    assert reader.read(info.size_bytes, 10) == b""
    assert reader.decoded(list) == PIECES
    reader.close()
    assert (tmp_path / "snapshots").stat().st_mode & 0o777 == 0o700
    assert Path(info.path).stat().st_mode & 0o777 == 0o600


async def test_a_stop_waits_for_the_thread_that_finishes_a_snapshot() -> None:
    """Its file is not closed under it: the number could be another file's by then."""
    started, may_end = threading.Event(), threading.Event()
    messages: list[str] = []

    class Writer:
        def write(self, _piece: bytes) -> None: ...

        def finish(self) -> SnapshotInfo:
            started.set()
            may_end.wait(10)
            messages.append("finished")
            raise DiskFullError("no room")

        def abort(self) -> None:
            messages.append("dropped")

    class Store:
        def begin_write(self, _last: object, _previous: object) -> Writer:
            return Writer()

    exchange = exchange_with(store=Store(), on_failure=lambda _error: None)
    exchange._making = asyncio.ensure_future(exchange._make([b"piece"], (b"", 2, 1), (b"", 1, 0)))
    await asyncio.to_thread(started.wait, 10)

    stopping = asyncio.ensure_future(exchange.stop())
    await asyncio.sleep(0.05)
    is_waiting = not stopping.done()
    may_end.set()
    await stopping

    assert is_waiting
    assert messages == ["finished", "dropped"]


async def test_a_newer_one_that_was_received_meanwhile_trims_nothing_yet() -> None:
    """The store keeps that one; until it is installed the log is all that leads up to it."""
    received = SnapshotInfo(index=90, term=2, size_bytes=0, sha256=b"", path="")

    class Writer:
        def write(self, _piece: bytes) -> None: ...

        def finish(self) -> SnapshotInfo:
            return received

    class Store:
        def begin_write(self, _last: object, _previous: object) -> Writer:
            return Writer()

    class Log(list[Any]):
        def deleteEntriesTo(self, count: int) -> None:
            raise AssertionError(f"{count} entries were dropped")

    failures: list[BaseException] = []
    exchange = exchange_with(
        store=Store(),
        log=Log([(b"", number, 1) for number in range(1, 51)]),
        raft=RaftConfig(keep_entries_after_snapshot=0),
        on_failure=failures.append,
    )

    await exchange._make([b"piece"], (b"", 50, 1), (b"", 49, 1))

    assert failures == []
    assert (exchange.snapshot_index, exchange.made_total) == (0, 0)
