"""The segments: the files of the log, and how they are read back.

A segment is ``<sequence>-<first index>.log``: a header of 40 bytes, then records. Sequences have no
gaps, so a missing file is noticed (the index alone would not do: it falls when a suffix is cut).

1. A segment gets its name after its header is stable, and only when all before it is stable.
   So only the last segment can have a torn tail, and a bad header is damage. The header has a
   block of its own, as every batch has (``records``).
2. What is read back is made stable, by writing it again, before it counts: the system may have
   kept pages whose sync once failed, and reports them as clean. A copy of it is stable elsewhere
   first (``tail_copy``): the power may go while it is written again, too.
3. Behind the records of the last segment there may be zeros (``reserve``), which a start cuts off.
   They are cut off, and that is stable, before it is not the last one any more.
4. Anything not explained by a torn write at the end is a StorageError that names the file, the
   offset, what was expected and what was found. Nothing is repaired by guessing.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from zlib import crc32

from coordinator.errors import DiskFullError, StorageError
from coordinator.raft.storage import tail_copy
from coordinator.raft.storage.disk import Disk, DiskFile, join
from coordinator.raft.storage.records import (
    BLOCK_BYTES,
    Flaw,
    Record,
    RecordKind,
    fill,
    is_torn,
    scan,
    synced_offset_after,
)
from coordinator.raft.storage.tail_copy import TailCopy

Entry = tuple[bytes, int, int]
"""(command, index, term), as PySyncObj keeps them."""

HEADER_BYTES = 40
EMPTY_BYTES = BLOCK_BYTES
"""The length of a segment without entries."""
_MAGIC = b"coordlog"
_FORMAT = 1
_HEADER = struct.Struct("<8sIIQQI")
_NAME = re.compile(r"(\d{10})-(\d{20})\.log")
TEMPORARY_SUFFIX = ".tmp"


@dataclass(slots=True)
class Segment:
    """One file of the log.

    The entry with index i is in the last segment whose ``first_index`` is at most i; 0 means that
    none before is needed. ``durable_first_index`` says the same of what is stable already."""

    path: str
    sequence: int
    salt: int
    first_index: int
    durable_first_index: int


def create(disk: Disk, directory: str, sequence: int, first_index: int, salt: int) -> Segment:
    """Make an empty segment; returns when it is stable under its name."""
    path = join(directory, f"{sequence:010d}-{first_index:020d}.log")
    head = _HEADER.pack(_MAGIC, _FORMAT, salt, sequence, first_index, 0)
    head += crc32(head).to_bytes(4, "little")
    file = disk.create(path + TEMPORARY_SUFFIX)
    try:
        file.write(head + fill(HEADER_BYTES, HEADER_BYTES, salt))
        file.sync()
    finally:
        file.close()
    disk.rename(path + TEMPORARY_SUFFIX, path)
    disk.sync_directory(directory)
    return Segment(path, sequence, salt, first_index, first_index)


def open_last(disk: Disk, path: str) -> DiskFile:
    """Open the segment that the log goes on in, for writing at any place of it."""
    file = disk.open_append(path)
    try:
        # So that it has its descriptor, also when the process is out of them later.
        file.write_at(0, b"")
    except StorageError:
        file.close()
        raise
    return file


def begin_next(
    disk: Disk, directory: str, sequence: int, first_index: int, salt: int
) -> tuple[Segment, DiskFile]:
    """Make an empty segment and open it; a DiskFullError leaves none."""
    segment = create(disk, directory, sequence, first_index, salt)
    try:
        return segment, open_last(disk, segment.path)
    except DiskFullError:
        # Without a descriptor for it; left there it would not follow on what comes now.
        disk.remove(segment.path)
        disk.sync_directory(directory)
        raise


def cut_reserve(file: DiskFile, size_bytes: int) -> bool:
    """Cut off what is behind the records of a segment; stable after the next sync.

    False where that finds no room: a file system that copies on write needs some to cut."""
    try:
        if file.size_bytes() > size_bytes:
            file.truncate(size_bytes)
    except DiskFullError:
        return False
    return True


def list_segments(disk: Disk, directory: str) -> dict[int, str]:
    """Return the path of each segment by its sequence."""
    found: dict[int, str] = {}
    for name in disk.list_directory(directory):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        sequence = int(match.group(1))
        if sequence in found:
            raise StorageError(
                f"{join(directory, name)}: expected one segment of this sequence, found"
                f" {found[sequence]} as well; this member must be replaced"
            )
        found[sequence] = join(directory, name)
    return found


class Replay:
    """Rebuilds the entries from segments, given in order."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.segments: list[Segment] = []
        self.next_index: int | None = None
        """The index that the next entry must have; None if any is allowed."""
        self.synced_bytes = 0
        """The synced part of the segment read last: what its own marks say is stable."""
        self.valid_bytes = 0
        """The sound part of the segment read last: the end of its last whole record."""

    def read(self, path: str, sequence: int, data: bytes, *, stable_bytes: int | None) -> None:
        """Apply a segment's records, in the order of their sequences.

        ``stable_bytes`` is None, or for the last segment how much of it is known to have been
        stable; a torn tail beyond that is left out."""
        segment = self._open(path, sequence, data)
        self.segments.append(segment)
        self.synced_bytes = self.valid_bytes = HEADER_BYTES
        for record in scan(data, HEADER_BYTES, segment.salt):
            if isinstance(record, Flaw):
                self._tolerate(segment, data, record, stable_bytes)
                return
            self._apply(segment, record)
            self.valid_bytes = record.end
        if stable_bytes is not None and len(data) < stable_bytes:
            raise damaged(path, len(data), f"{stable_bytes} bytes, synced before", "the end")

    def _open(self, path: str, sequence: int, data: bytes) -> Segment:
        if len(data) < HEADER_BYTES:
            raise damaged(path, 0, f"a header of {HEADER_BYTES} bytes", f"{len(data)} bytes")
        head, expected = data[: _HEADER.size], data[_HEADER.size : HEADER_BYTES]
        found = crc32(head).to_bytes(4, "little")
        if found != expected:
            raise damaged(path, 0, f"a header with crc {expected.hex()}", f"crc {found.hex()}")
        magic, format_number, salt, header_sequence, first_index, _ = _HEADER.unpack(head)
        if (magic, format_number) != (_MAGIC, _FORMAT):
            raise damaged(
                path, 0, f"{_MAGIC!r} format {_FORMAT}", f"{magic!r} format {format_number}"
            )
        if not path.endswith(f"{header_sequence:010d}-{first_index:020d}.log"):
            raise damaged(
                path, 0, "its own name", f"sequence {header_sequence}, first index {first_index}"
            )
        if self.segments and first_index != (self.next_index or 0):
            # The name and the header of this one agree, so the end of the one before is lost.
            last = "no entry" if self.next_index is None else f"entry {self.next_index - 1}"
            raise damaged(
                self.segments[-1].path, self.valid_bytes,
                f"entries before {first_index}, with which {path} begins", f"{last} at its end",
            )  # fmt: skip
        if not self.segments:
            self.next_index = first_index or None
        return Segment(path, sequence, salt, first_index, first_index)

    def _tolerate(
        self, segment: Segment, data: bytes, flaw: Flaw, stable_bytes: int | None
    ) -> None:
        expected = flaw.expected
        if stable_bytes is None:
            expected += " (in a segment that is not the last)"
        else:
            marked_bytes = synced_offset_after(data, flaw.offset, segment.salt)
            stable_bytes = max(stable_bytes, marked_bytes)
            if stable_bytes > flaw.offset:
                expected += f" (what is before offset {stable_bytes} was synced)"
            elif is_torn(data, flaw, segment.salt):
                return
        raise damaged(segment.path, flaw.offset, expected, flaw.found)

    def _apply(self, segment: Segment, record: Record) -> None:
        match record.kind:
            case RecordKind.ENTRY:
                if self.next_index is not None and record.index != self.next_index:
                    raise damaged(
                        segment.path,
                        record.offset,
                        f"the entry {self.next_index}",
                        f"the entry {record.index}",
                    )
                self.entries.append((record.payload, record.index, record.term))
                self.next_index = record.index + 1
            case RecordKind.CUT:
                if self.next_index is None or record.index > self.next_index:
                    raise damaged(
                        segment.path,
                        record.offset,
                        f"a cut at or before {self.next_index}",
                        f"a cut at {record.index}",
                    )
                kept = max(0, record.index - self.entries[0][1]) if self.entries else 0
                del self.entries[kept:]
                self.next_index = record.index
                segment.first_index = min(segment.first_index, record.index)
            case RecordKind.START:
                self.entries.clear()
                self.next_index = None
                segment.first_index = 0
            case RecordKind.SYNCED:
                self.synced_bytes = record.index
        segment.durable_first_index = segment.first_index


def repair_tail(
    disk: Disk, directory: str, file: DiskFile, replay: Replay, data: bytes, *, stable_bytes: int
) -> None:
    """Cut the torn tail of the last segment and make the rest of it stable, to a block's end.

    ``stable_bytes`` is how much of it is known to be stable, if anybody knows more than its own
    marks. Without room for a copy of the rest and for what fills the block, both are left out."""
    segment, end = replay.segments[-1], replay.valid_bytes
    stable_bytes = max(stable_bytes, replay.synced_bytes)
    if stable_bytes >= end == len(data) and end % BLOCK_BYTES == 0:
        tail_copy.drop(disk, directory)
        return
    start = stable_bytes - stable_bytes % BLOCK_BYTES
    filling = fill(end, stable_bytes, segment.salt) if end % BLOCK_BYTES else b""
    tail = TailCopy(segment.sequence, start, data[:HEADER_BYTES], data[start:end] + filling)
    try:
        tail_copy.save(disk, directory, tail)
        file.write_at(start, tail.data)
        replay.valid_bytes += len(filling)
    except DiskFullError:
        file.write_at(start, data[start:end])
    file.truncate(replay.valid_bytes)
    file.sync()
    tail_copy.drop(disk, directory)


def damaged(path: str, offset: int, expected: str, found: str) -> StorageError:
    """Return the refusal to start on ``path``."""
    return StorageError(
        f"{path}: damaged at offset {offset}: expected {expected}, found {found}; "
        "this member must be replaced, its log cannot be trusted",
        path=path,
        offset=offset,
        expected=expected,
        found=found,
    )


def salts(seeded: Random | None = None) -> Callable[[], int]:
    """Return a function that draws salts of segments: 32 bits each, which no client can guess.

    In a simulation they come from a copy of its ``seeded`` generator, so that the log changes
    nothing else that the seed decides.
    """
    if seeded is None:
        return lambda: int.from_bytes(os.urandom(4), "little")
    chance = Random()  # noqa: S311 - a simulation's
    chance.setstate(seeded.getstate())
    return lambda: chance.getrandbits(32)
