"""The lines of one response that several tasks read, each at its own pace.

1. The server is credited with what the quickest reader has read, as if that were the only one; one
   that joins has read all that came, so it does not wait for those who read nothing.
2. A reader that is behind it by more than a window ends with ``last_line``. So none waits for the
   slowest, and no more is kept for it than another window.
3. The request is given up when none reads any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Protocol

from coordinator.client.calling.transport import Response, Sharing
from coordinator.client.stream.waiters import LinesRead, LinesSource
from coordinator.errors import CoordinatorError
from coordinator.wire.stream.frames import WINDOW_BYTES

_LOOKED_AT_EACH_BYTES = WINDOW_BYTES // 4


class SharedSource(LinesSource, Protocol):
    """The connection that brings the lines."""

    shared: dict[Hashable, SharedLines]
    """The lines that may be joined."""


class SharedLines:
    """A ``Waiter`` of the conversation, and the source of the lines of its readers."""

    def __init__(self, connection: SharedSource, share: Sharing) -> None:
        self.number = 0
        self.has_begun = False
        self._connection = connection
        self._share = share
        self._readers: dict[int, LinesRead] = {}
        self._read_bytes: dict[int, int] = {}
        """Up to where each reader has read, in bytes of all lines, as it said last."""
        self._joined = 0
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._last: bytes | None = None
        self._arrived_bytes = 0
        self._credited_bytes = 0
        self._look_at_bytes = WINDOW_BYTES
        """When so many have arrived, it is looked who is behind."""
        connection.shared[share.key] = self

    def add(self, reader: LinesRead) -> None:
        """Let ``reader`` have what comes."""
        self._joined += 1
        reader.number = self._joined
        self._readers[self._joined] = reader
        self._read_bytes[self._joined] = self._arrived_bytes

    def joins(self, share: Sharing, reader: LinesRead) -> bool:
        """Let ``reader`` have what comes, if it misses nothing by that; return whether it does."""
        first: bytes | None = None
        if self._last is not None:
            first = share.first_line(self._last, self._headers)
            if first is None:
                return False
        elif share != self._share:
            return False
        self.add(reader)
        if self.has_begun:
            reader.on_head(self._status, self._headers)
        if first is not None:
            self._read_bytes[reader.number] -= len(first)
            reader.on_line(first)
            if self._arrived_bytes - self._credited_bytes >= WINDOW_BYTES // 2:
                self._credit_up_to(self._arrived_bytes)
        return True

    # --- what readers ask

    def credit(self, number: int, amount: int) -> None:
        """Reader ``number`` has read so much more."""
        if number not in self._readers:
            return
        self._read_bytes[number] = read = self._read_bytes[number] + amount
        if read > self._credited_bytes:
            self._credit_up_to(read)

    def lines_closed(self, number: int) -> None:
        """Reader ``number`` reads no more."""
        if self._readers.pop(number, None) is not None:
            del self._read_bytes[number]
            if not self._readers:
                self._end()
                self._connection.lines_closed(self.number)

    # --- what the connection brings

    def on_answer(self, response: Response) -> None:
        """Take an answer that came whole instead of a stream."""
        self._end()
        for reader in self._readers.values():
            reader.on_answer(response)

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take status and headers; lines follow."""
        self._status, self._headers, self.has_begun = status, headers, True
        for reader in self._readers.values():
            reader.on_head(status, headers)

    def on_line(self, body: bytes) -> None:
        """Take one line."""
        if self._arrived_bytes >= self._look_at_bytes:
            self._end_those_behind()
        self._last = body
        self._arrived_bytes += len(body)
        for reader in self._readers.values():
            reader.on_line(body)

    def on_end(self) -> None:
        """Note that the last line has come."""
        self._end()
        for reader in self._readers.values():
            reader.on_end()

    def on_failure(self, error: CoordinatorError) -> None:
        """Note why no more lines come."""
        self._end()
        for reader in self._readers.values():
            reader.on_failure(error)

    # --- own steps

    def _credit_up_to(self, read: int) -> None:
        self._connection.credit(self.number, read - self._credited_bytes)
        self._credited_bytes = read

    def _end_those_behind(self) -> None:
        self._look_at_bytes = self._arrived_bytes + _LOOKED_AT_EACH_BYTES
        least_bytes = self._credited_bytes - WINDOW_BYTES
        for number, read in list(self._read_bytes.items()):
            if read <= least_bytes:  # which is not the quickest
                reader = self._readers[number]
                self.lines_closed(number)
                reader.on_line(self._share.last_line(self._headers))
                reader.on_end()

    def _end(self) -> None:
        """Let no other reader join."""
        if self._connection.shared.get(self._share.key) is self:
            del self._connection.shared[self._share.key]
