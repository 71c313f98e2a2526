"""A disk in memory that forgets what was not synced, tears writes, and fails when told.

What survives ``crash()`` is drawn from the seed, as harshly as file systems are known to be:

1. Of a file, each 512-byte sector changed since its last sync is the new or the old one, zeros
   where there was none, independently; the length is the old one, the new one or one between.
2. Of a directory, each change of a name since its last sync happened or did not (``is_orderly``:
   those that happened are the first few, as on a journaling file system).
   Where it ``is_spoiling``, one sector of a block of 4,096 bytes that was being written may come
   out as any bytes at all, also one that was stable: systems write whole blocks.
3. A failed sync marks the changed sectors clean: they can be read, a later sync that succeeds does
   not store them, and a crash shows that they were never there.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.errors import StorageError
from coordinator.raft.storage.disk import DirectoryLock, DiskFile, storage_error

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


class SimulatedCrashError(Exception):
    """The power went off at the operation asked for; call ``crash`` and open everything anew."""


@dataclass(eq=False)
class Inode:
    """A file's bytes: as read now, and as a crash would leave the synced part."""

    data: bytearray = field(default_factory=bytearray)
    stable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)

    def put(self, offset: int, data: bytes) -> None:
        here, end = self.data, offset + len(data)
        if offset > len(here):
            here.extend(bytes(offset - len(here)))
        here[offset:end] = data
        self.touch(offset, end)

    def resize(self, size: int) -> None:
        low, high = sorted((size, len(self.data)))
        del self.data[size:]
        self.touch(low, high)

    def touch(self, start: int, end: int) -> None:
        if end > start:
            self.dirty.update(range(start // SECTOR_BYTES, (end - 1) // SECTOR_BYTES + 1))

    def settle_all(self) -> None:
        """Store everything that was changed, and the length."""
        dirty, data, stable = self.dirty, self.data, self.stable
        if dirty:
            first, last = min(dirty), max(dirty)
            start = first * SECTOR_BYTES
            if last - first < len(dirty) and start <= len(stable):  # no gaps: one piece
                end = (last + 1) * SECTOR_BYTES
                stable[start:end] = data[start:end]
                del stable[len(data) :]
                if len(stable) == len(data):
                    dirty.clear()
                    return
        self.settle(set(dirty), len(data))

    def settle(self, sectors: set[int], size: int) -> None:
        """Store these sectors and this length."""
        stable = self.stable
        if len(stable) < size:
            stable.extend(bytes(size - len(stable)))
        for sector in sectors:
            start = sector * SECTOR_BYTES
            chunk = self.data[start : start + SECTOR_BYTES][: max(0, size - start)]
            stable[start : start + len(chunk)] = chunk
        del stable[size:]
        self.dirty -= sectors


@dataclass(eq=False)
class Directory:
    """Names, as seen now and as stable, and the changes between: (names set, names unset)."""

    names: dict[str, Inode] = field(default_factory=dict)
    stable: dict[str, Inode] = field(default_factory=dict)
    changes: list[tuple[dict[str, Inode], tuple[str, ...]]] = field(default_factory=list)

    def change(self, put: dict[str, Inode], unset: tuple[str, ...] = ()) -> None:
        for name in unset:
            self.names.pop(name, None)
        self.names.update(put)
        self.changes.append((put, unset))

    def settle(self, chosen: list[bool]) -> None:
        for (put, unset), is_kept in zip(self.changes, chosen, strict=True):
            if is_kept:
                for name in unset:
                    self.stable.pop(name, None)
                self.stable.update(put)
        self.changes.clear()


@dataclass
class Fault:
    """The next operations of this name fail, after ``skip`` of them, ``count`` times."""

    operation: str
    error: int
    skip: int
    count: int
    path_part: str


class SimulatedFile:
    """An open file of a ``SimulatedDisk``."""

    def __init__(self, disk: SimulatedDisk, path: str, inode: Inode) -> None:
        self._disk, self._path, self._inode = disk, path, inode
        self._life = disk.life
        self.is_closed = False

    @property
    def path(self) -> str:
        return self._path

    @property
    def descriptor(self) -> int | None:
        return None

    def write(self, data: bytes) -> None:
        self._put(None, data)

    def write_at(self, offset: int, data: bytes) -> None:
        self._put(offset, data)

    def _put(self, at: int | None, data: bytes) -> None:
        """``at`` is None: at the end that there is at that moment (O_APPEND)."""

        def put_part(eighths: int) -> None:
            offset = len(self._inode.data) if at is None else at
            self._inode.put(offset, data[: eighths * len(data) // 8])

        self._check("write", put_part)
        offset = len(self._inode.data) if at is None else at
        # What is written over has its room.
        room = self._disk.room_bytes() + max(0, len(self._inode.data) - offset)
        if len(data) > room:
            self._inode.put(offset, data[: max(0, room)])
            raise storage_error("write", self._path, OSError(errno.ENOSPC, "No space left"))
        self._inode.put(offset, bytes(data))

    def read_at(self, offset: int, length: int) -> bytes:
        self._check("read")
        return bytes(self._inode.data[offset : offset + length])

    def size_bytes(self) -> int:
        return len(self._inode.data)

    def truncate(self, size_bytes: int) -> None:
        self._check("truncate")
        self._inode.resize(size_bytes)

    def write_out(self) -> None:
        """Nothing: a crash draws what reached the disk before a sync anyway."""

    def sync(self) -> None:
        try:
            self._check("sync")
        except StorageError:
            self._inode.dirty.clear()
            raise
        self._disk.sync_count += 1
        self._inode.settle_all()

    def close(self) -> None:
        self.is_closed = True

    def _check(self, operation: str, partly: Callable[[int], None] | None = None) -> None:
        assert not self.is_closed, f"{operation} on the closed file {self._path}"
        assert self._life == self._disk.life, f"{operation} on {self._path} of an earlier life"
        self._disk.step(operation, self._path, partly)


class SimulatedLock:
    """Held until released or until the crash."""

    def __init__(self, disk: SimulatedDisk, path: str) -> None:
        if path in disk.locks:
            raise StorageError(f"lock {path}: another process uses this directory")
        self._disk, self._path = disk, path
        disk.locks.add(path)

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimulatedDisk:
    """The disk of one member; see the module."""

    def __init__(
        self, seed: int = 0, *, is_orderly: bool = False, capacity_bytes: int | None = None
    ) -> None:
        self.random = random.Random(seed)
        self.is_orderly = is_orderly
        self.capacity_bytes = capacity_bytes
        self.directories: dict[str, Directory] = {}
        self.locks: set[str] = set()
        self.faults: list[Fault] = []
        self.life = 0
        self.sync_count = self.directory_sync_count = self.write_count = self.step_count = 0
        self.crash_at_step: int | None = None
        self.is_spoiling = False
        self.before_step: Callable[[], None] | None = None
        """What another thread does at this moment, before a step of this one."""
        self.has_one_name_only = False
        """Files can not have a second name, as on some file systems."""

    # ------------------------------------------------------------------ Disk

    def create(self, path: str) -> DiskFile:
        self.step("create", path)
        directory, name = self._split(path)
        directory.change({name: (inode := Inode())})
        return SimulatedFile(self, path, inode)

    def open_append(self, path: str) -> DiskFile:
        self.step("open", path)
        return SimulatedFile(self, path, self._inode(path))

    def open_read(self, path: str) -> DiskFile:
        self.step("open", path)
        return SimulatedFile(self, path, self._inode(path))

    def read(self, path: str) -> bytes:
        self.step("read", path)
        return bytes(self._inode(path).data)

    def rename(self, source: str, target: str) -> None:
        self.step("rename", source)
        directory, name = self._split(source)
        other, target_name = self._split(target)
        assert directory is other, "renames stay in their directory"
        directory.change({target_name: self._inode(source)}, (name,))

    def link(self, path: str, second: str) -> bool:
        self.step("link", path)
        directory, name = self._split(second)
        if name in directory.names:
            raise storage_error("link", path, FileExistsError(errno.EEXIST, "File exists"))
        if self.has_one_name_only:
            return False
        directory.change({name: self._inode(path)})
        return True

    def remove(self, path: str) -> None:
        self.step("remove", path)
        self._inode(path)
        directory, name = self._split(path)
        directory.change({}, (name,))

    def exists(self, path: str) -> bool:
        if path.rpartition("/")[0] not in self.directories:
            return False
        directory, name = self._split(path)
        return name in directory.names

    def list_directory(self, path: str) -> list[str]:
        return sorted(self.directories[path.rstrip("/")].names)

    def make_directory(self, path: str) -> None:
        self.directories.setdefault(path.rstrip("/"), Directory())

    def sync_directory(self, path: str) -> None:
        self.step("sync_directory", path)
        self.directory_sync_count += 1
        directory = self.directories[path.rstrip("/")]
        directory.settle([True] * len(directory.changes))

    def lock_directory(self, path: str) -> DirectoryLock:
        return SimulatedLock(self, path)

    # ------------------------------------------------------------------ what tests do to it

    def crash(self) -> None:
        """Lose what was not synced, as the seed draws it; open files and locks are gone."""
        for directory in self.directories.values():
            count = len(directory.changes)
            chosen = [self.random.random() < 0.5 for _ in range(count)]
            if self.is_orderly:
                kept = self.random.randint(0, count)
                chosen = [position < kept for position in range(count)]
            directory.settle(chosen)
            # A dict keeps the order, so that the same seed draws the same losses.
            for inode in dict.fromkeys((*directory.stable.values(), *directory.names.values())):
                self._lose(inode)
            directory.names = dict(directory.stable)
        self.end_life()

    def kill(self) -> None:
        """The process dies, the system lives: everything written is still there."""
        self.end_life()

    def end_life(self) -> None:
        self.locks.clear()
        self.life += 1
        self.crash_at_step = None

    def fail(
        self,
        operation: str,
        *,
        error: int = errno.EIO,
        skip: int = 0,
        count: int = 1,
        path_part: str = "",
    ) -> None:
        """Make operations fail; a failing write may have written a part."""
        self.faults.append(Fault(operation, error, skip, count, path_part))

    def flip(self, path: str, offset: int, mask: int = 1) -> None:
        """Damage a byte, in memory and on the platter."""
        inode = self._inode(path)
        inode.data[offset] ^= mask
        if offset < len(inode.stable):
            inode.stable[offset] = inode.data[offset]

    def overwrite(self, path: str, data: bytes) -> None:
        """Replace a file's content, stably."""
        inode = self._inode(path)
        inode.data, inode.stable, inode.dirty = bytearray(data), bytearray(data), set()

    def content(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def fill(self, left_bytes: int = 0) -> None:
        """Let another program take all but ``left_bytes``; ``capacity_bytes = None`` ends that."""
        self.capacity_bytes = 0
        self.capacity_bytes = -self.room_bytes() + left_bytes

    def room_bytes(self, path: str = "") -> int:
        if self.capacity_bytes is None:
            return 1 << 60
        inodes = {
            id(inode): inode
            for directory in self.directories.values()
            for inode in directory.names.values()
        }
        used = sum(len(inode.data) for inode in inodes.values())
        return self.capacity_bytes - used

    def copy(self) -> SimulatedDisk:
        """Return a second disk with the same files, all stable."""
        other = SimulatedDisk(self.random.randrange(1 << 30), is_orderly=self.is_orderly)
        for path, directory in self.directories.items():
            names = {
                name: Inode(bytearray(inode.data), bytearray(inode.data))
                for name, inode in directory.names.items()
            }
            other.directories[path] = Directory(names, dict(names))
        return other

    # ------------------------------------------------------------------ inside

    def step(self, operation: str, path: str, partly: Callable[[int], None] | None = None) -> None:
        if (before := self.before_step) is not None:
            self.before_step = None
            before()
            self.before_step = before
        if operation not in ("read", "open"):
            self.step_count += 1
            if self.crash_at_step is not None and self.step_count >= self.crash_at_step:
                if partly is not None:
                    partly(self.random.randint(0, 8))
                raise SimulatedCrashError(f"step {self.step_count}: {operation} {path}")
        if operation == "write":
            self.write_count += 1
        for fault in self.faults:
            if fault.operation != operation or fault.path_part not in path:
                continue
            if fault.skip > 0:
                fault.skip -= 1
            elif fault.count > 0:
                fault.count -= 1
                if partly is not None:
                    partly(self.random.randint(0, 7))
                named = "sync" if operation == "sync_directory" else operation
                raise storage_error(named, path, OSError(fault.error, "made to fail"))

    def _lose(self, inode: Inode) -> None:
        old, new = len(inode.stable), len(inode.data)
        size = self.random.choice([old, new, self.random.randint(min(old, new), max(old, new))])
        kept = {sector for sector in sorted(inode.dirty) if self.random.random() < 0.5}
        if self.random.random() < 0.25:
            kept = set(inode.dirty)
        written = sorted(inode.dirty)
        inode.settle(kept, size)
        if self.is_spoiling and written and self.random.random() < 0.5:
            self._spoil(inode, self.random.choice(written))
        inode.data, inode.dirty = bytearray(inode.stable), set()

    def _spoil(self, inode: Inode, sector: int) -> None:
        """The power goes while the block of this sector is written."""
        block = sector * SECTOR_BYTES // BLOCK_BYTES * BLOCK_BYTES
        start = block + self.random.randrange(0, BLOCK_BYTES, SECTOR_BYTES)
        length = len(inode.stable[start : start + SECTOR_BYTES])
        inode.stable[start : start + length] = self.random.randbytes(length)

    def _split(self, path: str) -> tuple[Directory, str]:
        parent, _, name = path.rpartition("/")
        if parent not in self.directories:
            raise storage_error("open", path, FileNotFoundError(errno.ENOENT, "No such file"))
        return self.directories[parent], name

    def _inode(self, path: str) -> Inode:
        directory, name = self._split(path)
        if name not in directory.names:
            raise storage_error("open", path, FileNotFoundError(errno.ENOENT, "No such file"))
        return directory.names[name]
