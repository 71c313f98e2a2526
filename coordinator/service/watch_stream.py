"""One reader's stream of changes: first the missed ones, then live ones, then at most one Resync.

A stream that resumes from far back reads the history in portions, as its reader asks for them. It
goes live in the same step in which nothing is left to catch up with: no gap, no duplicate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

from coordinator.model.events import Bookmark, Change, Event, Resync

_REPLAY_ZXIDS_AT_ONCE = 1_000


WatchItem = Change | Bookmark | Resync


class WatchSource(Protocol):
    """The part of the hub that a stream uses."""

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""

    def replay(self, after_zxid: int, count_max: int) -> Iterator[Change] | None:
        """Return up to ``count_max`` changes after a zxid; None if they are forgotten."""

    def go_live(self, stream: WatchStream) -> None:
        """Push every later change to ``stream``."""

    def wake(self, reader: asyncio.Future[None]) -> None:
        """Wake the reader of a stream, after those that wait already."""

    def forget(self, stream: WatchStream) -> None:
        """Push nothing more to ``stream``."""


class WatchStream:
    """An async iterator of Change and Bookmark; a Resync is the last item if there is one.

    One reader only. ``start_zxid`` is the zxid after which everything is delivered.
    """

    def __init__(
        self,
        *,
        start_zxid: int,
        is_one_shot: bool,
        buffer_events_max: int,
        source: WatchSource,
        selection: Callable[[Event], bool],
    ) -> None:
        self.start_zxid = start_zxid
        self.is_live = False
        self._is_one_shot = is_one_shot
        self._buffer_events_max = buffer_events_max
        self._source = source
        self._matches = selection
        self._cursor_zxid = start_zxid
        self._buffer: deque[WatchItem] = deque()
        self._buffered_events = 0
        self._has_ended = False
        self._woken: asyncio.Future[None] | None = None

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> WatchItem:
        while True:
            if self._buffer:
                return self._taken()
            if self._has_ended:
                raise StopAsyncIteration
            if not self.is_live:
                self._catch_up()
                await asyncio.sleep(0)  # a long history is read between other work
                continue
            self._woken = asyncio.get_running_loop().create_future()
            try:
                await self._woken
            finally:
                self._woken = None

    def close(self) -> None:
        """End the stream; what is buffered is still delivered. Idempotent."""
        if not self._has_ended:
            self._end()

    # --- called by the hub

    def push(self, change: Change) -> None:
        """Buffer the matching events of one zxid, or end with a Resync if there is no room."""
        if self._has_ended or change.zxid <= self.start_zxid:
            return
        if self._buffer and self._buffered_events + len(change.events) > self._buffer_events_max:
            self.resync(change.zxid)
            return
        self._put(change)
        if self._is_one_shot:
            self._end()

    def maybe_bookmark(self, zxid: int) -> None:
        """Send a bookmark, unless there is something to read or to catch up with."""
        if self.is_live and not self._buffer and not self._has_ended and zxid >= self.start_zxid:
            self._put(Bookmark(zxid))

    def resync(self, zxid: int) -> None:
        """End the stream after what is buffered: it cannot continue without a gap."""
        if not self._has_ended:
            self._put(Resync(zxid))
            self._end()

    # --- own steps

    def _catch_up(self) -> None:
        changes = self._source.replay(self._cursor_zxid, _REPLAY_ZXIDS_AT_ONCE)
        if changes is None:
            self.resync(self._source.zxid)
            return
        for change in changes:
            events = tuple(event for event in change.events if self._matches(event))
            if events:
                self._put(Change(change.zxid, events))
                if self._is_one_shot:
                    self._end()
                    return
        self._cursor_zxid = min(self._cursor_zxid + _REPLAY_ZXIDS_AT_ONCE, self._source.zxid)
        if self._cursor_zxid >= self._source.zxid:
            self._source.go_live(self)

    def _put(self, item: WatchItem) -> None:
        self._buffer.append(item)
        if isinstance(item, Change):
            self._buffered_events += len(item.events)
        self._wake()

    def _taken(self) -> WatchItem:
        item = self._buffer.popleft()
        if isinstance(item, Change):
            self._buffered_events -= len(item.events)
        return item

    def _end(self) -> None:
        self._has_ended = True
        self._matches = _nothing  # a slow reader of what is buffered keeps no selectors
        self._source.forget(self)
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None:
            woken, self._woken = self._woken, None  # once, however much comes until it reads
            self._source.wake(woken)


def _nothing(_event: Event) -> bool:
    return False
