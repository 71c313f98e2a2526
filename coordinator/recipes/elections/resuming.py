"""A file by which a program that was restarted resumes the leadership of its predecessor.

1. The elected writes its grant into the file and holds the kernel's lock on it (``flock``). The
   kernel drops that lock when the process has ended, not when it is paused. So a process that gets
   the lock knows that no thread of the predecessor will ever run again.
2. The file counts only within the boot in which it was written (``boot_id``), and only as that very
   file (``st_dev``, ``st_ino``): the lock of a copy proves nothing. A copy is ignored, and so is
   the file of another cluster.
3. The successor has a session and a place of its own. It ends the predecessor's leadership and
   begins its own in one command (``succession``), so its epoch is higher: every guard refuses what
   the predecessor has sent and the network still carries.
4. Two processes never share a session. With access rights on, the successor's identity lets it act.
   The file is for its user alone (mode 0600).
5. A forked process that lives on keeps the kernel's lock, too.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator.errors import BadArgumentsError

try:
    import fcntl
except ImportError:  # no resuming there; ``checked_file`` says so
    fcntl = None  # type: ignore[assignment]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BYTES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Left:
    """The leadership that a process of this boot had when it ended."""

    election: str
    epoch: int
    session_id: str


def checked_file(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` where leaderships can be resumed.

    Raises:
        BadArgumentsError: the system cannot say that a process has ended, or since when it runs.
    """
    if fcntl is None or not _BOOT_ID.exists():
        raise BadArgumentsError(
            f"resume: expected a system with flock and {_BOOT_ID}, found neither; leave it out"
        )
    return Path(path)


class LeadershipFile:
    """The file at ``path``; locked from ``take`` until ``close``, which a failed ``with`` calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number: int | None = None
        self._epoch = 0
        """The last that this process has written."""

    def fileno(self) -> int | None:
        """Return the descriptor that keeps the kernel's lock; None while it is not ours."""
        return self._number

    def take(self) -> Left | None:
        """Lock the file, if no living process has; return what its last one left, if anything.

        Raises:
            BadArgumentsError: it cannot be opened, or others than its user could read it.
        """
        if self._number is None and not self._open():
            return None
        assert self._number is not None, "opened just now"
        try:
            document = json.loads(os.pread(self._number, _BYTES_MAX, 0))
            election, epoch = str(document["election"]), int(document["epoch"])
            left = Left(election, epoch, str(document["session_id"]))
            is_file = document["file"] == _file_id(self._number)
            is_this = is_file and document["boot_id"] == _boot_id()
            return left if is_this else None
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # empty, or torn

    def write(self, left: Left) -> bool:
        """Leave this for a successor; False while another living process has the file."""
        if self._number is None and not self._open():
            return False
        assert self._number is not None, "opened just now"
        document = {**asdict(left), "boot_id": _boot_id(), "file": _file_id(self._number)}
        # Nothing is synced: after a crash of the machine it is another boot.
        os.ftruncate(self._number, 0)
        os.pwrite(self._number, json.dumps(document).encode(), 0)
        self._epoch = left.epoch
        return True

    def clear(self) -> None:
        """Leave nothing: the leadership was given up."""
        if self._number is not None:
            os.ftruncate(self._number, 0)

    def give_up(self, epoch: int) -> None:
        """Clear and close it, unless a later leadership than that one is in it by now."""
        if self._epoch <= epoch:
            self.clear()
            self.close()

    def close(self) -> None:
        """Give up the kernel's lock; what is in the file stays."""
        number, self._number = self._number, None
        if number is not None:
            os.close(number)

    def __enter__(self) -> LeadershipFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_failure: object) -> None:
        if kind is not None:
            self.close()

    def __del__(self) -> None:
        self.close()

    def _open(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            number = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise BadArgumentsError(
                f"resume: {self._path}: expected a file to open, found: {error.strerror}"
            ) from None
        try:
            _check_private(self._path, os.fstat(number))
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            return False
        except BaseException:
            os.close(number)
            raise
        self._number = number
        return True


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise BadArgumentsError(f"resume: {path}: expected a regular file, found another kind")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise BadArgumentsError(
            f"resume: {path}: expected a file of this user that no other can read (mode 0600), "
            f"found mode {stat.S_IMODE(found.st_mode):04o} of user {found.st_uid}"
        )


def _file_id(number: int) -> list[int]:
    """Return what a copy has not in common with its original while both are there."""
    found = os.fstat(number)
    return [found.st_dev, found.st_ino]


def _boot_id() -> str:
    return _BOOT_ID.read_text().strip()
