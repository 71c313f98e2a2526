"""A stream of changes that survives its members: no change is missed, none is delivered twice.

1. Every change has a larger zxid than the one before; nothing older is delivered again.
2. When a stream breaks, ends or falls silent, it is opened again at another member from the last
   zxid that was delivered. So the promise holds over reconnects.
3. If the history no longer reaches back so far there would be a gap: ``CompactedError`` is raised
   instead. Read the tree again and watch from there.
4. A reader that was too slow for the server's buffer is resumed in the same way, from the history.
5. A stream begins when it is entered or awaited, at the latest with its first change. A write of
   this client before that could be missed, and a program that waits for it would never go on: so
   the first change is refused then. (With a sync client it begins with the call.)
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.calls import Call
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.watches.lines import Lines
from coordinator.errors import BadArgumentsError
from coordinator.model.events import (
    Bookmark,
    Change,
    EventType,
    Resync,
    Watching,
    WatchLine,
    WatchRequest,
    WatchSelector,
)
from coordinator.wire.codec import encoded, union_from_body
from coordinator.wire.encoding import decode
from coordinator.wire.messages import NDJSON_TYPE


class ChangeStream:
    """``async for change in stream``; after ``async with`` or ``await`` it is watching already.

    ``zxid`` is that of the last change (or where it began): everything up to it has been
    delivered, so a later program may resume from it. ``contact_timeout_ms`` None tries to
    reconnect without end; otherwise UnavailableError is raised after so long without a member.
    With ``bookmark_ms`` a Change without events says that up to its zxid nothing else happened.
    """

    def __init__(
        self,
        delivery: CallDelivery,
        selectors: Sequence[WatchSelector],
        *,
        from_zxid: int | None,
        is_one_shot: bool,
        has_values: bool = False,
        only: Sequence[str] = (),
        prefix: str = "",
        bookmark_ms: int | None = None,
        contact_timeout_ms: int | None,
    ) -> None:
        self.zxid = from_zxid
        self._delivery = delivery
        self._writes_before = delivery.writes_begun
        self._has_begun = False
        self._request = WatchRequest(
            tuple(selectors), None, is_one_shot, has_values, _types_of(only), prefix, bookmark_ms
        )
        self._has_bookmarks = bookmark_ms is not None
        self._is_one_shot = is_one_shot
        self._lines: Lines[WatchLine] = Lines(delivery, self._call, _read_line, contact_timeout_ms)
        self._is_finished = False

    async def open(self) -> ChangeStream:
        """Return once a member watches for us; changes from then on are reported. Idempotent."""
        if not self._has_begun:
            line = await self._lines.peek()
            self._has_begun = True
            if isinstance(line, Watching):
                self._begin(line)
        return self

    def __await__(self) -> Generator[Any, Any, ChangeStream]:
        return self.open().__await__()

    async def close(self) -> None:
        """Stop watching."""
        self._is_finished = True
        await self._lines.close()

    def __aiter__(self) -> ChangeStream:
        return self

    async def __anext__(self) -> Change:
        if not self._has_begun:
            self._refuse_a_gap()
            self._has_begun = True
        while not self._is_finished:
            match await self._lines.next():
                case Change() as change if self.zxid is None or change.zxid > self.zxid:
                    if self._is_one_shot:
                        await self._lines.close()  # if that is cancelled, it is read again
                        self._is_finished = True
                    self.zxid = change.zxid
                    return change
                case Bookmark(zxid):
                    self.zxid = max(self.zxid or 0, zxid)
                    if self._has_bookmarks:
                        return Change(self.zxid, ())
                case Watching() as watching:
                    self._begin(watching)
                case Resync():
                    await self._lines.close()  # and resume from the history
        raise StopAsyncIteration

    async def __aenter__(self) -> ChangeStream:
        return await self.open()

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    def _refuse_a_gap(self) -> None:
        if self.zxid is None and self._delivery.writes_begun != self._writes_before:
            raise BadArgumentsError(
                "watch: expected to begin before this client writes, found a write in between, "
                "which would be missed: `async with client.watch(...) as changes:`, or "
                "`changes = await client.watch(...)`"
            )

    def _begin(self, watching: Watching) -> None:
        if self.zxid is None:
            self.zxid = watching.zxid

    def _call(self) -> Call:
        request = self._request.after(self.zxid)
        share = None if self._is_one_shot else self._share
        return Call("POST", "/v1/watch", request, accept=NDJSON_TYPE, is_for_any=True, share=share)

    def _share(self, authorization: str | None, seen_zxid: int) -> WatchShare:
        return WatchShare(self._request, authorization, self.zxid, seen_zxid)


def _types_of(words: Sequence[str]) -> tuple[EventType, ...]:
    try:
        return tuple([EventType(each) for each in words])
    except ValueError:
        there = ", ".join(EventType)
        raise BadArgumentsError(f"only: expected some of {there}, found {words!r:.100}") from None


def _read_line(body: Any) -> WatchLine:
    line: WatchLine = union_from_body(WatchLine, body, "line")
    return line


_WITH_A_ZXID = ("watching", "change", "bookmark")


class WatchShare(NamedTuple):
    """A watch that is about to begin, and may do so in the stream of an equal one.

    It begins where a member would let it begin: behind the last line that has come, if the client
    has seen nothing later, or after a zxid that is not before that line. ``form`` is the request
    without its begin."""

    form: WatchRequest
    authorization: str | None
    from_zxid: int | None
    seen_zxid: int
    """Up to which the client has seen what was changed."""

    @property
    def key(self) -> Hashable:
        """What watches have in common that may share a stream."""
        return self.form, self.authorization

    def first_line(self, last_line: bytes, headers: Mapping[str, str]) -> bytes | None:
        """Return with what it begins if it joins behind ``last_line``; None if it must not."""
        encoding = encoding_of(headers)
        try:
            line: Any = decode(last_line, encoding)
        except BadArgumentsError:
            return None  # who reads it finds that out
        if not isinstance(line, dict) or line.get("type") not in _WITH_A_ZXID:
            return None
        zxid = line.get("zxid")
        if type(zxid) is not int:
            return None
        if self.from_zxid is None:
            return encoded(Watching(zxid), encoding) if zxid >= self.seen_zxid else None
        return encoded(Watching(self.from_zxid), encoding) if zxid <= self.from_zxid else None

    def last_line(self, headers: Mapping[str, str]) -> bytes:
        """Return with what it ends that has fallen behind: it goes on from its last zxid."""
        return encoded(Resync(0), encoding_of(headers))
