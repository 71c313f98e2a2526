"""A second copy of the log's tail, kept while a start writes that tail again.

What may not be stable is written again in place before it counts (``segments``, rule 2), and the
end of the log is filled up to a block. A sector in which the power goes may be spoiled
(``records``), and this one holds what was acknowledged. So a copy is stable before, as one file::

    magic 8 · sequence of the segment 8 · offset in it 8 · header of the segment 40 · crc 4 · bytes

A start that finds one makes the segment again what the copy says: these bytes there, and nothing
behind them. What a torn write left there must go, also when it is whole: the start that made the
copy has filled the gap in front of it, and the next one would read on. So the copy is gone, and
that is stable (``recovery``), before anything is added. A torn copy is none.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from coordinator.errors import DiskFullError
from coordinator.raft.storage.disk import Disk, join, replace_file

NAME = "tail"
_MAGIC = b"COORDTAI"
_FIELDS = struct.Struct("<8sQQ40s")
_HEADER_BYTES = _FIELDS.size + 4


class TailCopy(NamedTuple):
    """``data`` as it is to be from ``offset`` on, to the end, of the segment with this sequence and
    header."""

    sequence: int
    offset: int
    segment_header: bytes
    data: bytes


def save(disk: Disk, directory: str, tail: TailCopy) -> None:
    """Return when the copy is stable."""
    fields = _FIELDS.pack(_MAGIC, tail.sequence, tail.offset, tail.segment_header)
    crc = crc32(tail.data, crc32(fields)).to_bytes(4, "little")
    replace_file(disk, directory, NAME, fields + crc + tail.data)


def drop(disk: Disk, directory: str) -> None:
    """Remove the copy, if there is one: the original is stable."""
    if disk.exists(join(directory, NAME)):
        disk.remove(join(directory, NAME))


def restore(disk: Disk, directory: str, sequence: int, path: str) -> None:
    """Write back what the segment at ``path`` lacks of a copy that was made of its tail, and cut
    what is behind that.

    There is room for all but what fills the last block; without that the log is whole, too."""
    tail = _load(disk, directory)
    if tail is None or tail.sequence != sequence:
        return
    data = disk.read(path)
    start, end = tail.offset, tail.offset + len(tail.data)
    is_its = start == 0 or data.startswith(tail.segment_header)
    if not is_its or len(data) < start or data[start:] == tail.data:
        return
    # The start that made the copy may have been killed before its name was stable.
    disk.sync_directory(directory)
    file = disk.open_append(path)
    try:
        if len(data) > end:
            file.truncate(end)
        with suppress(DiskFullError):
            file.write_at(start, tail.data)
        file.sync()
    finally:
        file.close()


def _load(disk: Disk, directory: str) -> TailCopy | None:
    path = join(directory, NAME)
    raw = disk.read(path) if disk.exists(path) else b""
    fields, crc, data = raw[: _FIELDS.size], raw[_FIELDS.size : _HEADER_BYTES], raw[_HEADER_BYTES:]
    if len(crc) != 4 or crc32(data, crc32(fields)).to_bytes(4, "little") != crc:
        return None
    magic, sequence, offset, segment_header = _FIELDS.unpack(fields)
    return TailCopy(sequence, offset, segment_header, data) if magic == _MAGIC else None
