"""The snapshot file as bytes: its format, and the check that nothing of it changed.

::

    header   magic 8 · format 4 · body length 4 · body · crc 4
             body: for the previous and the last entry each: index 8 · term 8 · length 4 · command
    pieces   each: length 4 · crc 4 (seeded with the piece's number) · bytes
    footer   magic 8 · file length 8 · number of pieces 8 · sha256 of all before it 32 · crc 4

Nothing of a file is used before its whole length, every crc and the sha256 were checked: by
``check``, or by ``iterate_checked`` while what it gives out is decoded, and not used yet. Nothing
in it depends on the member that wrote it, so it is sent to others as it is.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from zlib import crc32

from coordinator.raft.storage.segments import Entry

PIECE_BYTES_MAX = 64 * 1024 * 1024
"""A piece longer than this is not written, and refused when read."""
FOOTER_BYTES = 60
_HEADER_MAGIC = b"coordsnp"
_FOOTER_MAGIC = b"coordend"
_FORMAT = 1
_HEADER = struct.Struct("<8sII")
_ENTRY = struct.Struct("<QQI")
_PIECE = struct.Struct("<II")
_FOOTER = struct.Struct("<8sQQ32s")


class Readable(Protocol):
    """A file, or the part of one that is a snapshot."""

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset`` on; less only at the end."""

    def size_bytes(self) -> int:
        """Return how long it is."""


class UnsoundError(Exception):
    """The bytes are not a whole snapshot: ``expected`` and ``found`` at ``offset``.

    Becomes a StorageError or a SnapshotTransferError in ``snapshots``; leaves this room never."""

    def __init__(self, offset: int, expected: str, found: str) -> None:
        super().__init__(f"at offset {offset}: expected {expected}, found {found}")
        self.offset, self.expected, self.found = offset, expected, found


@dataclass(frozen=True, slots=True)
class Outline:
    """The contents of header and footer."""

    previous_entry: Entry
    last_entry: Entry
    pieces_offset: int
    size_bytes: int
    piece_count: int
    sha256: bytes


def encode_header(last_entry: Entry, previous_entry: Entry) -> bytes:
    """Return the header."""
    body = b"".join(
        _ENTRY.pack(index, term, len(command)) + command
        for command, index, term in (previous_entry, last_entry)
    )
    head = _HEADER.pack(_HEADER_MAGIC, _FORMAT, len(body)) + body
    return head + crc32(head).to_bytes(4, "little")


def encode_piece(number: int, piece: bytes) -> bytes:
    """Return the piece with its length and crc; ``number`` counts from 0."""
    return _PIECE.pack(len(piece), crc32(piece, number)) + piece


def encode_footer(size_before: int, piece_count: int, sha256: bytes) -> bytes:
    """Return the footer of a file with ``size_before`` bytes before it."""
    foot = _FOOTER.pack(_FOOTER_MAGIC, size_before + FOOTER_BYTES, piece_count, sha256)
    return foot + crc32(foot).to_bytes(4, "little")


def read_outline(file: Readable) -> Outline:
    """Read header and footer; UnsoundError unless both are whole and fit the file's length."""
    size = file.size_bytes()
    head = file.read_at(0, _HEADER.size)
    if len(head) < _HEADER.size:
        raise UnsoundError(0, f"a header of {_HEADER.size} bytes", f"{len(head)} bytes")
    magic, format_number, body_length = _HEADER.unpack(head)
    if (magic, format_number) != (_HEADER_MAGIC, _FORMAT):
        raise UnsoundError(
            0, f"{_HEADER_MAGIC!r} format {_FORMAT}", f"{magic!r} format {format_number}"
        )
    pieces_offset = _HEADER.size + body_length + 4
    if pieces_offset + FOOTER_BYTES > size:
        raise UnsoundError(8, f"at least {pieces_offset + FOOTER_BYTES} bytes", f"{size} bytes")
    rest = file.read_at(_HEADER.size, body_length + 4)
    body = rest[:body_length]
    if crc32(head + body).to_bytes(4, "little") != rest[body_length:]:
        raise UnsoundError(0, "a header that fits its crc", "another")
    previous_entry, last_entry = _entries(body)
    piece_count, sha256 = _read_footer(file, size)
    return Outline(previous_entry, last_entry, pieces_offset, size, piece_count, sha256)


def check(file: Readable, outline: Outline) -> None:
    """Read the whole file; UnsoundError unless every piece and the sha256 fit."""
    for _ in iterate_checked(file, outline):
        pass


def iterate_checked(file: Readable, outline: Outline) -> Iterator[bytes]:
    """Yield the pieces; UnsoundError at the first that does not fit, and behind the last one if the
    sha256 is another. So the file is read once."""
    digest = hashlib.sha256(file.read_at(0, outline.pieces_offset))
    offset, end = outline.pieces_offset, outline.size_bytes - FOOTER_BYTES
    number = 0
    while offset < end:
        if offset + _PIECE.size > end:
            raise UnsoundError(offset, "a piece", f"{end - offset} bytes before the footer")
        head = file.read_at(offset, _PIECE.size)
        length, crc = _PIECE.unpack(head)
        body_offset = offset + _PIECE.size
        if length > PIECE_BYTES_MAX or body_offset + length > end:
            raise UnsoundError(offset, "a piece that ends before the footer", f"{length} bytes")
        piece = file.read_at(body_offset, length)
        if crc32(piece, number) != crc:
            raise UnsoundError(
                offset, f"piece {number} with crc {crc:08x}", f"crc {crc32(piece, number):08x}"
            )
        digest.update(head)
        digest.update(piece)
        yield piece
        offset = body_offset + length
        number += 1
    if number != outline.piece_count:
        raise UnsoundError(end, f"{outline.piece_count} pieces", f"{number} pieces")
    if digest.digest() != outline.sha256:
        raise UnsoundError(0, f"sha256 {outline.sha256.hex()}", digest.hexdigest())


def _entries(body: bytes) -> tuple[Entry, Entry]:
    found: list[Entry] = []
    offset = 0
    while len(found) < 2:
        if offset + _ENTRY.size > len(body):
            raise UnsoundError(_HEADER.size + offset, "two entries", f"{len(found)}")
        index, term, length = _ENTRY.unpack_from(body, offset)
        offset += _ENTRY.size
        found.append((body[offset : offset + length], index, term))
        offset += length
    if offset != len(body):
        raise UnsoundError(_HEADER.size, f"{len(body)} bytes of entries", f"{offset} bytes")
    if found[1][1] != found[0][1] + 1:
        raise UnsoundError(_HEADER.size, "consecutive entries", f"{found[0][1]}, {found[1][1]}")
    return found[0], found[1]


def _read_footer(file: Readable, size: int) -> tuple[int, bytes]:
    offset = size - FOOTER_BYTES
    data = file.read_at(offset, FOOTER_BYTES)
    foot = data[: _FOOTER.size]
    if len(data) != FOOTER_BYTES or crc32(foot).to_bytes(4, "little") != data[_FOOTER.size :]:
        raise UnsoundError(offset, "a footer that fits its crc", f"{len(data)} other bytes")
    magic, stated_size, piece_count, sha256 = _FOOTER.unpack(foot)
    if (magic, stated_size) != (_FOOTER_MAGIC, size):
        raise UnsoundError(
            offset, f"{_FOOTER_MAGIC!r} of {size} bytes", f"{magic!r} of {stated_size} bytes"
        )
    return piece_count, sha256
