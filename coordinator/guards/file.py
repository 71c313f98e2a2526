"""The guard of a file: replaced as a whole under a lock of the operating system.

::

    guard = FileGuard("/var/lib/app/report.json")
    guard.write(grant.fencing_token, b"...")
    guard.read()                                     # b"...": others may just open the file

Beside ``report.json`` are ``report.json.fence`` (the highest token, a line of digits) and
``report.json.lock`` (empty). Do not delete them: without its fence a file takes any token. A crash
may leave a ``.new`` of either, which the next write overwrites.

1. Check and write happen under an exclusive ``flock`` on the lock file, so no other guard of this
   file is between its check and its write. The kernel drops the lock when its process dies; a
   stopped process keeps it, and the others wait.
2. The token is on disk before the data (each: written to a new file, synced, renamed, the directory
   synced). A crash in between leaves the old data under the new token, which is harmless. So a
   write number is used up when its write begins, done or not: repeat a write with the next number.
3. Readers see the old file or the new one, never a part.
4. It works on one machine only. ``flock`` over NFS is lost silently when the server restarts or the
   lease ends while the holder is stopped; other network and FUSE file systems keep it per machine.
   There this is no guard: put a server with one writer in front (``http_proxy``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coordinator.errors import BadArgumentsError
from coordinator.guards.tokens import (
    checked_token,
    checked_write_number,
    refuse_lower,
    stale_write,
)

try:
    import fcntl
except ImportError as error:
    raise ImportError(
        "FileGuard needs flock, which this system does not have; SqliteGuard does without"
    ) from error

_TOKEN_LINE = re.compile(rb"([1-9][0-9]{0,18})(?: ([1-9][0-9]{0,18}))?\n")
_NEW_FILE_MODE = 0o666  # less the umask, as open() has it


class FileGuard:
    """Guards one file on a local file system; data is replaced as a whole."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Through links to the file itself: a link and its target must not have a fence each.
        self.path = Path(path).resolve()
        self.resource = str(self.path)
        self._fence = self.path.with_name(self.path.name + ".fence")
        self._lock = self.path.with_name(self.path.name + ".lock")

    def write(self, token: int, data: bytes, *, write_number: int | None = None) -> None:
        """Replace the file's content under ``token``.

        Raises:
            StaleTokenError: a higher token has been seen.
            StaleWriteError: this write number or a higher one has been seen under it.
        """
        with self._checked(token, write_number):
            _replace(self.path, data)

    def raise_to(self, token: int) -> None:
        """From now on refuse tokens lower than ``token``."""
        with self._checked(token, None):
            pass

    def read(self) -> bytes | None:
        """Return the content, None if there is no file."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    def highest_token(self) -> int | None:
        """Return the highest token seen, None before the first."""
        return self._seen()[0] or None

    def _seen(self) -> tuple[int, int]:
        """Return the highest token and the highest write number under it; 0 for none."""
        try:
            line = self._fence.read_bytes()
        except FileNotFoundError:
            return 0, 0
        match = _TOKEN_LINE.fullmatch(line)
        if match is None:
            raise BadArgumentsError(f"{self._fence}: expected a token, found {line[:40]!r}")
        return int(match[1]), int(match[2] or 0)

    @contextmanager
    def _checked(self, token: int, write_number: int | None) -> Iterator[None]:
        token, number = checked_token(token), checked_write_number(write_number)
        with self._locked():
            highest, highest_number = self._seen()
            refuse_lower(self.resource, token, highest)
            if number is not None:
                if token == highest and number <= highest_number:
                    raise stale_write(self.resource, token, number, highest_number)
                _replace(self._fence, b"%d %d\n" % (token, number))
            elif highest != token:
                _replace(self._fence, b"%d\n" % token)
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Opened each time: an flock belongs to the opening, so threads exclude each other too.
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _NEW_FILE_MODE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _replace(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``, on disk when this returns; it keeps its mode."""
    # One name is enough under the lock, and what a crash leaves is overwritten by the next.
    aside = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(aside, flags, _NEW_FILE_MODE)
    try:
        with open(file, "wb") as stream:
            if path.exists():
                os.fchmod(stream.fileno(), path.stat().st_mode & 0o7777)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
