"""Records of the log as bytes, and the rules that distinguish a torn write from damage.

A record is a header of 40 bytes, the payload, and 4 to 11 bytes of padding to a multiple of 8::

    magic 4 · crc of the header's rest 4 · crc of the body 4 · payload length 4
    kind 1 · mask 1 · reserved 6 · index 8 · term 8 · payload · padding

All numbers are little endian, all checksums CRC-32 (``zlib.crc32``) seeded with the segment's salt,
so that bytes of another file, or bytes a client made up, are not taken for records of this one.
Kinds: ENTRY (index, term, command); CUT (entries from index on are gone: a conflicting suffix is
cut by a record, never by an edit); START (all entries are gone: a snapshot was installed); SYNCED
(all bytes of this file before the offset in ``index`` were stable when this was written).

The rule for a record that does not check:

1. Bytes before an offset that a later SYNCED record, or the watermark beside the log, names were
   stable: damage. Refuse.
2. The file ends before the record does: a torn write. Cut.
3. Some whole 512-byte sector of the record (or its part of the sector, at its ends) reads as zeros:
   that sector never reached the disk. Cut. This is exact, not a guess, because no record as written
   holds such a sector: the magic is at its start, the padding (never zero) at its end, and a
   payload with 512 zeros in a row is stored with every byte xored with ``mask``.
4. One wrong byte of the header or of the body explains it (this rule computes from the checksum
   which single byte would make it right): a write that did not finish leaves whole sectors wrong,
   a bit that fell leaves one byte. Damage. Refuse.
5. Everything else was never written there: bytes of another file that had this block before (file
   systems that extend a file before they write its data: data=writeback), or a sector that was
   being written when the power went. Cut.

So a torn write may leave a short file, or zeros and other bytes in some of its sectors, in any
order. A start cuts all of this after the last synced record.

Each batch begins in a new block of 4,096 bytes: ``fill`` ends the batch before it with a SYNCED
record that reaches to the end of its block. A power cut may spoil the sector that is being written,
and the system writes whole blocks. If a batch began in the block of a synced record, that record
would be written again, and rule 5 might cut it. (512 bytes would be enough where disk and system
write single sectors. But the system writes pages of 4,096 bytes, and many disks that report 512
write 4,096. SQLite fills its log to the next sector for the same reason, unless it is configured
for "powersafe overwrite".) Older files may end anywhere; ``segments.repair_tail`` fills them.

The limit: records of the last sync are named by no SYNCED record and no watermark for about a
second. If the file is shortened in that time, or more than one of their bytes changes (to zeros,
for example, which follow the log: ``reserve``), this looks like a torn write. A member that loses
them is one failure, as a lost disk is. One flipped bit in them is found like any other.
(Conversely, one in sixteen bodies of a megabyte of random bytes looks like one wrong byte, and is
refused.)
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

MAGIC = b"RcRd"
HEADER_BYTES = 40
SECTOR_BYTES = 512
BLOCK_BYTES = 4096
ALIGNMENT_BYTES = 8
PAYLOAD_BYTES_MAX = 0xFFFF_FFFF

_REST = struct.Struct("<IIBBHIQQ")
_PADDING = b"\xa5" * (4 + ALIGNMENT_BYTES)
_FILLING = b"\xa5" * (2 * BLOCK_BYTES)
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_SAMPLE_EVERY = 61
"""A sector holds eight samples, as with 64; but what has a period, as a table of numbers has, is
looked at in another place each time."""


class RecordKind(IntEnum):
    """The kinds of records."""

    ENTRY = 1
    CUT = 2
    START = 3
    SYNCED = 4


_KINDS = {int(kind): kind for kind in RecordKind}


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read; ``end`` is the offset after it."""

    offset: int
    end: int
    kind: RecordKind
    index: int
    term: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Flaw:
    """Bytes at ``offset`` that are not a record; ``end`` is where it would end, if known."""

    offset: int
    end: int
    expected: str
    found: str


def encode(
    kind: RecordKind, index: int, term: int, payload: bytes, salt: int
) -> tuple[bytes, bytes, bytes]:
    """Return the record's bytes as header, payload and padding, so that a batch is joined once."""
    length = len(payload)
    if length > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record of {length} bytes, at most {PAYLOAD_BYTES_MAX}")
    mask = _mask_of(payload) if length >= SECTOR_BYTES and _ZERO_SECTOR in payload else 0
    if mask:
        payload = payload.translate(_xor_table(mask))
    padding = _PADDING[: _padding_bytes(length)]
    body_crc = crc32(padding, crc32(payload, salt))
    rest = _REST.pack(body_crc, length, kind, mask, 0, 0, index, term)
    return MAGIC + crc32(rest, salt).to_bytes(4, "little") + rest, payload, padding


def fill(offset: int, synced_bytes: int, salt: int) -> bytes:
    """Return the SYNCED record that begins at ``offset`` and ends where a block does."""
    shortest = HEADER_BYTES + 4 + _padding_bytes(4)
    room = -offset % BLOCK_BYTES
    room += BLOCK_BYTES if room < shortest else 0
    filling = _FILLING[: room - HEADER_BYTES - 4]
    return b"".join(encode(RecordKind.SYNCED, synced_bytes, 0, filling, salt))


def decode_at(data: bytes, offset: int, salt: int) -> Record | Flaw:
    """Return the record at ``offset``, or what is wrong with it."""
    available = len(data) - offset
    if available < HEADER_BYTES:
        return Flaw(
            offset, len(data) + 1, f"a header of {HEADER_BYTES} bytes", f"{available} bytes"
        )
    body_offset = offset + HEADER_BYTES
    if data[offset : offset + 4] != MAGIC:
        found = data[offset : offset + 4].hex()
        return Flaw(offset, body_offset, f"the magic {MAGIC.hex()}", found)
    rest = data[offset + 8 : body_offset]
    expected, found_crc = int.from_bytes(data[offset + 4 : offset + 8], "little"), crc32(rest, salt)
    if expected != found_crc:
        return Flaw(
            offset, body_offset, f"a header with crc {expected:08x}", f"crc {found_crc:08x}"
        )
    body_crc, length, kind, mask, _, _, index, term = _REST.unpack(rest)
    end = body_offset + length + _padding_bytes(length)
    if end > len(data):
        return Flaw(offset, end, f"a record of {end - offset} bytes", f"{available} bytes")
    found_crc = crc32(data[body_offset:end], salt)
    if found_crc != body_crc:
        return Flaw(offset, end, f"a body with crc {body_crc:08x}", f"crc {found_crc:08x}")
    if kind not in _KINDS:
        return Flaw(offset, end, "a known kind of record", f"kind {kind}")
    payload = data[body_offset : body_offset + length]
    if mask:
        payload = payload.translate(_xor_table(mask))
    return Record(offset, end, _KINDS[kind], index, term, payload)


def is_torn(data: bytes, flaw: Flaw, salt: int) -> bool:
    """True when a write that did not finish explains the flaw (rules 2, 3 and 5)."""
    if flaw.end > len(data):
        return True
    start = flaw.offset
    while start < flaw.end:
        end = min(flaw.end, start - start % SECTOR_BYTES + SECTOR_BYTES)
        if not any(data[start:end]):
            return True
        start = end
    return not _is_one_byte_off(data, flaw.offset, salt)


def _is_one_byte_off(data: bytes, offset: int, salt: int) -> bool:
    """Whether changing a single byte would make a whole record of what is at ``offset``."""
    body_offset = offset + HEADER_BYTES
    rest = data[offset + 8 : body_offset]
    stated = int.from_bytes(data[offset + 4 : offset + 8], "little")
    difference = stated ^ crc32(rest, salt)
    if difference:
        has_magic = data[offset : offset + 4] == MAGIC
        return has_magic and _is_of_one_byte(difference, len(rest))
    body_crc, length, *_ = _REST.unpack(rest)
    body = data[body_offset : body_offset + length + _padding_bytes(length)]
    difference = body_crc ^ crc32(body, salt)
    # A header that fits its own checksum was written here: its magic, or its kind, is damage.
    return not difference or _is_of_one_byte(difference, len(body))


def _is_of_one_byte(difference: int, length: int) -> bool:
    """Whether two CRCs differ by this when one byte of ``length``, or of the CRC, is another.

    A CRC is linear: the byte alone decides the difference, and each byte that follows moves it on
    by a step that can be taken back (Stigge and others, "Reversing CRC", 2006)."""
    if sum(1 for shift in (0, 8, 16, 24) if difference >> shift & 0xFF) == 1:
        return True
    table, step_of = _crc_steps()
    of_last_byte = set(table[1:])
    for _ in range(length):
        if difference in of_last_byte:
            return True
        step = step_of[difference >> 24]
        difference = (difference ^ table[step]) << 8 & 0xFFFFFFFF | step
    return False


@functools.cache
def _crc_steps() -> tuple[tuple[int, ...], dict[int, int]]:
    """Return what each byte changes a CRC by, and which one did, by the highest byte of that."""
    of_zero = crc32(b"\0")
    table = tuple(crc32(bytes((byte,))) ^ of_zero for byte in range(256))
    return table, {entry >> 24: byte for byte, entry in enumerate(table)}


def synced_offset_after(data: bytes, offset: int, salt: int) -> int:
    """Return the highest offset that a SYNCED record beyond ``offset`` names; 0 if there is none.

    The search is for whole valid records at every aligned place, for lengths after a flaw
    cannot be trusted."""
    highest = 0
    place = data.find(MAGIC, offset + 1)
    while place >= 0:
        if place % ALIGNMENT_BYTES == 0:
            record = decode_at(data, place, salt)
            if isinstance(record, Record) and record.kind is RecordKind.SYNCED:
                highest = max(highest, record.index)
        place = data.find(MAGIC, place + 1)
    return highest


def scan(data: bytes, offset: int, salt: int) -> Iterator[Record | Flaw]:
    """Yield the records from ``offset`` on; a flaw, if there is one, comes last."""
    while offset < len(data):
        record = decode_at(data, offset, salt)
        yield record
        if isinstance(record, Flaw):
            return
        offset = record.end


def _padding_bytes(length: int) -> int:
    return 4 + -(length + 4) % ALIGNMENT_BYTES


def _mask_of(payload: bytes) -> int:
    # A sector of equal bytes holds some samples in a row. To search all of a payload for each mask
    # would hold the loop for a second where a client has made it to fit most of them.
    # A payload that defeats all 255 masks is over 127 KiB and made to; it is stored as it is,
    # and a flaw in it may be taken for a torn write while it is the last record of the log.
    samples = payload[::_SAMPLE_EVERY]
    for mask in range(1, 256):
        if bytes((mask,)) * (SECTOR_BYTES // _SAMPLE_EVERY) not in samples:
            return mask
    return 0


def _xor_table(mask: int) -> bytes:
    return bytes(byte ^ mask for byte in range(256))
