"""A backup of one member: its newest snapshot and the entries of its log behind it.

A snapshot file never changes, and can be read to its end after it was replaced. The entries are in
memory. So a backup holds one open file and a list of references: nothing is copied, nothing is
captured of the running state, and the log is trimmed as if nobody read. The bytes of a backup
(``backup_file``) are fixed when it begins, and read in any order, as often as needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from coordinator.errors import StorageError, UnavailableError
from coordinator.raft.engine import BackupFacts, Replica
from coordinator.raft.rejoin.refounding import Position, apply_entries
from coordinator.raft.storage.backup_file import (
    FORMAT,
    RECORD_HEAD_BYTES,
    BackupFile,
    Header,
    digest_of,
    encode_entry,
    encode_footer,
)
from coordinator.raft.storage.segments import Entry
from coordinator.raft.storage.snapshot_store import SnapshotReader

ENTRIES_AT_ONCE = 500
BYTES_AT_ONCE = 512 * 1024
"""What one step of ``prepare`` goes through: about a millisecond."""


def entries_behind(
    reader: SnapshotReader | None, log: Sequence[Entry], applied_index: int
) -> Sequence[Entry]:
    """Return the entries of ``log`` behind the snapshot, up to the one that was applied last.

    Raises:
        UnavailableError: the snapshot holds more than was applied; it is about to be installed.
        StorageError: entries are missing between them.
    """
    begin = 1 if reader is None else reader.info.index + 1
    first = log[0][1] if len(log) else begin
    if applied_index < begin - 1:
        raise UnavailableError("this member installs a snapshot: ask again, or another member")
    if first > begin:
        raise StorageError(f"expected a log that begins by entry {begin}, found {first}")
    return log[begin - first : applied_index + 1 - first]


class HeldBackup:
    """The bytes of one backup; ``prepare`` it, then ``read``.

    Args:
        reader: of the newest snapshot, closed with this; None if there is none.
        entries: all behind it, up to where the backup ends; not changed meanwhile.
        facts: of the state after the last of them.
    """

    def __init__(
        self,
        reader: SnapshotReader | None,
        entries: Sequence[Entry],
        facts: BackupFacts,
        member_id: str,
        cluster_id: str,
    ) -> None:
        self._reader = reader
        self._entries = entries
        self._facts = facts
        self._names = member_id, cluster_id
        self._begin = b""
        """The header."""
        self._ends: list[int] = []
        """Where each entry ends, from the first one's beginning."""
        self._footer = b""

    def prepare(self) -> Iterator[None]:
        """Make header and digest in small steps: each ``next`` is one."""
        end = 0
        for number, (data, _, _) in enumerate(self._entries, 1):
            end += RECORD_HEAD_BYTES + len(data)
            self._ends.append(end)
            if not number % ENTRIES_AT_ONCE:
                yield
        header = self._header()
        self._begin = header.encoded()
        digest, since = digest_of(self._begin, header.snapshot_sha256), 0
        for number, entry in enumerate(self._entries, 1):
            record = encode_entry(entry)
            digest.update(record)
            since += len(record)
            if since >= BYTES_AT_ONCE or not number % ENTRIES_AT_ONCE:
                since = 0
                yield
        self._footer = encode_footer(header.entries, digest.digest())

    def _header(self) -> Header:
        info, facts = None if self._reader is None else self._reader.info, self._facts
        index, term = (0, 0) if info is None else (info.index, info.term)
        if self._entries:
            _, index, term = self._entries[-1]
        member_id, cluster_id = self._names
        return Header(
            coordinator_backup=FORMAT,
            backup_id=facts.backup_id,
            cluster=facts.cluster,
            cluster_id=cluster_id,
            member_id=member_id,
            release=facts.release,
            level=facts.level,
            time=facts.time,
            zxid=facts.zxid,
            snapshot_index=0 if info is None else info.index,
            snapshot_term=0 if info is None else info.term,
            snapshot_bytes=0 if info is None else info.size_bytes,
            snapshot_sha256="" if info is None else info.sha256.hex(),
            entries=len(self._entries),
            entries_bytes=self._ends[-1] if self._ends else 0,
            last_index=index,
            last_term=term,
        )

    @property
    def size_bytes(self) -> int:
        """How long it is, once it is prepared."""
        return self._entries_at + self._entries_bytes + len(self._footer)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset`` on; less where a part ends. StorageError:
        the snapshot cannot be read."""
        for begin, end, read in (
            (0, len(self._begin), self._read_header),
            (len(self._begin), self._entries_at, self._read_snapshot),
            (self._entries_at, self._entries_at + self._entries_bytes, self._read_entries),
            (self._entries_at + self._entries_bytes, self.size_bytes, self._read_footer),
        ):
            if begin <= offset < end:
                return read(offset - begin, min(length, end - offset))
        return b""

    def close(self) -> None:
        """Close the snapshot; the entries are of the log."""
        if self._reader is not None:
            self._reader.close()

    @property
    def _entries_at(self) -> int:
        return len(self._begin) + (0 if self._reader is None else self._reader.info.size_bytes)

    @property
    def _entries_bytes(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _read_header(self, offset: int, length: int) -> bytes:
        return self._begin[offset : offset + length]

    def _read_snapshot(self, offset: int, length: int) -> bytes:
        assert self._reader is not None, "it has bytes"
        data = self._reader.read(offset, length)
        if not data:
            raise StorageError(f"{self._reader.info.path}: it was cut while it was read")
        return data

    def _read_entries(self, offset: int, length: int) -> bytes:
        number = bisect_right(self._ends, offset)
        skipped = offset - (self._ends[number - 1] if number else 0)
        parts, size = [], -skipped
        while size < length and number < len(self._entries):
            record = encode_entry(self._entries[number])
            parts.append(record)
            size += len(record)
            number += 1
        return b"".join(parts)[skipped : skipped + length]

    def _read_footer(self, offset: int, length: int) -> bytes:
        return self._footer[offset : offset + length]


def replay(file: BackupFile, replica: Replica) -> Position:
    """Bring the empty ``replica`` to the state that a checked backup holds; return its last entry.

    Raises:
        StorageError: the file is not whole, or this release cannot read what is in it.
    """
    header = file.header
    try:
        if header.snapshot_bytes:
            replica.prepare_restore(file.snapshot_pieces())()
    except ValueError as error:
        raise StorageError(
            f"{file.path}: its snapshot cannot be decoded: {error}; restore it with release"
            f" {header.release}, which wrote it",
            path=file.path,
        ) from error
    at = Position(header.snapshot_index, header.snapshot_term)
    return apply_entries(replica, at, file.entries())
