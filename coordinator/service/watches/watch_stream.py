"""One reader's stream of changes: first the missed ones, then live ones, then at most one Resync.

A stream that resumes from far back reads the history in portions, as its reader asks for them. It
goes live in the same step in which nothing is left to catch up with: no gap, no duplicate.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from coordinator.errors import BadArgumentsError, CoordinatorError, QuotaExceededError
from coordinator.model.access import NOBODY, Caller
from coordinator.model.events import (
    Bookmark,
    Change,
    Event,
    EventType,
    Resync,
    WatchKind,
    WatchSelector,
)
from coordinator.model.limits import MachineLimits
from coordinator.service.base.timers import Timer
from coordinator.state import paths

_REPLAY_ZXIDS_AT_ONCE = 1_000
_REPLAY_EVENTS_AT_ONCE = 2_000
"""Looked at in one portion of the history, whose changes may have thousands of events each."""
EVENTS_A_TURN = 10
"""The events of a change that cost as much as the turn of a stream with a small one."""
HANDED_AT_ONCE = 3
"""The items of one stream in one of the turns that all streams of a member take (``wakes``)."""
SIFTED_AT_ONCE = 1_000
"""Events that were buffered under former access rights, looked at again in one turn of a stream."""


WatchItem = Change | Bookmark | Resync


class Wanted(NamedTuple):
    """What of the matching events a stream wants: of these types (none: of all), of paths that
    begin with ``prefix``; ``has_values``: with the data after and before."""

    has_values: bool = False
    only: frozenset[EventType] = frozenset()
    prefix: str = ""

    def passes(self, event: Event) -> bool:
        """Whether ``event`` is wanted."""
        return (not self.only or event.type in self.only) and event.path.startswith(self.prefix)


EVERYTHING = Wanted()


class WatchSource(Protocol):
    """The part of the hub that a stream uses."""

    @property
    def zxid(self) -> int:
        """The zxid of the last change."""

    @property
    def revision(self) -> int:
        """The revision of the access rights."""

    def unled_error(self) -> CoordinatorError:
        """Return what ends a stream of a member that has known no leader for long."""

    def is_over(self, expires_ms: int) -> bool:
        """Whether this time, by the wall clock, has come; 0 never does."""

    def check_stream(self, stream: WatchStream, seen: int) -> None:
        """Raise NoAuthError or AuthFailedError if its caller may not watch it any more;
        ``seen``: the revision of the rights when it was last looked at."""

    def shown(self, caller: Caller, events: Iterable[Event]) -> tuple[Event, ...]:
        """Return those of ``events`` that ``caller`` may watch now."""

    def with_values(self, caller: Caller, change: Change) -> Change:
        """Return ``change`` with what ``caller`` may read; raises CompactedError."""

    def replay(self, after_zxid: int, count_max: int) -> Iterator[Change] | None:
        """Return up to ``count_max`` changes after a zxid; None if they are forgotten."""

    def go_live(self, stream: WatchStream) -> None:
        """Push every later change to ``stream``."""

    def turn(self, act: Callable[[], None]) -> None:
        """Call ``act`` of a stream that has something to read, after those before it."""

    def later(self, act: Callable[[], None]) -> None:
        """Call ``act`` when all that wait for a turn have had it."""

    def spend(self, turns: int) -> None:
        """Count what a stream does in its turn as that of so many more."""

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
        wanted: Wanted = EVERYTHING,
        bookmark_ms: int | None = None,
        caller: Caller = NOBODY,
        expires_ms: int = 0,
    ) -> None:
        self.caller = caller
        self._expires_ms = expires_ms
        """When the token of its caller ends; 0: it does not."""
        self.start_zxid = start_zxid
        self.client_key = ""
        """The key of its client."""
        self.wanted = wanted
        self.has_values = wanted.has_values
        self.scope: tuple[object, ...] = ()
        """Where its caller could read and watch when it began, of a watch with values."""
        self.bookmark_ms = bookmark_ms
        self.bookmark_timer: Timer | None = None
        self.is_live = False
        self._is_one_shot = is_one_shot
        self._is_plain = not (is_one_shot or wanted.has_values or expires_ms)
        """Whether a change that its caller may watch now is handed on as it is."""
        self._buffer_events_max = buffer_events_max
        self._source = source
        self._revision = source.revision
        """The revision of the access rights by which it was looked at last."""
        self._former = 0
        """How many items at the head of the buffer came under former rights."""
        self._sifted: WatchItem | None = None
        """The first of them, once it was looked at again."""
        self._error: CoordinatorError | None = None
        """Why it was ended, if it was."""
        self._matches = selection
        self._cursor_zxid = start_zxid
        self._buffer: deque[WatchItem] = deque()
        self._buffered_events = 0
        self._has_ended = False
        self._woken: asyncio.Future[None] | None = None
        self._take: Callable[[WatchItem], bool] = _not_taken
        self._has_turn = False
        self._taken_in_a_row = 0

    def __aiter__(self) -> WatchStream:
        return self

    async def __anext__(self) -> WatchItem:
        while True:
            self.recheck()
            if self._buffer:
                if self._taken_in_a_row >= HANDED_AT_ONCE or not self._sift():
                    await self._next_turn()
                    continue
                if not self._buffer:  # nothing of it may be shown any more
                    continue
                self._taken_in_a_row += 1
                item = self._shown()
                if item is not None:
                    self._taken()
                    return item
                continue
            if self._has_ended:
                if self._error is not None:
                    raise self._error.with_traceback(None)
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
                self._taken_in_a_row = 0

    async def _next_turn(self) -> None:
        """Wait until the other streams have had their turns."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._source.later(lambda: None if woken.done() else woken.set_result(None))
        await woken
        self._taken_in_a_row = 0

    def hand_to(self, take: Callable[[WatchItem], bool]) -> None:
        """While its reader waits, let ``take`` have what comes; what it does not take is read.

        It returns whether it took the item, and must not wait."""
        self._take = take

    def close(self) -> None:
        """End the stream; what is buffered is still delivered. Idempotent."""
        if not self._has_ended:
            self._end()

    # --- called by the hub

    def cut(self) -> None:
        """End after what is buffered, with an error: this member knows no leader for long."""
        if not self._has_ended:
            self._error = self._source.unled_error()
            self._end()

    def recheck(self) -> None:
        """End the stream if its caller may watch nothing of it any more, because the access rights
        have changed or its token has expired. What is buffered is looked at again when its turn to
        be delivered comes (``_sift``): there may be much of it."""
        source = self._source
        if self._revision == source.revision and not source.is_over(self._expires_ms):
            return
        seen, self._revision = self._revision, source.revision
        try:
            if not self._has_ended:
                source.check_stream(self, seen)
        except CoordinatorError as error:
            self._fail(error)
            return
        self._former, self._sifted = len(self._buffer), None

    def push(self, change: Change) -> bool:
        """Hand on the matching events of one zxid, or buffer them, or end with a Resync if there is
        no room. Return whether its reader has them already."""
        if self._has_ended or change.zxid <= self._cursor_zxid:
            return False
        woken = self._woken
        if (
            woken is not None
            and self._is_plain
            and not (self._buffer or self._has_turn or woken.done())
            and self._take(change)
        ):
            return True
        if self._buffer and self._buffered_events + len(change.events) > self._buffer_events_max:
            self.resync(change.zxid)
            return False
        self._put(change)
        if self._is_one_shot:
            self._end()
        return False

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
        looked_at = 0
        for change in changes:
            if looked_at > _REPLAY_EVENTS_AT_ONCE:
                self._cursor_zxid = change.zxid - 1
                return
            looked_at += len(change.events)
            events = tuple([event for event in change.events if self._matches(event)])
            if events and (events := self._source.shown(self.caller, events)):
                self._put(Change(change.zxid, events))
                if self._is_one_shot:
                    self._end()
                    return
        self._cursor_zxid = min(self._cursor_zxid + _REPLAY_ZXIDS_AT_ONCE, self._source.zxid)
        if self._cursor_zxid >= self._source.zxid:
            self._source.go_live(self)
            if self.bookmark_ms is not None:
                self._put(Bookmark(self._cursor_zxid))

    def _put(self, item: WatchItem) -> None:
        self._buffer.append(item)
        if isinstance(item, Change):
            self._buffered_events += len(item.events)
        self._wake()

    def _sift(self) -> bool:
        """Forget what came under former rights and may not be shown now, until the first item may
        be; return whether that was reached. Some events are looked at, or one item."""
        left = SIFTED_AT_ONCE
        while self._former and (item := self._buffer[0]) is not self._sifted:
            if isinstance(item, Change):
                if left <= 0:
                    return False
                left -= len(item.events)
                events = self._source.shown(self.caller, item.events)
                if not events:
                    self._taken()
                    continue
                if len(events) < len(item.events):
                    self._buffered_events -= len(item.events) - len(events)
                    self._buffer[0] = item = Change(item.zxid, events)
            self._sifted = item
        return True

    def _shown(self) -> WatchItem | None:
        """Return the first item of the buffer as its reader gets it; None: the stream has ended."""
        item = self._buffer[0]
        if not self.has_values or not isinstance(item, Change):
            return item
        try:
            return self._source.with_values(self.caller, item)
        except CoordinatorError as error:
            self._fail(error)
            return None

    def _fail(self, error: CoordinatorError) -> None:
        """End with ``error``, after which nothing of the buffer may be delivered."""
        self._error = error
        self._buffer.clear()
        self._buffered_events = self._former = 0
        self._end()

    def _taken(self) -> WatchItem:
        item = self._buffer.popleft()
        if self._former:
            self._former, self._sifted = self._former - 1, None
        if isinstance(item, Change):
            self._buffered_events -= len(item.events)
        return item

    def _end(self) -> None:
        self._has_ended = True
        self._matches = _nothing  # a slow reader of what is buffered keeps no selectors
        self._take = _not_taken
        self._source.forget(self)
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._has_turn:
            self._has_turn = True  # once, however much comes until then
            self._source.turn(self._turn)

    def _turn(self) -> None:
        """Hand on what has come, and wake the reader for what is not taken, or for the end."""
        self._has_turn = False
        self.recheck()
        woken, take = self._woken, self._take
        if woken is None or woken.done():
            return  # its reader is at it
        for _ in range(HANDED_AT_ONCE):
            if not self._sift():
                self._has_turn = True
                self._source.later(self._turn)
                return
            item = self._shown() if self._buffer else None
            if isinstance(item, Change):
                self._source.spend(len(item.events) // EVENTS_A_TURN)
            if item is None or not take(item):
                break
            self._taken()
        else:
            if self._buffer:
                self._has_turn = True
                self._source.later(self._turn)
                return
        if self._buffer or self._has_ended:
            woken.set_result(None)


def _not_taken(_item: WatchItem) -> bool:
    return False


def _nothing(_event: Event) -> bool:
    return False


Key: TypeAlias = tuple[WatchKind, str]


def checked_keys(
    selectors: Sequence[WatchSelector], wanted: Wanted, limits: MachineLimits, count_max: int
) -> tuple[Key, ...]:
    """Return the selectors as keys, each once.

    Raises:
        BadArgumentsError: there is none, or it cannot be one, or ``wanted`` cannot be.
        QuotaExceededError: they are more than ``count_max``.
    """
    if not selectors:
        raise BadArgumentsError("expected at least one path to watch, found none")
    if len(selectors) > count_max:
        raise QuotaExceededError(
            f"expected at most {count_max} watches in one stream, found {len(selectors)}"
        )
    keys: dict[Key, None] = {}
    for selector in selectors:
        try:
            kind = WatchKind(selector.kind)
        except ValueError:
            raise BadArgumentsError(
                f"expected a kind of znode, children or subtree, found {selector.kind!r}"
            ) from None
        paths.validate(selector.path, limits)
        keys[kind, selector.path] = None
    if paths.utf8_length(wanted.prefix) > limits.path_bytes_max:
        raise BadArgumentsError(
            f"prefix: expected at most {limits.path_bytes_max} bytes, found more"
        )
    return tuple(keys)


class Selection:
    """The selectors of one stream, matched with one change at a time (for the replay)."""

    __slots__ = ("_by_kind", "_wanted")

    def __init__(self, selectors: Sequence[Key], wanted: Wanted) -> None:
        self._wanted = wanted
        self._by_kind: dict[WatchKind, set[str]] = {kind: set() for kind in WatchKind}
        for kind, path in selectors:
            self._by_kind[kind].add(path)

    def matches(self, event: Event) -> bool:
        """Say whether one of the selectors is about ``event``, and the stream wants it."""
        if not self._wanted.passes(event):
            return False
        return any(path in self._by_kind[kind] for kind, path in keys_of(event))


def keys_of(event: Event) -> Iterator[Key]:
    """Yield the (kind, path) of every selector that matches ``event``."""
    path = event.path
    yield WatchKind.ZNODE, path
    yield WatchKind.SUBTREE, path
    is_first_parent = event.type is not EventType.DATA_CHANGED
    while path != "/":
        path = path[: path.rindex("/")] or "/"
        if is_first_parent:
            yield WatchKind.CHILDREN, path
            is_first_parent = False
        yield WatchKind.SUBTREE, path
