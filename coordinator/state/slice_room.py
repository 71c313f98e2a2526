"""The room in a slice of the state, its place, and the digest of what is in it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from zlib import adler32, crc32

from msgspec.msgpack import Encoder

CUT_BYTES: Final = 128 * 1024
PIECE_BYTES: Final = 8
"""Length of one piece's digest."""
_PIECE_ITEMS: Final = 32
_ROW_BYTES: Final = 64
"""What an item counts beside its texts and data."""

encoded: Final = Encoder().encode
"""Returns a value as bytes."""


class Cursor(NamedTuple):
    """Where a slice begins: in which part, how many of its items are still to come (or -1: all),
    and behind which key; ``number`` says how much of that key's value was read already."""

    part: int = 0
    left: int = -1
    key: str = ""
    number: int = 0


class SliceRoom:
    """The room left in a slice, and its rows in pieces."""

    def __init__(self, items_max: int, bytes_max: int) -> None:
        self.pieces: list[list[Any]] = []
        self._rows: list[Any] = []
        """The last piece."""
        self._piece_left = 0
        """How many more items are in it, if they come."""
        self.items_left = items_max
        self.bytes_left = bytes_max

    @property
    def is_spent(self) -> bool:
        """Whether the slice ends here."""
        return self.items_left <= 0 or self.bytes_left <= 0

    def holds(self, size: int, items: int, count: int) -> bool:
        """Whether a row of ``count`` items, which count ``items``, leaves some bytes of room."""
        return items <= self.items_left and size + _ROW_BYTES * count < self.bytes_left

    def begin_part(self) -> None:
        """What is taken from now on is in other pieces."""
        self.pieces = []
        self._piece_left = 0

    def take(self, row: Any, size: int, items: int, count: int = 1) -> None:
        """Take a row of ``count`` items, which all together count ``items``."""
        if self._piece_left <= 0:
            self._rows = []
            self.pieces.append(self._rows)
            self._piece_left = _PIECE_ITEMS
        self._rows.append(row)
        self._piece_left -= count
        self.items_left -= items
        self.bytes_left -= size + _ROW_BYTES * count


def digest_of(rows: Any) -> bytes:
    """Return the digest of one piece: its CRC-32 and its Adler-32.

    A CRC shows all that is altered within 32 bits, and both together the rest but for one in some
    2**60, in half of the time of a cryptographic hash. That would protect from who chooses two
    states with one digest; but nobody chooses the state of one member: all apply the same entries.
    """
    found = encoded(rows)
    return (crc32(found) << 32 | adler32(found)).to_bytes(PIECE_BYTES, "big")


def left_of(cursor: Cursor, length: int) -> int:
    """Return how many items of a table are still to come."""
    return length if cursor.left < 0 else min(cursor.left, length)
