"""Directories of one run, among the temporary files; those of dead runs are removed.

A process that runs holds a lock (flock) on a file in its directory. The kernel releases it however
the process ends, so it is known who is dead: a process id could be another's by now, or be counted
otherwise in a container that shares the directory.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "coordinator-learn-"
LOCK_FILE = "in-use"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Give a new directory, for this user only; remove it at the end, and those left behind now."""
    remove_left_behind()
    path, lock = _locked_directory()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_left_behind() -> None:
    """Remove our directories whose process has ended without doing so: by ``kill -9``, say."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            _remove_empty(path)  # it ended before it had made the file
            continue
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # it is in use
        finally:
            os.close(lock)


def _locked_directory() -> tuple[Path, int]:
    """Return a new directory and the descriptor of its lock."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX))
        try:
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except FileNotFoundError:
            continue  # another process has just removed it as one left behind: it was empty
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return path, lock
        except BlockingIOError:
            pass  # another process has just found it not locked yet, and removes it
        os.close(lock)


def _remove_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        pass  # it is not empty, or gone
