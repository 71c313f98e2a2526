"""One long stream of lines from whichever member serves: opened, read, and opened again elsewhere.

``watching`` and ``observing`` know what the lines mean, and where to continue after a break. A
stream that breaks, ends, cannot be understood or is silent for too long has failed; its reader
opens it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.calls import Call
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.failures import CallFailures
from coordinator.client.calling.transport import ResponseStream
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    ConnectionLostError,
    CoordinatorError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.model.events import StreamError
from coordinator.wire.encoding import Encoding, decode

T = TypeVar("T")

SILENCE_MS_MAX = 12_000
"""An idle watch or observation has a line every 5 s (``limits.bookmark_interval_ms``).

A stream that is silent for longer than this is taken for dead. A wait for a grant, which has a line
every 2 s, is read by ``LockQueue``.
"""
_OPEN_MS = 3_000
_TURN_MS = 600_000
"""How long it waits at most until as many others of this client have begun as came before it."""
_FOR_EVER_MS = 1 << 53


class Lines(Generic[T]):
    """The lines of ``call()``, parsed; ``contact_timeout_ms`` None reconnects without end."""

    def __init__(
        self,
        delivery: CallDelivery,
        call: Callable[[], Call],
        parse: Callable[[Any], T | StreamError],
        contact_timeout_ms: int | None,
    ) -> None:
        self._delivery = delivery
        self._call = call
        self._parse = parse
        self._contact_timeout_ms = contact_timeout_ms
        self._opening: AbstractAsyncContextManager[ResponseStream] | None = None
        self._stream: ResponseStream | None = None
        self._encoding = Encoding.JSON
        """How the lines of ``_stream`` are written."""
        self._pushed_back: T | None = None
        self._silence: asyncio.Timeout | None = None
        delivery.readers.add(self)

    async def peek(self) -> T:
        """Return the next line without taking it."""
        if self._pushed_back is None:
            self._pushed_back = await self.next()
        return self._pushed_back

    async def next(self) -> T:
        """Return the next line; opens the stream, again and elsewhere, as often as needed.

        Raises:
            UnavailableError: no member served within the contact timeout.
            RequestError: what the stream was ended with, such as CompactedError.
        """
        if self._pushed_back is not None:
            line, self._pushed_back = self._pushed_back, None
            return line
        failures: CallFailures | None = None
        deadline_ms = self._contact_deadline_ms()
        was_served = self._stream is not None
        while True:
            try:
                silence_ms, stream = SILENCE_MS_MAX, self._stream
                if stream is None:
                    silence_ms, stream = _OPEN_MS, await self._open()
                while True:
                    if self._delivery.is_closed:
                        raise ConnectionLostError("the client was closed")
                    raw = stream.line_here()
                    if raw is None:
                        # One that watches over silence fails when its client is closed, too.
                        is_watched = stream.watches_silence
                        raw = await (
                            stream.line() if is_watched else self._line(stream, silence_ms)
                        )
                        if raw is None:
                            raise ConnectionLostError("the stream ended")
                    if raw.strip():
                        return self._read(raw)
                    failures, was_served = None, True  # a keep-alive
            except (UnavailableError, OutcomeUnknownError) as error:
                if failures is None:
                    failures = CallFailures()
                    if was_served:  # until now, however long it has said nothing
                        deadline_ms = self._contact_deadline_ms()
                failures.note(error)
                await self._drop(error)
                is_over = self._delivery.is_closed
                is_over = is_over or not await self._delivery.pause(failures, deadline_ms)
                if self._delivery.is_closed:
                    raise ClientClosedError(
                        "this client was closed; no more changes are delivered"
                    ) from None
                if is_over:
                    raise failures.verdict(is_write=False) from error
            except BaseException:
                await self.close()
                raise

    def _contact_deadline_ms(self) -> int:
        """Return when the retries end, if no member serves from now on."""
        if self._contact_timeout_ms is None:
            return _FOR_EVER_MS
        return self._delivery.clock.monotonic_ms() + self._contact_timeout_ms

    def on_closed(self) -> None:
        """Wait no longer for a line: the client was closed."""
        if self._silence is not None:
            with suppress(RuntimeError):  # not entered yet, or left already
                self._silence.reschedule(asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close the stream; ``next`` would open it again."""
        opening, self._opening, self._stream = self._opening, None, None
        if opening is not None:
            await opening.__aexit__(None, None, None)

    async def _drop(self, error: CoordinatorError) -> None:
        """Close a stream that failed; the delivery leaves its member for that."""
        opening, self._opening, self._stream = self._opening, None, None
        if opening is not None:
            await opening.__aexit__(type(error), error, error.__traceback__)

    async def _open(self) -> ResponseStream:
        turn = await self._delivery.openings.take(_TURN_MS)
        try:
            opening = self._delivery.stream(self._call(), _OPEN_MS)
            self._stream = stream = await opening.__aenter__()
        finally:
            turn.end()
        self._opening, self._encoding = opening, encoding_of(stream.headers)
        return stream

    async def _line(self, stream: ResponseStream, silence_ms: int) -> bytes | None:
        """Return the next line, None at the end of ``stream``, unless it falls silent."""
        self._silence = asyncio.timeout(silence_ms / 1000)
        try:
            async with self._silence:
                return await stream.line()
        except TimeoutError:
            raise ConnectionLostError(f"the stream was silent for {silence_ms} ms") from None

    def _read(self, raw: bytes) -> T:
        """Return what a line says, or raise what the stream was ended with."""
        is_packed = self._encoding is Encoding.MSGPACK
        key, kept = (raw, is_packed, self._parse), self._delivery.recent_lines
        shared: T | None = kept.said.get(key)
        if shared is not None:
            return shared
        try:
            parsed = self._parse(decode(raw, self._encoding))
        except BadArgumentsError as error:
            raise ConnectionLostError(f"a line could not be read: {error.message}") from error
        if isinstance(parsed, StreamError):  # not kept: what is raised keeps where it was
            raise parsed.error
        kept.keep(key, parsed, len(raw))
        return parsed
