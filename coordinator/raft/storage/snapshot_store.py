"""Snapshots on disk: written piece by piece, kept, sent, received, installed.

1. A snapshot gets its name only when it is whole and stable: written under a temporary name,
   synced, renamed, directory synced. A crash before that leaves the older ones, and a temporary
   file that the next start removes.
2. Only the newest snapshot counts. If it is damaged the member must stop. The log before it may be
   gone, so with an older state the member would look healthy and have lost data.
3. A received snapshot is checked as a whole before it gets its name. Bad bytes from outside are a
   SnapshotTransferError and change nothing; a StorageError means that this disk failed.
4. The newest two are kept. A reader can read a file to its end after it was replaced or removed.

``write``, ``receive`` and ``read`` are small steps for the event loop; ``finish``, ``decoded`` and
``finish_receive`` sync or read everything and may be called in a thread, one call at a time.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from coordinator.errors import CoordinatorError, StorageError
from coordinator.raft.storage import snapshot_file
from coordinator.raft.storage.disk import Disk, DiskFile, join
from coordinator.raft.storage.segments import Entry
from coordinator.raft.storage.snapshot_file import (
    FOOTER_BYTES,
    PIECE_BYTES_MAX,
    Outline,
    UnsoundError,
)

SNAPSHOT_BYTES_MAX = 16 * 1024 * 1024 * 1024
SNAPSHOTS_KEPT = 2
_NAME = re.compile(r"(\d{20})-(\d{20})\.snapshot")
_TEMPORARY_SUFFIX = ".tmp"
_WRITING = "writing.tmp"
_RECEIVING = "receiving.tmp"

_T = TypeVar("_T")


class SnapshotTransferError(CoordinatorError):
    """What another member sent is not a snapshot in sequence; nothing here changed."""

    code = "SnapshotTransfer"


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """A whole snapshot on this disk; ``index`` and ``term`` are of the last entry in it."""

    index: int
    term: int
    size_bytes: int
    sha256: bytes
    path: str


class SnapshotWriter:
    """A snapshot being written; ``begin_write`` of the store makes it."""

    def __init__(self, store: SnapshotStore, file: DiskFile, header: bytes) -> None:
        self._store = store
        self._file = file
        self._digest = hashlib.sha256()
        self._size_bytes = 0
        self._piece_count = 0
        self._is_open = True
        self._append(header)

    def write(self, piece: bytes) -> None:
        """Append a piece; ``decoded`` of the reader gets it unchanged."""
        self._require_open()
        if len(piece) > PIECE_BYTES_MAX:
            raise StorageError(
                f"{self._file.path}: a piece of {len(piece)} bytes, at most {PIECE_BYTES_MAX}"
            )
        self._append(snapshot_file.encode_piece(self._piece_count, piece))
        self._piece_count += 1

    def write_out(self) -> None:
        """Begin to write the pieces to the disk; may wait."""
        self._file.write_out()

    def finish(self) -> SnapshotInfo:
        """Make it stable and the newest; return it, or a newer one that was received meanwhile.

        After an error it is removed and cannot be finished any more."""
        self._require_open()
        footer = snapshot_file.encode_footer(
            self._size_bytes, self._piece_count, self._digest.digest()
        )
        self._append(footer)
        self._is_open = False
        self._file.sync()
        return self._store._install(self._file)

    def abort(self) -> None:
        """Drop it; nothing if it is finished or dropped already."""
        if self._is_open:
            self._is_open = False
            self._store._drop(self._file)

    def _append(self, data: bytes) -> None:
        if self._size_bytes + len(data) > self._store.snapshot_bytes_max:
            raise StorageError(
                f"{self._file.path}: a snapshot over {self._store.snapshot_bytes_max} bytes"
            )
        self._file.write(data)
        self._digest.update(data)
        self._size_bytes += len(data)

    def _require_open(self) -> None:
        if not self._is_open:
            raise StorageError(f"{self._file.path}: this snapshot was finished or dropped")


class SnapshotReader:
    """An open snapshot; ``open`` of the store makes it."""

    def __init__(self, info: SnapshotInfo, file: DiskFile, outline: Outline, piece: int) -> None:
        self.info = info
        self._file = file
        self._outline = outline
        self._piece_bytes = piece

    def decoded(self, decode: Callable[[Iterator[bytes]], _T]) -> _T:
        """Return what ``decode`` makes of the pieces as they were written, which are checked
        meanwhile: the file is read once.

        Raises:
            StorageError: not everything fits.
            ValueError: everything does, and ``decode`` raised this.
        """
        pieces = snapshot_file.iterate_checked(self._file, self._outline)
        try:
            found = decode(pieces)
            for _ in pieces:  # what it did not need is checked, too
                pass
        except UnsoundError as error:
            raise _unsound(self._file.path, error) from error
        except ValueError:
            # If the file is not as it was written, that is why.
            _as_storage_error(self._file, lambda: snapshot_file.check(self._file, self._outline))
            raise
        return found

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes of the file, for sending; at most the store's ``piece_bytes``."""
        return self._file.read_at(offset, min(length, self._piece_bytes))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SnapshotStore:
    """The snapshots of one member, in a directory of their own."""

    def __init__(
        self,
        directory: str,
        disk: Disk,
        *,
        piece_bytes: int,
        snapshot_bytes_max: int = SNAPSHOT_BYTES_MAX,
    ) -> None:
        """Remove temporary files and read the header of the newest snapshot.

        Raises:
            StorageError: the newest one is not sound (its length, header and footer; the rest is
                ``decoded``'s), or the directory cannot be used."""
        self.piece_bytes = piece_bytes
        self.snapshot_bytes_max = snapshot_bytes_max
        self._directory = directory
        self._disk = disk
        self._writer: SnapshotWriter | None = None
        self._receiving: _Receiving | None = None
        disk.make_directory(directory)
        for name in disk.list_directory(directory):
            if name.endswith(_TEMPORARY_SUFFIX):
                disk.remove(join(directory, name))
        disk.sync_directory(directory)
        names = self._names()
        self._latest = self._look(join(directory, names[-1])) if names else None

    def latest(self) -> SnapshotInfo | None:
        """Return the newest snapshot, None when there is none."""
        return self._latest

    def open(self, info: SnapshotInfo) -> SnapshotReader:
        """Open a snapshot for reading; close it when done."""
        file = self._disk.open_read(info.path)
        try:
            outline = _as_storage_error(file, lambda: snapshot_file.read_outline(file))
        except StorageError:
            file.close()
            raise
        return SnapshotReader(info, file, outline, self.piece_bytes)

    def begin_write(self, last_entry: Entry, previous_entry: Entry) -> SnapshotWriter:
        """Start a snapshot of the state after ``last_entry``; one at a time."""
        if self._writer is not None:
            self._writer.abort()
        header = snapshot_file.encode_header(last_entry, previous_entry)
        file = self._disk.create(join(self._directory, _WRITING))
        try:
            self._writer = SnapshotWriter(self, file, header)
        except StorageError:
            file.close()
            raise
        return self._writer

    @property
    def received_bytes(self) -> int:
        """Where the next received piece must start; 0 when nothing is under way."""
        return self._receiving.size_bytes if self._receiving is not None else 0

    def begin_receive(self, total_bytes: int, sha256: bytes) -> None:
        """Start receiving the file that ``SnapshotInfo`` on the sender describes.

        A transfer under way is dropped. Raises SnapshotTransferError when it is too large."""
        self.abort_receive()
        if not FOOTER_BYTES < total_bytes <= self.snapshot_bytes_max:
            raise SnapshotTransferError(
                f"a snapshot of {total_bytes} bytes, at most {self.snapshot_bytes_max}"
            )
        file = self._disk.create(join(self._directory, _RECEIVING))
        self._receiving = _Receiving(file, total_bytes, sha256)

    def receive(self, offset: int, data: bytes) -> None:
        """Take the next bytes of the file; out of sequence is a SnapshotTransferError."""
        receiving = self._under_way()
        if offset != receiving.size_bytes:
            raise SnapshotTransferError(
                f"a piece at offset {offset}, expected {receiving.size_bytes}"
            )
        if len(data) > self.piece_bytes or offset + len(data) > receiving.total_bytes:
            raise SnapshotTransferError(
                f"a piece of {len(data)} bytes at offset {offset}, at most {self.piece_bytes}, "
                f"in a snapshot of {receiving.total_bytes}"
            )
        receiving.file.write(data)
        receiving.size_bytes += len(data)

    def finish_receive(self, *, term_max: int) -> SnapshotInfo:
        """Check the whole file, then make it stable and install it.

        Raises SnapshotTransferError, and drops what was received, unless it is the snapshot
        announced, newer than the newest here, and of no later term than its leader's."""
        receiving = self._under_way()
        self._receiving = None
        try:
            self._check_received(receiving, term_max)
        except UnsoundError as error:
            self._drop(receiving.file)
            raise SnapshotTransferError(f"the snapshot received is not sound: {error}") from error
        except CoordinatorError:
            self._drop(receiving.file)
            raise
        receiving.file.sync()
        return self._install(receiving.file)

    def abort_receive(self) -> None:
        """Drop a transfer under way, if there is one."""
        receiving, self._receiving = self._receiving, None
        if receiving is not None:
            self._drop(receiving.file)

    def _under_way(self) -> _Receiving:
        if self._receiving is None:
            raise SnapshotTransferError("no transfer is under way")
        return self._receiving

    def _check_received(self, receiving: _Receiving, term_max: int) -> None:
        if receiving.size_bytes != receiving.total_bytes:
            raise SnapshotTransferError(
                f"{receiving.size_bytes} bytes received of {receiving.total_bytes}"
            )
        outline = snapshot_file.read_outline(receiving.file)
        if outline.sha256 != receiving.sha256:
            raise SnapshotTransferError(
                f"sha256 {outline.sha256.hex()} instead of {receiving.sha256.hex()}"
            )
        snapshot_file.check(receiving.file, outline)
        term = outline.last_entry[2]
        if term > term_max:
            raise SnapshotTransferError(f"it ends in term {term}, after the leader's {term_max}")
        index = outline.last_entry[1]
        if self._latest is not None and index < self._latest.index:
            raise SnapshotTransferError(
                f"a snapshot at index {index} is older than the one here, at {self._latest.index}"
            )

    def _install(self, file: DiskFile) -> SnapshotInfo:
        """Give a synced file its name, make that stable, and drop the oldest.

        If a newer one was installed meanwhile, that one stays and is returned."""
        outline = _as_storage_error(file, lambda: snapshot_file.read_outline(file))
        _, index, term = outline.last_entry
        path = join(self._directory, f"{index:020d}-{term:020d}.snapshot")
        if self._latest is not None and index < self._latest.index:
            self._drop(file)
            return self._latest
        file.close()
        self._disk.rename(file.path, path)
        self._disk.sync_directory(self._directory)
        self._latest = _info(path, outline)
        for name in self._names()[:-SNAPSHOTS_KEPT]:
            self._disk.remove(join(self._directory, name))
        return self._latest

    def _drop(self, file: DiskFile) -> None:
        file.close()
        if self._disk.exists(file.path):
            self._disk.remove(file.path)

    def _names(self) -> list[str]:
        names = self._disk.list_directory(self._directory)
        return [name for name in names if _NAME.fullmatch(name)]

    def _look(self, path: str) -> SnapshotInfo:
        file = self._disk.open_read(path)
        try:
            info = _info(path, _as_storage_error(file, lambda: snapshot_file.read_outline(file)))
        finally:
            file.close()
        if not path.endswith(f"/{info.index:020d}-{info.term:020d}.snapshot"):
            raise StorageError(
                f"{path}: expected its own name, found the snapshot of index {info.index} and term"
                f" {info.term}; this member must be replaced"
            )
        return info


@dataclass(slots=True)
class _Receiving:
    file: DiskFile
    total_bytes: int
    sha256: bytes
    size_bytes: int = 0


def _info(path: str, outline: Outline) -> SnapshotInfo:
    _, index, term = outline.last_entry
    return SnapshotInfo(index, term, outline.size_bytes, outline.sha256, path)


def _as_storage_error(file: DiskFile, call: Callable[[], _T]) -> _T:
    try:
        return call()
    except UnsoundError as error:
        raise _unsound(file.path, error) from error


def _unsound(path: str, error: UnsoundError) -> StorageError:
    return StorageError(
        f"{path}: damaged {error}; this member must be replaced, or its disk repaired",
        path=path,
        offset=error.offset,
        expected=error.expected,
        found=error.found,
    )
