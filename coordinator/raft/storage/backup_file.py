"""The backup file as bytes: a header, a snapshot as it is, the entries behind it, a digest.

::

    header    a line of JSON: what is in the file, and how long its parts are
    snapshot  the bytes of a snapshot file (``snapshot_file``); none if there was no snapshot
    entries   each: crc 4 · length 4 · index 8 · term 8 · bytes, one after the other in the log
    footer    a line of JSON: how many entries there are, and a SHA-256

1. The digest is of the header, of the snapshot's own SHA-256 and of the entries. The snapshot is
   checked against its own. So a file that was cut, or changed at any byte, is refused, and a member
   that sends one need not read a snapshot of gigabytes before its first byte.
2. All bytes follow from the header, the snapshot and the entries. So what was sent before a
   transfer broke is the beginning of what is sent afterwards.
3. A reader checks all of it before anything is used (``BackupFile.check``).
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from zlib import crc32

from coordinator.errors import StorageError
from coordinator.raft.storage import snapshot_file
from coordinator.raft.storage.disk import Disk, DiskFile
from coordinator.raft.storage.segments import Entry
from coordinator.raft.storage.snapshot_file import UnsoundError

FORMAT = 1
HEADER_BYTES_MAX = 64 * 1024
ENTRY_BYTES_MAX = 64 * 1024 * 1024
"""An entry longer than this is refused when read; a member's frames hold far less."""
_RECORD = struct.Struct("<IIQQ")
RECORD_HEAD_BYTES = _RECORD.size


class UnsoundBackupError(StorageError):
    """The file is no whole backup: it was cut or changed, or is something else."""

    code = "UnsoundBackup"
    definite = True


@dataclass(frozen=True, slots=True)
class Header:
    """What is in a backup; ``time`` is the member's time of day when it was begun, in UTC.

    ``snapshot_index`` is 0 if there was no snapshot. The state is that after ``last_index``."""

    coordinator_backup: int
    backup_id: str
    cluster: str
    cluster_id: str
    member_id: str
    release: str
    level: int
    time: str
    zxid: int
    snapshot_index: int
    snapshot_term: int
    snapshot_bytes: int
    snapshot_sha256: str
    entries: int
    entries_bytes: int
    last_index: int
    last_term: int

    def encoded(self) -> bytes:
        """Return the line."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def in_words(self) -> str:
        """Say what the backup holds."""
        return (
            f"cluster {self.cluster!r}, id {self.cluster_id}, from member {self.member_id!r} at"
            f" {self.time}: the state at zxid {self.zxid}, after entry {self.last_index} of term"
            f" {self.last_term} (a snapshot at entry {self.snapshot_index} of"
            f" {self.snapshot_bytes} bytes, and {self.entries} entries behind it); release"
            f" {self.release}, level {self.level}"
        )


def encode_entry(entry: Entry) -> bytes:
    """Return an entry of the log as it lies in the file."""
    data, index, term = entry
    return _RECORD.pack(_crc(data, index, term), len(data), index, term) + data


def encode_footer(entries: int, sha256: bytes) -> bytes:
    """Return the line that ends the file."""
    return json.dumps({"entries": entries, "sha256": sha256.hex()}).encode() + b"\n"


def digest_of(header: bytes, snapshot_sha256: str) -> hashlib._Hash:
    """Return the digest of a file's beginning; its entries are to be added as they lie there."""
    return hashlib.sha256(header + bytes.fromhex(snapshot_sha256))


def _crc(data: bytes, index: int, term: int) -> int:
    return crc32(data, crc32(index.to_bytes(8, "little") + term.to_bytes(8, "little")))


def read_header(first: bytes) -> Header:
    """Return the header of a file that begins with these bytes.

    Raises:
        UnsoundError: it is none.
    """
    line, end, _ = first.partition(b"\n")
    try:
        if not end:
            raise ValueError("no line")
        found = json.loads(line)
        number = found["coordinator_backup"]
        if number != FORMAT:
            raise UnsoundError(0, f"a backup of format {FORMAT}", f"one of format {number!r:.40}")
        header = Header(**{each.name: found[each.name] for each in fields(Header)})
        bytes.fromhex(header.snapshot_sha256)
        numbers = [getattr(header, each.name) for each in fields(Header) if each.type == "int"]
        if header.encoded() != line + end or min(numbers) < 0 or set(map(type, numbers)) != {int}:
            raise ValueError("another line says the same")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnsoundError(0, "the header of a backup", "something else") from error
    return header


class BackupFile:
    """A backup that lies on a disk; ``close`` it when done.

    Raises:
        StorageError: it cannot be read, or does not begin with the header of a backup.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._file = disk.open_read(path)
        try:
            self._size = self._file.size_bytes()
            self.header = read_header(self._file.read_at(0, HEADER_BYTES_MAX))
        except UnsoundError as error:
            self._file.close()
            raise self._refusal(error) from error
        except BaseException:
            self._file.close()
            raise
        self._snapshot_at = len(self.header.encoded())
        self._entries_at = self._snapshot_at + self.header.snapshot_bytes
        self._end_at = self._entries_at + self.header.entries_bytes

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def check(self) -> None:
        """Read all of it; StorageError if it was cut, or changed at any byte."""
        try:
            self._check_size()
            for _ in self._snapshot_pieces():
                pass
            for _ in self._checked_entries():
                pass
        except UnsoundError as error:
            raise self._refusal(error) from error

    def snapshot_pieces(self) -> Iterator[bytes]:
        """Yield the pieces of the snapshot; none if there is no snapshot. StorageError as
        ``check``."""
        try:
            yield from self._snapshot_pieces()
        except UnsoundError as error:
            raise self._refusal(error) from error

    def entries(self) -> Iterator[Entry]:
        """Yield the entries behind the snapshot. StorageError as ``check``."""
        try:
            yield from self._checked_entries()
        except UnsoundError as error:
            raise self._refusal(error) from error

    def _check_size(self) -> None:
        header = self.header
        footer = encode_footer(header.entries, bytes(hashlib.sha256().digest_size))
        if self._size != self._end_at + len(footer):
            raise UnsoundError(
                self._size, f"a file of {self._end_at + len(footer)} bytes", f"{self._size} bytes"
            )

    def _snapshot_pieces(self) -> Iterator[bytes]:
        header = self.header
        if not header.snapshot_bytes:
            return
        part = _Part(self._file, self._snapshot_at, header.snapshot_bytes)
        outline = snapshot_file.read_outline(part)
        _, index, term = outline.last_entry
        found = index, term, outline.sha256.hex()
        expected = header.snapshot_index, header.snapshot_term, header.snapshot_sha256
        if found != expected:
            raise UnsoundError(self._snapshot_at, f"the snapshot {expected}", f"{found}")
        yield from snapshot_file.iterate_checked(part, outline)

    def _checked_entries(self) -> Iterator[Entry]:
        """Yield the entries; behind the last one the digest is compared."""
        header, offset = self.header, self._entries_at
        digest = digest_of(header.encoded(), header.snapshot_sha256)
        index, term = header.snapshot_index, header.snapshot_term
        count = 0
        while offset < self._end_at:
            head = self._file.read_at(offset, RECORD_HEAD_BYTES)
            if len(head) < RECORD_HEAD_BYTES:
                raise UnsoundError(offset, "an entry", f"{len(head)} bytes")
            crc, length, next_index, term = _RECORD.unpack(head)
            if length > min(ENTRY_BYTES_MAX, self._end_at - offset - RECORD_HEAD_BYTES):
                raise UnsoundError(offset, "an entry that ends before the footer", f"{length}")
            data = self._file.read_at(offset + RECORD_HEAD_BYTES, length)
            if len(data) < length or crc != _crc(data, next_index, term):
                raise UnsoundError(offset, f"entry {index + 1} with crc {crc:08x}", "another")
            if next_index != index + 1:
                raise UnsoundError(offset, f"entry {index + 1}", f"entry {next_index}")
            digest.update(head)
            digest.update(data)
            yield data, next_index, term
            index, count = next_index, count + 1
            offset += RECORD_HEAD_BYTES + length
        found = count, index, term
        expected = header.entries, header.last_index, header.last_term
        if found != expected:
            raise UnsoundError(offset, f"entries {expected}", f"{found}")
        footer = encode_footer(count, digest.digest())
        if self._file.read_at(offset, len(footer) + 1) != footer:
            raise UnsoundError(offset, "a footer with the digest of what is before it", "another")

    def _refusal(self, error: UnsoundError) -> StorageError:
        return UnsoundBackupError(
            f"{self.path}: this is no whole backup: it was cut, or changed, {error}",
            path=self.path,
            offset=error.offset,
            expected=error.expected,
            found=error.found,
        )


class _Part:
    """A part of a file, read as a file of its own."""

    def __init__(self, file: DiskFile, offset: int, size: int) -> None:
        self._file, self._offset, self._size = file, offset, size

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset`` on."""
        return self._file.read_at(self._offset + offset, min(length, self._size - offset))

    def size_bytes(self) -> int:
        """Return how long the part is."""
        return self._size
