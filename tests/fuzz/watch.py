"""What must hold whatever comes in: no traceback, no hang, no growth.

Time is counted as processor time of the one who works, which other programs on a busy machine do
not prolong; where another process works, as time on the wall with a generous limit.
"""

from __future__ import annotations

import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fuzz.budget import Done

HANG_SECONDS = 1.0
WALL_SECONDS = 10.0
GROWTH_BYTES_MAX = 50 * 2**20
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | None = None) -> int:
    """Return how much memory a process has (this one, when none is named)."""
    found = Path(f"/proc/{pid or 'self'}/statm")
    if not found.exists():
        return 0  # only Linux tells
    return int(found.read_text().split()[1]) * _PAGE_BYTES


class LoggedTrouble(logging.Handler):
    """Remembers the lines that must not be: tracebacks, and errors of ours."""

    def __init__(self, due: str) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self._due = due

    def emit(self, record: logging.LogRecord) -> None:
        if self._due and not record.exc_info and self._due in record.getMessage():
            return
        if record.exc_info or record.levelno >= logging.ERROR:
            self.lines.append(logging.Formatter("%(name)s: %(message)s").format(record))


class Watch:
    """Looks on while one target is fed."""

    def __init__(self, done: Done, pid: int | None = None, due: str = "") -> None:
        self.done = done
        self.trouble = LoggedTrouble(due)
        self._pid = pid
        self._before = 0

    def settled(self) -> None:
        """Take what is in memory now as the beginning: caches and pools are warm."""
        if self._pid is None:
            gc.collect()
        self._before = resident_bytes(self._pid)

    @contextmanager
    def each(self, shown: object) -> Iterator[None]:
        """Time one piece of work of this thread; ``shown`` tells which, if it hangs."""
        began = time.thread_time()
        yield
        took = time.thread_time() - began
        self.took(took, shown, HANG_SECONDS)

    def took(self, seconds: float, shown: object, limit: float = WALL_SECONDS) -> None:
        """Note how long one piece took; too long is a failure."""
        self.done.count += 1
        self.done.slowest_seconds = max(self.done.slowest_seconds, seconds)
        assert seconds < limit, f"took {seconds:.2f} s: {shown}"

    def check(self) -> None:
        """Fail for what was logged or has grown so far."""
        assert not self.trouble.lines, self.trouble.lines[:3]
        if self._pid is None:
            gc.collect()
        grown = resident_bytes(self._pid) - self._before
        self.done.grown_bytes = max(self.done.grown_bytes, grown)
        assert grown < GROWTH_BYTES_MAX, f"memory grew by {grown / 2**20:.0f} MiB"


@contextmanager
def watching(done: Done, pid: int | None = None, *, due: str = "") -> Iterator[Watch]:
    """Look on for the length of the block, then check; errors that say ``due`` are expected."""
    watch = Watch(done, pid, due)
    root = logging.getLogger()
    # Alone: pytest's own handler keeps every line of a test, which is a growth of its own.
    others, root.handlers = root.handlers, [watch.trouble]
    began = time.monotonic()
    watch.settled()
    try:
        yield watch
        watch.check()
    finally:
        done.seconds += time.monotonic() - began
        root.handlers = others
