"""The waiters for responses: for one whole answer, or for lines that are read one by one.

How a caller waits is its own matter: a task of the loop, or a thread. So is how it is woken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Mapping
from typing import Protocol

from coordinator.client.calling.transport import Response
from coordinator.errors import ConnectionLostError, CoordinatorError
from coordinator.wire.stream.frames import WINDOW_BYTES


def not_lines(status: int) -> ConnectionLostError:
    """Return what fails a request for one answer that is answered with lines."""
    return ConnectionLostError(f"expected one answer, found lines (status {status})")


class LinesSource(Protocol):
    """The connection that brings the lines."""

    def credit(self, number: int, amount: int) -> None:
        """Let more lines of request ``number`` come."""
        ...

    def lines_closed(self, number: int) -> None:
        """Take note that the lines of request ``number`` are not read any more."""
        ...


class LinesRead(ABC):
    """The lines of one response: a ``ResponseStream``, and a ``Waiter`` of the conversation.

    Every news calls ``ring``."""

    watches_silence = True

    def __init__(self, connection: LinesSource) -> None:
        self.number = 0
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.has_begun = False
        self._connection = connection
        self._lines: deque[bytes] = deque()
        self._taken_bytes = 0
        self._is_ended = False
        self._error: CoordinatorError | None = None

    # --- what differs

    @abstractmethod
    def ring(self) -> None:
        """Wake who waits."""

    @abstractmethod
    def news(self) -> Awaitable[None]:
        """Return what is awaited until it is woken, or for a while: the caller looks again."""

    # --- what the reader takes

    @property
    def has_news(self) -> bool:
        """Whether ``take`` has something to say."""
        return bool(self._lines) or self._is_ended or self._error is not None

    def take(self) -> bytes | None:
        """Return the next line, None at the end of the stream; there is news."""
        if not self._lines:
            if self._error is not None:
                raise self._error.with_traceback(None)
            return None
        line = self._lines.popleft()
        self._taken_bytes += len(line)
        if self._taken_bytes >= WINDOW_BYTES // 2 and not self._is_ended:
            self._connection.credit(self.number, self._taken_bytes)
            self._taken_bytes = 0
        return line

    def line_here(self) -> bytes | None:
        """Return the next line if it has come already, else None."""
        return self.take() if self._lines else None

    def check_begun(self) -> None:
        """Raise what came instead of a response."""
        if not self.has_begun and self._error is not None:
            raise self._error.with_traceback(None)

    async def line(self) -> bytes | None:
        """Return the next line, None at the end of the stream."""
        while not (self._lines or self._is_ended or self._error is not None):
            await self.news()
        return self.take()

    async def read(self) -> bytes:
        """Return the whole rest."""
        parts = []
        while (line := await self.line()) is not None:
            parts.append(line)
        return b"".join(parts)

    def close(self) -> None:
        """Nobody reads any more."""
        self._connection.lines_closed(self.number)
        self._is_ended = True
        self.ring()  # a reader that was interrupted may close it under the next one

    # --- what the connection brings

    def on_answer(self, response: Response) -> None:
        """Take an answer that came whole instead of a stream."""
        self.status, self.headers = response.status, response.headers
        if response.body:
            self._lines.append(response.body)
        self.has_begun = self._is_ended = True
        self.ring()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take status and headers; lines follow."""
        self.status, self.headers, self.has_begun = status, headers, True
        self.ring()

    def on_line(self, body: bytes) -> None:
        """Take one line."""
        self._lines.append(body)
        self.ring()

    def on_end(self) -> None:
        """Note that the last line has come."""
        self._is_ended = True
        self.ring()

    def on_failure(self, error: CoordinatorError) -> None:
        """Note why no more lines come."""
        self._error = error
        self.ring()
