"""The little of a file system that the log and the snapshots need, and the real one.

Nothing above this file touches ``os``; a simulation passes its own disk. Paths are plain strings.

1. ``write`` returns when all bytes are handed to the system, not when they are stable.
2. ``sync`` returns when the file's bytes and length are stable (fdatasync); it is never called
   again after it failed, for the system then reports pages as clean that never reached the disk
   (Rebello et al., "Can applications recover from fsync failures?", ATC 2020).
3. A name is stable only after ``sync_directory`` (Pillai et al., OSDI 2014).
4. Every failure is a ``StorageError`` that names the operation, the path and the reason.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

from coordinator.errors import DiskFullError, StorageError

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})

T = TypeVar("T")


class DiskFile(Protocol):
    """An open file. Appends and overwrites; no position is shared between readers."""

    @property
    def path(self) -> str: ...

    def write(self, data: bytes) -> None:
        """Append ``data``, all of it."""
        ...

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite ``data`` at ``offset``, all of it."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def size_bytes(self) -> int: ...

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Make the bytes and the length stable. May be called from another thread."""
        ...

    def close(self) -> None: ...


class DirectoryLock(Protocol):
    """Held by at most one process; gone with its process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """What the log and the snapshots ask of a file system."""

    def create(self, path: str) -> DiskFile:
        """Create an empty file for appending, replacing one of that name."""
        ...

    def open_append(self, path: str) -> DiskFile:
        """Open an existing file for appending and reading."""
        ...

    def open_read(self, path: str) -> DiskFile: ...

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Give ``source`` the name ``target``, atomically replacing what had it."""
        ...

    def remove(self, path: str) -> None: ...

    def exists(self, path: str) -> bool: ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and its parents, for the owner only, if they are not there."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in it stable."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock:
        """Make this process the only user of it; StorageError if another one is."""
        ...


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``."""
    return f"{directory.rstrip('/')}/{name}"


def storage_error(operation: str, path: str, error: OSError) -> StorageError:
    """Return what ``error`` means to this product; a full disk is told apart."""
    kind = DiskFullError if error.errno in _FULL else StorageError
    reason = error.strerror or str(error)
    return kind(f"{operation} {path}: {reason}", path=path, operation=operation)


def _checked(operation: str, path: str, call: Callable[[], T]) -> T:
    try:
        return call()
    except OSError as error:
        raise storage_error(operation, path, error) from error


class OsFile:
    """A file of the operating system, used by descriptor."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        self._descriptor = _checked("open", path, lambda: os.open(path, flags, FILE_MODE))

    @property
    def path(self) -> str:
        return self._path

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._written("write", lambda v: os.write(self._descriptor, v), view) :]

    def write_at(self, offset: int, data: bytes) -> None:
        # Not pwrite on the appending descriptor: Linux ignores the offset under O_APPEND.
        descriptor = _checked("open", self._path, lambda: os.open(self._path, os.O_WRONLY))
        try:
            view = memoryview(data)
            while view:
                at = offset + len(data) - len(view)
                view = view[
                    self._written("write", lambda v, at=at: os.pwrite(descriptor, v, at), view) :
                ]
        finally:
            os.close(descriptor)

    def _written(
        self, operation: str, call: Callable[[memoryview], int], view: memoryview
    ) -> int:
        count = _checked(operation, self._path, lambda: call(view))
        if count <= 0:
            raise StorageError(
                f"{operation} {self._path}: the system wrote nothing of {len(view)} bytes",
                path=self._path,
                operation=operation,
            )
        return count

    def read_at(self, offset: int, length: int) -> bytes:
        parts = []
        while length > 0:
            part = _checked(
                "read",
                self._path,
                lambda length=length, offset=offset: os.pread(self._descriptor, length, offset),
            )
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    def size_bytes(self) -> int:
        return _checked("stat", self._path, lambda: os.fstat(self._descriptor).st_size)

    def truncate(self, size_bytes: int) -> None:
        _checked("truncate", self._path, lambda: os.ftruncate(self._descriptor, size_bytes))

    def sync(self) -> None:
        _checked("sync", self._path, lambda: os.fdatasync(self._descriptor))

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            _checked("close", self._path, lambda: os.close(descriptor))


class OsDirectoryLock:
    """A lock file held with flock(2): it goes with the process, however that ends."""

    def __init__(self, path: str) -> None:
        self._descriptor = _checked(
            "lock", path, lambda: os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        )
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise storage_error("lock", path, error) from error
            raise StorageError(
                f"lock {path}: another process uses this directory", path=path, operation="lock"
            ) from error

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsDisk:
    """The operating system's file system: plain appends, fdatasync, no memory maps."""

    LOCK_NAME = "LOCK"

    def create(self, path: str) -> DiskFile:
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def open_append(self, path: str) -> DiskFile:
        return OsFile(path, os.O_RDWR | os.O_APPEND)

    def open_read(self, path: str) -> DiskFile:
        return OsFile(path, os.O_RDONLY)

    def read(self, path: str) -> bytes:
        file = self.open_read(path)
        try:
            return file.read_at(0, file.size_bytes())
        finally:
            file.close()

    def rename(self, source: str, target: str) -> None:
        _checked("rename", source, lambda: os.replace(source, target))

    def remove(self, path: str) -> None:
        _checked("remove", path, lambda: os.remove(path))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            # Not being able to tell is not "no": a missing log would look like a new member.
            raise storage_error("stat", path, error) from error
        return True

    def list_directory(self, path: str) -> list[str]:
        return sorted(_checked("list", path, lambda: os.listdir(path)))

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self.make_directory(parent)
        _checked("make", path, lambda: os.mkdir(path, DIRECTORY_MODE))
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        descriptor = _checked("open", path, lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        try:
            _checked("sync", path, lambda: os.fsync(descriptor))
        finally:
            os.close(descriptor)

    def lock_directory(self, path: str) -> DirectoryLock:
        return OsDirectoryLock(join(path, self.LOCK_NAME))
