"""The waiters of threads on the stream: for one whole answer, or for the lines of one."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Protocol

from coordinator.client.stream.patience import SILENCE_MS_MAX
from coordinator.client.stream.waiters import LinesRead, LinesSource, not_lines
from coordinator.client.transport import Response
from coordinator.errors import CoordinatorError


class WatchedLines(LinesSource, Protocol):
    """The connection that brings the lines, and knows whether its server is there."""

    is_doubted: bool
    """Whether another member says that the server leads no more, and it was not heard since."""

    def look_ms(self, since_ms: int) -> int:
        """Look after the server; return for how long to wait before the next look."""
        ...


class AnswerWaiter:
    """One caller; ``lock`` is closed until there is something for it."""

    __slots__ = ("error", "lock", "response")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.response: Response | None = None
        self.error: CoordinatorError | None = None

    @property
    def is_answered(self) -> bool:
        """Whether there is something for it."""
        return self.response is not None or self.error is not None

    def on_answer(self, response: Response) -> None:
        """Take the answer, and wake the caller."""
        if not self.is_answered:
            self.response = response
            self.ring()

    def on_failure(self, error: CoordinatorError) -> None:
        """Take what came instead, and wake the caller."""
        if not self.is_answered:
            self.error = error
            self.ring()

    def wait(self, limit_s: float) -> None:
        """Return when the bell has rung, at the latest after ``limit_s``."""
        self.lock.acquire(timeout=max(0, limit_s))

    def ring(self) -> None:
        """Wake the caller, who looks whether there is something for it; from any thread."""
        try:
            self.lock.release()
        except RuntimeError:
            pass  # it is open already

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Lines are not what was asked for."""
        self.on_failure(not_lines(status))

    def on_line(self, body: bytes) -> None:
        """Ignore a line: the request has failed already (``on_head``)."""

    def on_end(self) -> None:
        """Ignore the end: the request has failed already."""


class BlockingLines(LinesRead):
    """A response that a thread reads line by line."""

    def __init__(self, connection: WatchedLines) -> None:
        super().__init__(connection)
        self._watched = connection
        self._bell = threading.Lock()
        """Open when there is news."""
        self._bell.acquire()

    @property
    def is_answered(self) -> bool:
        """Whether the response has begun, or never will."""
        return self.has_begun or self._error is not None

    def wait(self, limit_s: float) -> None:
        """Return when the bell has rung, at the latest after ``limit_s``."""
        if self.has_begun and self._watched.is_doubted:
            limit_s = min(limit_s, self._watched.look_ms(0) / 1000)
        self._bell.acquire(timeout=max(0, limit_s))

    def ring(self) -> None:
        """Wake who waits; from any thread."""
        try:
            self._bell.release()
        except RuntimeError:
            pass  # it is open already

    async def news(self) -> None:
        """Wait in this thread, which runs no loop."""
        self.wait(SILENCE_MS_MAX / 1000)
