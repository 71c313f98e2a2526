"""One attempt to hold: what is known of it so far, and what a member says of it.

1. A member answers an attempt that need not wait with one body, as any other request. Else it sends
   lines: first the position and the session, then blank ones, and at the end what came of it. A
   caller gets its position as it changes if it asks for that.
2. The first attempt of a client opens the session with itself, under an id that the client drew.
   The lease counts from when the attempt was first sent; the session is one, and renewed, from the
   first thing on that a member says.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.deadline import MARGIN_MS, TRY_MS
from coordinator.client.calling.delivery import CallDelivery
from coordinator.client.calling.request_ids import RequestIds
from coordinator.client.calling.transport import ResponseStream
from coordinator.client.sessions.current_session import OpeningSession
from coordinator.client.sessions.session import Session
from coordinator.clock import Clock
from coordinator.errors import BadArgumentsError, ConnectionLostError
from coordinator.model.contention import WAIT_MS_MAX
from coordinator.model.events import StreamError
from coordinator.model.grants import AcquireLine, AcquireReply, Granted, GrantReply, Queued
from coordinator.wire.codec import from_body, union_from_body
from coordinator.wire.encoding import Encoding, decode
from coordinator.wire.messages import NDJSON_TYPE
from coordinator.wire.packed import packed_reader

T = TypeVar("T")

POSITIONS = NDJSON_TYPE
"""Accepts lines, with the position as it changes."""
_SILENCE_MS_MAX = 7_000
"""A waiting stream that says nothing for so long is taken for dead."""
_GRACE_MS = 200
"""How much longer than the deadline we listen for the server's own "timed out"."""
_SETTLED_MS = MARGIN_MS - 50
"""How much longer than the deadline a failed attempt waits until it knows that it left nothing."""
_SETTLING_MS = 100, 1_000
"""At least and at most, a cancelled attempt does so."""
_END_MS_MAX = 250
"""How long the end of a stream is waited for, so that its connection can be kept."""
_ASK_AGAIN_MS = WAIT_MS_MAX // 2
"""The server waits for an hour at most; a longer wait asks again in time, at the same place."""


class AskAgain(Exception):
    """The stream is old: send the same attempt again."""


class CallbackFailed(Exception):
    """The caller's ``on_position`` raised ``error``, which no member has said, whatever it is."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class AcquireAttempt:
    """What is known of one attempt to acquire.

    ``session`` is None until a member says that it was opened.
    """

    __slots__ = (
        "clock",
        "deadline_ms",
        "ids",
        "is_try",
        "may_be_queued",
        "opening",
        "position",
        "session",
        "was_served",
    )

    def __init__(
        self,
        ids: RequestIds,
        clock: Clock,
        deadline_ms: int | None,
        is_try: bool,
        session: Session | None,
        opening: OpeningSession | None,
    ) -> None:
        self.ids = ids
        self.clock = clock
        self.deadline_ms = deadline_ms
        self.is_try = is_try
        self.session = session
        self.opening = opening
        self.may_be_queued = False
        self.was_served = False
        """A member reported our position since the last failure."""
        self.position: int | None = None

    def remaining_ms(self) -> int:
        """Return how long it may still take."""
        if self.deadline_ms is None:
            return WAIT_MS_MAX
        return self.deadline_ms - self.clock.monotonic_ms()

    def settling_ms(self) -> int:
        """Return how long it may wait until it is known that it left nothing."""
        least_ms, most_ms = _SETTLING_MS
        return max(least_ms, min(most_ms, self.remaining_ms() + _SETTLED_MS))

    def first_answer_ms(self, delivery: CallDelivery, timeout_ms: int, remaining_ms: int) -> int:
        """Return how long a member's first answer may take, of a client of this timeout."""
        whole_ms = TRY_MS if self.is_try else timeout_ms
        return delivery.attempt_ms(whole_ms, remaining_ms)

    def fields(self, known: dict[str, Any], remaining_ms: int) -> dict[str, Any]:
        """Return what the request says, which is ``known`` but for this attempt; it is sent now."""
        timeout_ms = 0 if self.is_try else min(remaining_ms, WAIT_MS_MAX)
        return {
            **known,
            **self._in_session(),
            "timeout_ms": timeout_ms,
            "on_disconnect": "stay",
        }

    def _in_session(self) -> dict[str, Any]:
        if self.session is not None:
            return {"session_id": self.session.session_id}
        assert self.opening is not None, "an attempt has a session, or opens one"
        return self.opening.sent()

    def learn(self) -> None:
        """A member says that it was entered."""
        if self.session is None:
            assert self.opening is not None, "an attempt has a session, or opens one"
            self.session = self.opening.opened()

    @property
    def has_ended(self) -> bool:
        """Whether whatever it left has gone with its session."""
        if self.session is not None:
            return self.session.is_lost
        return self.opening is None or self.opening.has_ended

    async def while_opening(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, but no longer than the session that it opens lives.

        Raises:
            SessionExpiredError: the session ended first.
            What ``work`` raises.
        """
        assert self.opening is not None, "an attempt has a session, or opens one"
        working = asyncio.get_running_loop().create_task(work)
        either: set[asyncio.Future[Any]] = {working, self.opening.is_known}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self.session is None or working.done():
                return await working
            return await self.session.while_alive(_result([working]))
        except BaseException:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            raise
        finally:
            del working, either  # frames of a failure hold them: no cycle for the collector

    async def heard(
        self,
        stream: ResponseStream,
        delivery: CallDelivery,
        title: str,
        on_position: Callable[[int], object] | None,
    ) -> GrantReply:
        """Return the grant, or raise what a member says instead; ``title`` names the queue.

        ``delivery`` is what the stream was opened by.

        Raises:
            ConnectionLostError: it says nothing any more, or nothing that can be read.
            AskAgain, CallbackFailed: see there.
        """
        again_ms: int | None = None
        while True:
            line = stream.line_here()
            if line is None:
                again_ms = again_ms or self.clock.monotonic_ms() + _ASK_AGAIN_MS
                line = await self._next_line(stream, delivery, title, again_ms)
            if not line.strip():
                continue  # a keep-alive
            reply = _read(line, encoding_of(stream.headers))
            match reply:
                case AcquireReply(grant):
                    self.learn()
                    if type(reply) is Granted:
                        await _ended(stream, delivery)
                    return grant
                case Queued(position):
                    self.learn()
                    await self._stands_at(position, on_position)
                case StreamError(problem):
                    try:
                        raise problem
                    finally:
                        del problem, reply  # as above

    async def _next_line(
        self, stream: ResponseStream, delivery: CallDelivery, title: str, again_ms: int
    ) -> bytes:
        fresh_ms = again_ms - self.clock.monotonic_ms()
        if fresh_ms <= 0:
            raise AskAgain
        limit_ms = self.remaining_ms() + _GRACE_MS
        if not stream.watches_silence:
            limit_ms = min(limit_ms, _SILENCE_MS_MAX)
        try:
            line = await delivery.line(stream, max(min(limit_ms, fresh_ms), 0))
        except TimeoutError:
            if fresh_ms < limit_ms:
                raise AskAgain from None  # the stream sends no blank lines in between
            silent = ConnectionLostError(f"{title}: silent for {limit_ms} ms")
            raise silent from None
        if line is None:
            raise ConnectionLostError(f"{title}: the stream ended without a grant")
        return line

    async def _stands_at(self, position: int, on_position: Callable[[int], object] | None) -> None:
        self.position = position
        self.was_served = True
        if on_position is None:
            return
        try:
            noting = on_position(position)
            if inspect.isawaitable(noting):
                await self._within(noting)
        except Exception as error:
            raise CallbackFailed(error) from error

    async def _within(self, noting: Awaitable[object]) -> None:
        """Wait for a callback, but no longer than for the turn."""
        try:
            async with asyncio.timeout(max(0, self.remaining_ms()) / 1000) as scope:
                await noting
        except TimeoutError:
            if not scope.expired():
                raise


_TYPE = b"\xa4type"
"""How a line begins in msgpack; an answer that came whole has no type."""


def _read(line: bytes, encoding: Encoding) -> AcquireReply | Queued | StreamError:
    if encoding is Encoding.MSGPACK:
        read = packed_reader(Granted if line.startswith(_TYPE, 1) else AcquireReply)
        assert read is not None, "both are plain objects"
        try:
            return read(line)  # type: ignore[no-any-return]
        except (ValueError, RecursionError):
            pass  # it is another kind of line
    try:
        body = decode(line, encoding)
        if isinstance(body, dict) and "type" not in body:
            return from_body(AcquireReply, body)
        reply: Granted | Queued | StreamError = union_from_body(AcquireLine, body, "line")
    except BadArgumentsError as error:
        unread = ConnectionLostError(f"the stream could not be read: {error.message}")
        raise unread from error
    return reply


async def _ended(stream: ResponseStream, delivery: CallDelivery) -> None:
    """Read to the end of a stream whose last line has come."""
    with suppress(TimeoutError, ConnectionLostError):
        await delivery.line(stream, _END_MS_MAX)


async def _result(task: list[asyncio.Task[T]]) -> T:
    return await task.pop()  # no frame holds it, as above
