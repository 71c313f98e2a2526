"""The watermark: a hint beside the log of how far it is stable. No start depends on it.

One record of 32 bytes, overwritten in place about once a second and at the end, never synced::

    magic 8 · sequence of the segment 8 · offset in it 8 · reserved 4 · crc 4

It names only what a sync has made stable already, so an old one is true as well. A missing or torn
one means nothing. It distinguishes a log that was shortened, or lost its last segment, after it was
stable, from a log whose last write was torn.
"""

from __future__ import annotations

import struct
from zlib import crc32

from coordinator.raft.storage.disk import Disk, join

NAME = "synced"
_MAGIC = b"COORDSYN"
_FIELDS = struct.Struct("<8sQQI")
_BYTES = _FIELDS.size + 4


def load(disk: Disk, directory: str) -> tuple[int, int]:
    """Return (sequence, offset); (0, 0) when nothing is known."""
    path = join(directory, NAME)
    data = disk.read(path) if disk.exists(path) else b""
    fields = data[: _FIELDS.size]
    if len(data) != _BYTES or crc32(fields).to_bytes(4, "little") != data[_FIELDS.size :]:
        return 0, 0
    magic, sequence, offset, _ = _FIELDS.unpack(fields)
    return (sequence, offset) if magic == _MAGIC else (0, 0)


class Watermark:
    """Writes the hint, when it has grown."""

    def __init__(self, disk: Disk, directory: str) -> None:
        path = join(directory, NAME)
        self._stored = load(disk, directory)
        self._file = disk.open_append(path) if disk.exists(path) else disk.create(path)

    def note(self, sequence: int, offset: int) -> None:
        """Note that ``sequence`` is stable up to ``offset``, and all segments before it."""
        if (sequence, offset) > self._stored:
            fields = _FIELDS.pack(_MAGIC, sequence, offset, 0)
            self._file.write_at(0, fields + crc32(fields).to_bytes(4, "little"))
            self._stored = (sequence, offset)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
