"""The disk: the few file operations that the log and the snapshots need, and the real ones.

No module above this one uses ``os``; a simulation passes its own disk. Paths are plain strings.

1. ``write`` returns when all bytes are handed to the system, not when they are stable.
2. ``sync`` returns when the file's bytes and length are stable (fdatasync); it is never called
   again after it failed, for the system then reports pages as clean that never reached the disk
   (Rebello et al., "Can applications recover from fsync failures?", ATC 2020).
3. A name is stable only after ``sync_directory`` (Pillai et al., OSDI 2014).
4. Every failure is a ``StorageError`` that names the operation, the path and the reason. A
   ``DiskFullError`` has changed nothing except for a part of the write; a sync that finds no room
   is a failed sync. A process, or a machine, without a free file descriptor is a ``DiskFullError``
   too: nothing was opened, and it can be tried again. A few descriptors are reserved for steps that
   must complete an operation: making names stable, and checking what exists.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Protocol, TypeVar

from coordinator.errors import DiskFullError, StorageError
from coordinator.node.stable_files import sync_directory

DIRECTORY_MODE = 0o700
FILE_MODE = 0o600

_T = TypeVar("_T")
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})
_ONE_NAME_ONLY = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class DiskFile(Protocol):
    """An open file. Appends and overwrites; no position is shared between readers."""

    @property
    def path(self) -> str:
        """The name under which it was opened."""
        ...

    @property
    def descriptor(self) -> int | None:
        """The system's, if its fdatasync is all that ``sync`` does; else None."""
        ...

    def write(self, data: bytes) -> None:
        """Append ``data``, all of it."""
        ...

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite ``data`` at ``offset``, all of it."""
        ...

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset``; fewer only at the end of the file."""
        ...

    def size_bytes(self) -> int:
        """Return its length."""
        ...

    def truncate(self, size_bytes: int) -> None:
        """Cut it off at this length; stable after the next sync."""
        ...

    def write_out(self) -> None:
        """Let the system begin to write the bytes to the disk, so that the next ``sync`` finds
        little to do. May be called from another thread, and may wait there; never fails."""
        ...

    def sync(self) -> None:
        """Make the bytes and the length stable. May be called from another thread."""
        ...

    def close(self) -> None:
        """Close it; does not sync."""
        ...


class DirectoryLock(Protocol):
    """Held by at most one process; gone with its process."""

    def release(self) -> None:
        """Let another process use the directory."""
        ...


class Disk(Protocol):
    """The file system, as the log and the snapshots use it."""

    def create(self, path: str) -> DiskFile:
        """Create an empty file for appending, replacing one of that name."""
        ...

    def open_append(self, path: str) -> DiskFile:
        """Open an existing file for appending and reading."""
        ...

    def open_read(self, path: str) -> DiskFile:
        """Open an existing file for reading."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename ``source`` to ``target``, atomically replacing an existing file."""
        ...

    def link(self, path: str, second: str) -> bool:
        """Give the file a second name; False where files can have only one."""
        ...

    def remove(self, path: str) -> None:
        """Remove the file."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file of that name; StorageError if unknown."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and its parents, for the owner only, if they are not there."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in it stable."""
        ...

    def room_bytes(self, path: str) -> int:
        """Return about how much can be written there; an estimate, not a promise."""
        ...

    def lock_directory(self, path: str) -> DirectoryLock:
        """Make this process the only user of it; StorageError if another one is."""
        ...


def join(directory: str, name: str) -> str:
    """Return the path of ``name`` in ``directory``."""
    return f"{directory.rstrip('/')}/{name}"


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Write a file of this content; its bytes are stable on return, its name is not."""
    file = disk.create(path)
    try:
        file.write(data)
        file.sync()
    finally:
        file.close()


def replace_file(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Give the file ``name`` this content, whole or not at all; returns when that is stable."""
    path = join(directory, name)
    temporary = f"{path}.tmp"
    write_file(disk, temporary, data)
    disk.rename(temporary, path)
    disk.sync_directory(directory)


def storage_error(operation: str, path: str, error: OSError) -> StorageError:
    """Return what ``error`` means to this product; what can be tried again has a class of its
    own."""
    is_full = error.errno in _FULL and operation != "sync"
    is_full = is_full or error.errno in _NO_DESCRIPTOR
    kind = DiskFullError if is_full else StorageError
    reason = error.strerror or str(error)
    return kind(f"{operation} {path}: {reason}", path=path, operation=operation)


@contextmanager
def _naming(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(operation, path, error) from error


class OsFile:
    """A file of the operating system, used by descriptor."""

    def __init__(self, path: str, flags: int) -> None:
        self._path = path
        with _naming("open", path):
            self._descriptor = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        self._overwriting = -1

    @property
    def path(self) -> str:
        """The name under which it was opened."""
        return self._path

    @property
    def descriptor(self) -> int | None:
        """That to sync: some file systems of user space keep what each has written."""
        return self._descriptor if self._overwriting < 0 else self._overwriting

    def write(self, data: bytes) -> None:
        """Append ``data``, all of it."""
        try:
            done = os.write(self._descriptor, data)
            if done < len(data):
                rest = memoryview(data)[done:]
                self._write_all(rest, lambda view, _: os.write(self._descriptor, view))
        except OSError as error:
            raise storage_error("write", self._path, error) from error

    def write_at(self, offset: int, data: bytes) -> None:
        """Overwrite ``data`` at ``offset``, all of it."""
        # Not on the appending descriptor: Linux ignores the offset of pwrite under O_APPEND. The
        # other one is kept, for a process that is out of descriptors must still be able to write.
        try:
            if self._overwriting < 0:
                self._overwriting = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            descriptor = self._overwriting
            begun = os.pwrite(descriptor, data, offset)
            if begun < len(data):
                self._write_all(
                    memoryview(data)[begun:],
                    lambda view, done: os.pwrite(descriptor, view, offset + begun + done),
                )
        except OSError as error:
            raise storage_error("write", self._path, error) from error

    def _write_all(self, data: bytes | memoryview, write: Callable[[memoryview, int], int]) -> None:
        view, done = memoryview(data), 0
        while done < len(data):
            count = write(view[done:], done)
            if count <= 0:
                raise OSError(errno.EIO, f"nothing written of {len(data) - done} bytes")
            done += count

    def read_at(self, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``offset``."""
        parts = []
        with _naming("read", self._path):
            while length > 0:
                part = os.pread(self._descriptor, length, offset)
                if not part:
                    break
                parts.append(part)
                offset += len(part)
                length -= len(part)
        return b"".join(parts)

    def size_bytes(self) -> int:
        """Return its length."""
        with _naming("stat", self._path):
            return os.fstat(self._descriptor).st_size

    def truncate(self, size_bytes: int) -> None:
        """Cut it off at this length."""
        with _naming("truncate", self._path):
            os.ftruncate(self._descriptor, size_bytes)

    def write_out(self) -> None:
        """Begin to write the bytes to the disk, where the system can be told so; they leave its
        cache for it."""
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # a sync will say it
                os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Make bytes and length stable (fdatasync)."""
        try:
            os.fdatasync(self._descriptor if self._overwriting < 0 else self._overwriting)
        except OSError as error:
            raise storage_error("sync", self._path, error) from error

    def close(self) -> None:
        """Close it; a second call does nothing."""
        descriptors = (self._descriptor, self._overwriting)
        self._descriptor = self._overwriting = -1
        for descriptor in descriptors:
            if descriptor >= 0:
                with _naming("close", self._path):
                    os.close(descriptor)


class OsDirectoryLock:
    """A lock file held with flock(2): it goes with the process, however that ends."""

    def __init__(self, path: str) -> None:
        with _naming("lock", path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise storage_error("lock", path, error) from error
            raise StorageError(
                f"lock {path}: another process uses this directory; stop it, or give "
                "this member a data directory of its own",
                path=path,
                operation="lock",
            ) from error

    def release(self) -> None:
        """Let another process use the directory."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def refuse_shared(directory: str) -> None:
    """Refuse a directory (or what a link leads to) in which others may replace our files."""
    with _naming("stat", directory):
        found = os.stat(directory)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022:
        raise StorageError(
            f"{directory}: expected a directory that only its owner can write, found mode"
            f" {mode:04o}; run: chmod go-w {directory}, or name a directory below it, which is"
            " then made",
            path=directory,
        )
    if os.geteuid() not in (0, found.st_uid) and found.st_uid != 0:
        raise StorageError(
            f"{directory}: expected a directory of the user {os.geteuid()} who runs this member,"
            f" found one of the user {found.st_uid}, who could replace its data",
            path=directory,
        )


class KeptDescriptors:
    """Reserved descriptors, given up for a moment when no others are left."""

    COUNT = 2

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[int] = []
        self._keep()

    def _keep(self) -> None:
        with suppress(OSError):
            while len(self._kept) < self.COUNT:
                self._kept.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def calling(self, call: Callable[[], _T]) -> _T:
        """Return what ``call`` does, which opens one and closes it again."""
        try:
            return call()
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR:
                raise
        with self._lock:
            while self._kept:
                os.close(self._kept.pop())
            try:
                return call()
            finally:
                self._keep()


@cache
def kept_descriptors() -> KeptDescriptors:
    """Return those of this process: the limit of descriptors is a process's."""
    return KeptDescriptors()


class OsDisk:
    """The operating system's file system: plain appends, fdatasync, no memory maps."""

    LOCK_NAME = "LOCK"

    def __init__(self) -> None:
        self._kept = kept_descriptors()

    def create(self, path: str) -> DiskFile:
        """Create an empty file for appending, replacing one of that name."""
        return OsFile(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND)

    def open_append(self, path: str) -> DiskFile:
        """Open an existing file for appending and reading."""
        return OsFile(path, os.O_RDWR | os.O_APPEND)

    def open_read(self, path: str) -> DiskFile:
        """Open an existing file for reading."""
        return OsFile(path, os.O_RDONLY)

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        file = self.open_read(path)
        try:
            return file.read_at(0, file.size_bytes())
        finally:
            file.close()

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing ``target``."""
        with _naming("rename", source):
            os.replace(source, target)

    def link(self, path: str, second: str) -> bool:
        """Give the file a second name; False where it can have only one."""
        try:
            os.link(path, second)
        except OSError as error:
            if error.errno in _ONE_NAME_ONLY:
                return False
            raise storage_error("link", path, error) from error
        return True

    def remove(self, path: str) -> None:
        """Remove the file."""
        with _naming("remove", path):
            os.remove(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file of that name; StorageError if unknown."""
        # An error does not mean "no": a missing log would look like a new member.
        with _naming("stat", path):
            try:
                os.stat(path)
            except FileNotFoundError:
                return False
        return True

    def list_directory(self, path: str) -> list[str]:
        """Return the names in it, sorted."""
        with _naming("list", path):
            return sorted(self._kept.calling(lambda: os.listdir(path)))

    def make_directory(self, path: str) -> None:
        """Make it and its parents, for the owner only, with stable names.

        Raises:
            StorageError: it is there, and others may write it.
        """
        if os.path.isdir(path):
            refuse_shared(path)
            return
        self._make_directory(path)

    def _make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/")) or "."
        self._make_directory(parent)
        with _naming("make", path):
            os.mkdir(path, DIRECTORY_MODE)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        """Make the names in it stable."""
        with _naming("sync", path):
            self._kept.calling(lambda: sync_directory(path))

    def room_bytes(self, path: str) -> int:
        """Return about how many bytes can be written there."""
        with _naming("stat", path):
            found = os.statvfs(path)
        # Some file systems, those of networks for example, say nothing: all numbers are zero.
        return found.f_bavail * found.f_frsize if found.f_blocks else 1 << 60

    def lock_directory(self, path: str) -> DirectoryLock:
        """Make this process its only user; StorageError if another one is."""
        return OsDirectoryLock(join(path, self.LOCK_NAME))

    def is_locked(self, path: str) -> bool:
        """Say whether a process uses it now; makes nothing, and does not become a user of it."""
        name = join(path, self.LOCK_NAME)
        with _naming("lock", name), suppress(FileNotFoundError), open(name, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
