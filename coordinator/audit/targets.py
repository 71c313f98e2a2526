"""The targets of audit lines: a file that is rotated, stderr, or syslog.

Only the thread of the log calls them. The file:

1. A member continues the chain of the file it finds. A last line that a crash left torn is ended
   with a line feed and kept; the next line says so.
2. When the file is larger than ``file_bytes_max`` it is renamed: behind its name comes the number
   of its first whole line, or the next one if a file has that name. The new file's first line is
   chained to it, and names what was deleted.
3. Only the member's user can write it; it is no symbolic link; two members never share one. A file
   that begins otherwise than a line is not written to.
4. Lines are in the file when they are written, and on the disk within a second (``sync``).
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from coordinator.audit.chain import (
    LINE_BEGIN,
    LINE_BYTES_MAX,
    TORN_BYTES_MAX,
    ChainHead,
    Newest,
    read_line,
)
from coordinator.errors import ConfigError
from coordinator.node.stable_files import sync_directory

_FILE_MODE = 0o600
_DIRECTORY_MODE = 0o700
_READ_BYTES = 1 << 20
_ROTATED = re.compile(r"\.\d{12}")
_PRIORITY = 13 * 8 + 5
"""The priority in syslog (RFC 5424): facility 13, log audit; severity 5, notice."""
_SEND_DEADLINE_S = 2.0
_TAIL_BYTES = TORN_BYTES_MAX + 2 * LINE_BYTES_MAX
"""What crashes left torn, and the whole line before it."""


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a chain that is there already."""

    head: ChainHead = field(default_factory=ChainHead)
    newest: Newest = field(default_factory=Newest)
    torn_bytes: int = 0
    torn_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Rotation:
    """What became of the files."""

    kept_as: str
    deleted: tuple[str, ...]


class Target(Protocol):
    """Takes lines; every call may raise OSError."""

    def open(self) -> Found:
        """Make ready, and return the chain that is there."""
        ...

    def write(self, line: bytes) -> None:
        """Write one line, with its end."""
        ...

    def maybe_rotate(self) -> Rotation | None:
        """Begin another file if this one is large enough."""
        ...

    def sync(self) -> None:
        """Return when what was written survives a loss of power."""
        ...

    def close(self) -> None:
        """Write no more. Idempotent."""
        ...


class FileTarget:
    """A file, and those it was rotated into."""

    def __init__(self, path: Path, *, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._descriptor = -1
        self._size = 0
        self._first_number = 1

    def open(self) -> Found:
        """Open or make the file; of one that ends in the middle of a line, end that."""
        self.close()
        self._path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        is_new = not self._path.exists()
        if self._path.is_symlink():
            raise ConfigError(f"audit.file: expected a regular file, found {self._path} is a link")
        descriptor = os.open(self._path, flags, _FILE_MODE)
        try:
            self._refuse_shared(descriptor)
            self._refuse_other(descriptor)
            self._size = os.fstat(descriptor).st_size
            found = _end_of(descriptor, self._size)
            if not found.head.number and (before := rotated(self._path)):
                former = _end_of_file(before[-1])
                found = replace(found, head=former.head, newest=former.newest)
            if self._size and os.pread(descriptor, 1, self._size - 1) != b"\n":
                self._size += os.write(descriptor, b"\n")
            if is_new:
                sync_directory(self._path.parent)
            self._first_number = _first_number(descriptor) or found.head.number + 1
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return found

    def _refuse_shared(self, descriptor: int) -> None:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise ConfigError(f"audit.file: expected a regular file, found {self._path} is none")
        if state.st_mode & 0o022:
            raise ConfigError(
                f"audit.file: expected that only its owner can write {self._path}, found mode"
                f" {stat.S_IMODE(state.st_mode):04o}; run: chmod go-w {self._path}"
            )
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"audit.file: expected a file of this member alone, found that another process"
                f" writes {self._path}; give each member a file of its own"
            ) from None

    def _refuse_other(self, descriptor: int) -> None:
        # Lines behind a key, a secret or a configuration would make it useless.
        begin = os.pread(descriptor, len(LINE_BEGIN), 0).partition(b"\n")[0].strip(b"\0")
        if not LINE_BEGIN.startswith(begin):
            raise ConfigError(
                f"audit.file: expected an audit log, or no file yet, found that {self._path} has"
                " something else in it; nothing was written to it"
            )

    def write(self, line: bytes) -> None:
        """Append the line, as a whole if the disk has room."""
        rest = memoryview(line)
        while rest:
            count = os.write(self._descriptor, rest)
            self._size += count
            rest = rest[count:]

    def maybe_rotate(self) -> Rotation | None:
        """Rename a large file and begin another."""
        if self._size < self._bytes_max:
            return None
        self.sync()
        number = self._first_number
        while (kept := self._path.with_name(f"{self._path.name}.{number:012d}")).exists():
            number += 1  # of a log that began again with the same numbers: both are kept
        os.rename(self._path, kept)
        deleted = tuple(rotated(self._path)[: -self._files_max])
        for each in deleted:
            each.unlink()
        self.open()
        return Rotation(kept.name, tuple(each.name for each in deleted))

    def sync(self) -> None:
        """Return when the lines are on the disk."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file; the lock on it goes with it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def rotated(path: Path) -> list[Path]:
    """Return the files that ``path`` was rotated into, the oldest first."""
    found = [
        each
        for each in path.parent.glob(f"{_literal(path.name)}.*")
        if _ROTATED.fullmatch(each.name.removeprefix(path.name))
    ]
    return sorted(found)


def _literal(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def chunks_of(path: Path) -> Iterator[bytes]:
    """Iterate over the bytes of a file in pieces."""
    with path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            yield chunk


def _end_of_file(path: Path) -> Found:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return _end_of(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _end_of(descriptor: int, size: int) -> Found:
    """Return the end of the chain in a file: its last whole line, and what is torn behind it."""
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    *lines, last = tail.split(b"\n")
    if last and read_line(last) is not None:
        lines, last = [*lines, last], b""  # only its end is missing
    torn = [last] if last else []
    # Before it, what was ended by a start that then wrote nothing, or was torn itself.
    while len(lines) > (len(tail) < size) and read_line(lines[-1]) is None:
        torn.insert(0, lines.pop())
    rest = b"\n".join(torn)
    digest = sha256(rest).hexdigest() if rest else ""
    whole = read_line(lines[-1]) if lines else None
    if whole is None:
        return Found(torn_bytes=len(rest), torn_sha256=digest)
    return Found(whole.head, whole.newest, len(rest), digest)


def _first_number(descriptor: int) -> int:
    """Return the number of the first line that is whole; 0 if there is none."""
    found = map(read_line, os.pread(descriptor, _TAIL_BYTES, 0).split(b"\n"))
    return next((each.head.number for each in found if each is not None), 0)


class StreamTarget:
    """The standard error of the process. Its chain begins with the process."""

    def __init__(self, descriptor: int = 2) -> None:
        self._descriptor = descriptor

    def open(self) -> Found:
        """Return an empty chain."""
        return Found()

    def write(self, line: bytes) -> None:
        """Write the line; waits for the reader of stderr."""
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def maybe_rotate(self) -> Rotation | None:
        """Do nothing: who reads stderr rotates."""
        return None

    def sync(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing: the descriptor is the process's."""


class SyslogTarget:
    """A syslog daemon: a datagram for each line, as RFC 5424 forms it."""

    def __init__(self, address: str, member_id: str) -> None:
        self._address = address
        self._member_id = member_id
        self._socket: socket.socket | None = None

    def open(self) -> Found:
        """Connect; the chain begins with the process."""
        self.close()
        family: int = socket.AF_UNIX
        where: str | tuple[str, int] = self._address
        if not self._address.startswith("/"):
            host, _, port = self._address.rpartition(":")
            info = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            family, where = info[0], info[4]  # type: ignore[assignment]
        made = socket.socket(family, socket.SOCK_DGRAM)
        made.settimeout(_SEND_DEADLINE_S)
        try:
            made.connect(where)
        except BaseException:
            made.close()
            raise
        self._socket = made
        return Found()

    def write(self, line: bytes) -> None:
        """Send the line; UDP does not say whether it arrives, the numbers of the lines do."""
        if self._socket is None:
            raise OSError("there is no connection to syslog")
        head = f"<{_PRIORITY}>1 - - coordinator {self._member_id} audit - "
        self._socket.send(head.encode("ascii") + line.rstrip(b"\n"))

    def maybe_rotate(self) -> Rotation | None:
        """Do nothing: the daemon rotates."""
        return None

    def sync(self) -> None:
        """Do nothing: the daemon has it."""

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
