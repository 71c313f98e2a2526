"""Snapshots on disk: written, kept, sent, received. (Skeleton: the signatures.)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from coordinator.errors import CoordinatorError
from coordinator.raft.disk import Disk

Entry = tuple[bytes, int, int]


class SnapshotTransferError(CoordinatorError):
    """What another member sends is not a snapshot in sequence; nothing here changed.

    Fields: ``expected_offset`` where a piece was out of sequence."""

    code = "SnapshotTransfer"


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A whole snapshot file on this disk."""

    index: int
    term: int
    size_bytes: int
    sha256: bytes
    path: str
    last_entry: Entry
    """The last entry applied in it: PySyncObj's ``data[1]``."""
    previous_entry: Entry
    """The entry before that one: PySyncObj's ``data[2]``."""


class SnapshotWriter:
    """One snapshot being written; nobody sees it before ``finish``."""

    def write(self, piece: bytes) -> None:
        raise NotImplementedError

    def finish(self) -> SnapshotInfo:
        """Sync, rename, sync the directory, drop all but the newest two."""
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError


class SnapshotReader:
    """An open snapshot; stays readable when newer ones replace it."""

    info: SnapshotInfo

    def verify(self) -> None:
        """Read the whole file; StorageError unless every checksum fits."""
        raise NotImplementedError

    def pieces(self) -> Iterator[bytes]:
        """The pieces as they were written; ``verify`` first."""
        raise NotImplementedError

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the file, for sending; at most ``piece_bytes`` at once."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class SnapshotStore:
    """The snapshots of one member."""

    def __init__(
        self, directory: str, disk: Disk, *, piece_bytes: int, snapshot_bytes_max: int = 1 << 34
    ) -> None:
        """Remove what was left half done; StorageError if the newest snapshot is not sound."""
        raise NotImplementedError

    def latest(self) -> SnapshotInfo | None:
        raise NotImplementedError

    def open(self, info: SnapshotInfo) -> SnapshotReader:
        raise NotImplementedError

    def begin_write(self, last_entry: Entry, previous_entry: Entry) -> SnapshotWriter:
        raise NotImplementedError

    def begin_receive(self, total_bytes: int, sha256: bytes) -> None:
        """Start receiving; a transfer under way is dropped."""
        raise NotImplementedError

    @property
    def received_bytes(self) -> int:
        """The offset at which the next received piece must start; 0 when nothing is under way."""
        raise NotImplementedError

    def receive(self, offset: int, data: bytes) -> None:
        raise NotImplementedError

    def finish_receive(self) -> SnapshotInfo:
        """Verify the whole file, then install it."""
        raise NotImplementedError

    def abort_receive(self) -> None:
        raise NotImplementedError
