"""A stream of changes that survives its members: never a change missed, never one told twice.

1. Every change told has a larger zxid than the one before; nothing older is told again.
2. When a stream breaks, ends or falls silent, it is opened again at another member from the last
   zxid that was told. What happened meanwhile is told then (S013 holds over reconnects).
3. If the history no longer reaches back so far there would be a gap: ``CompactedError`` is raised
   instead; read the tree anew and watch from there.
4. A reader that was too slow for the server's buffer is resumed in the same way, from the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from coordinator.client.delivery import Call, Delivery, Trouble
from coordinator.client.transport import ResponseStream
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.wire.encoding import decode
from coordinator.wire.messages import NDJSON_TYPE
from coordinator.wire.messages.watches import (
    Bookmark,
    Change,
    Resync,
    StreamError,
    Watching,
    WatchRequest,
    WatchSelector,
    read_watch_line,
)

_SILENCE_MS_MAX = 20_000
"""Bookmarks come every few seconds; a stream that is silent for so long is taken for dead."""
_FOR_EVER_MS = 1 << 53


class ChangeStream:
    """``async for change in stream``; ``async with`` makes sure that it is watching already.

    ``zxid`` is the last one told (or from which it began): everything up to it has been
    delivered, so a later program may resume from it. ``contact_timeout_ms`` None tries to
    reconnect without end; otherwise UnavailableError is raised after so long without a member.
    """

    def __init__(
        self,
        delivery: Delivery,
        selectors: Sequence[WatchSelector],
        *,
        from_zxid: int | None,
        is_one_shot: bool,
        contact_timeout_ms: int | None,
    ) -> None:
        self.zxid = from_zxid
        self._delivery = delivery
        self._selectors = tuple(selectors)
        self._is_one_shot = is_one_shot
        self._contact_timeout_ms = contact_timeout_ms
        self._opening: AbstractAsyncContextManager[ResponseStream] | None = None
        self._stream: ResponseStream | None = None
        self._is_finished = False

    async def open(self) -> ChangeStream:
        """Return once a member watches for us; changes from then on are told."""
        if self._stream is None:
            await self._connect(_deadline(self._delivery, self._contact_timeout_ms))
        return self

    async def close(self) -> None:
        """Stop watching."""
        self._is_finished = True
        await self._disconnect()

    def __aiter__(self) -> ChangeStream:
        return self

    async def __anext__(self) -> Change:
        trouble = Trouble()
        deadline_ms = _deadline(self._delivery, self._contact_timeout_ms)
        while not self._is_finished:
            try:
                await self._connect(deadline_ms)
                change = await self._next_change()
            except (UnavailableError, OutcomeUnknownError) as error:
                trouble.note(error)
                await self._disconnect()
                if not await self._delivery.pause(trouble, deadline_ms):
                    raise trouble.verdict(is_write=False) from error
                continue
            if change is None:
                break
            if self._is_one_shot:
                await self.close()
            return change
        raise StopAsyncIteration

    async def __aenter__(self) -> ChangeStream:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _connect(self, deadline_ms: int) -> None:
        trouble = Trouble()
        while self._stream is None:
            try:
                await self._open_once()
            except (UnavailableError, OutcomeUnknownError) as error:
                trouble.note(error)
                await self._disconnect()
                if not await self._delivery.pause(trouble, deadline_ms):
                    raise trouble.verdict(is_write=False) from error

    async def _open_once(self) -> None:
        request = WatchRequest(self._selectors, self.zxid, self._is_one_shot)
        call = Call("POST", "/v1/watch", request.to_body(), accept=NDJSON_TYPE)
        timeout_ms = self._delivery.attempt_ms(3 * 3_000, 3_000)
        opening = self._delivery.stream(call, timeout_ms)
        stream = await opening.__aenter__()
        self._opening, self._stream = opening, stream
        line = await self._line(timeout_ms)
        if not isinstance(line, Watching):
            raise ConnectionLostError(f"expected the watch to begin, found {line!r}")
        if self.zxid is None:
            self.zxid = line.zxid

    async def _next_change(self) -> Change | None:
        while True:
            match await self._line(_SILENCE_MS_MAX):
                case Change() as change:
                    if self.zxid is not None and change.zxid <= self.zxid:
                        continue  # told before a reconnect
                    self.zxid = change.zxid
                    return change
                case Bookmark(zxid):
                    self.zxid = max(self.zxid or 0, zxid)
                case Resync():
                    raise ConnectionLostError("this reader was too slow for the server's buffer")

    async def _line(self, silence_ms: int) -> Watching | Change | Bookmark | Resync:
        assert self._stream is not None, "a line is read from an open stream"
        while True:
            try:
                async with asyncio.timeout(silence_ms / 1000):
                    raw = await self._stream.line()
            except TimeoutError:
                raise ConnectionLostError(f"the watch was silent for {silence_ms} ms") from None
            if raw is None:
                raise ConnectionLostError("the watch's stream ended")
            if not raw.strip():
                continue
            try:
                said = read_watch_line(decode(raw))
            except BadArgumentsError as error:
                raise ConnectionLostError(f"a line could not be read: {error.message}") from error
            if isinstance(said, StreamError):
                raise said.error
            return said

    async def _disconnect(self) -> None:
        opening, self._opening, self._stream = self._opening, None, None
        if opening is not None:
            await opening.__aexit__(None, None, None)


def _deadline(delivery: Delivery, contact_timeout_ms: int | None) -> int:
    if contact_timeout_ms is None:
        return _FOR_EVER_MS
    return delivery.clock.monotonic_ms() + contact_timeout_ms
