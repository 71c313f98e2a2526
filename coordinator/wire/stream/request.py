"""A request of the stream as the routes see it, and its response that goes on.

1. A body has come whole with its request, so nothing of it is waited for.
2. A line waits while its stream has no credit, or while its connection holds more than it should
   for a client that does not read. So what waits for a client is bounded, as by HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Protocol

from coordinator.errors import CoordinatorError, forget_frames
from coordinator.model.access import NOBODY
from coordinator.model.events import StreamError
from coordinator.wire.admission import Place
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.messages import AUTHORIZATION, MEMBER_HEADER
from coordinator.wire.request import WhySilent
from coordinator.wire.stream import frames
from coordinator.wire.stream.outbox import Outbox

_MEMBER: Final = MEMBER_HEADER.lower()


class Sender(Protocol):
    """The connection, as its requests see it."""

    @property
    def place(self) -> Place:
        """Where its client is, and what it was admitted with."""

    @property
    def authorization(self) -> str | None:
        """What its client shows now to prove who it is."""

    @property
    def window_bytes(self) -> int:
        """How many bytes of a stream may be sent before the client asks for more."""

    @property
    def out(self) -> Outbox:
        """What waits to be sent to the client."""

    def on_lines(self, number: int) -> None:
        """The lines of a request begin."""

    def on_waiting(self, request: StreamRequest) -> None:
        """A request waits for others."""

    def is_waited_for(self, number: int) -> bool:
        """Whether the client is there, and has not given this request up."""


class StreamRequest:
    """A request of a frame."""

    __slots__ = ("_body", "_sender", "authorization", "caller", "cost", "headers", "id", "is_long",
                 "key", "mark", "method", "place", "query", "stream", "target",
                 "task")  # fmt: skip

    encoding: ClassVar[Encoding] = Encoding.MSGPACK

    def __init__(self, frame: frames.RequestFrame, sender: Sender) -> None:
        self.id = frame.id
        self.method = method = frame.method
        self.target = target = frame.target
        # As HTTP's parser has it: what follows a "#" is no part of the query.
        self.query = target.partition("?")[2].partition("#")[0] if "?" in target else ""
        self.headers = headers = frame.headers
        # As it was when the request was sent: the connection may show another one later.
        self.authorization = headers.get(AUTHORIZATION) or sender.authorization
        self.caller = NOBODY
        self.place = sender.place
        """The place of its connection."""
        # Nobody reads the body of a GET, which may wait for long: what is kept shows that it came.
        body = frame.body
        self._body = body[:1] if body and method == "GET" else body
        self._sender = sender
        self.stream: StreamLines | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_long = False
        """Whether others wait for it to be answered."""
        self.key = ""
        self.mark = 0
        """The mark of the turn in which it was begun."""
        self.cost = 1

    @property
    def remote(self) -> str:
        """The address of the client."""
        return self.place.address

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        return self._body is not None

    @property
    def has_unread_body(self) -> bool:
        """Whether its body has not been read."""
        return bool(self._body)

    @property
    def body_length(self) -> int | None:
        """How many bytes the body has, None without one."""
        return None if self._body is None else len(self._body)

    @property
    def has_begun(self) -> bool:
        """Whether some of the answer has been sent."""
        return self.stream is not None and self.stream.is_open

    def header_values(self, name: str) -> Sequence[str]:
        """Return all values of a header."""
        value = self.headers.get(name)
        return () if value is None else (value,)

    def whole_body(self) -> bytes | None:
        """Return the body; once, then it is dropped."""
        body, self._body = self._body or b"", b""  # once: a wait may last for hours
        return body

    async def next_chunk(self) -> bytes:
        """Return b"": a body comes whole."""
        return b""

    def is_connected(self) -> bool:
        """Say whether the client can still be answered."""
        return self._sender.is_waited_for(self.id)

    def on_waiting(self) -> None:
        """End its turn: it waits for others."""
        self._sender.on_waiting(self)

    def lines(
        self, labels: Mapping[str, str], why_silent: WhySilent, *, is_sse: bool = False
    ) -> StreamLines:
        """Return an answer of many lines, to be sent one by one."""
        self.stream = StreamLines(self.id, self._sender, labels, why_silent)
        return self.stream


class StreamLines:
    """A response that goes on; opened with its first line."""

    __slots__ = (
        "_credit", "_granted", "_id", "_labels", "_sender", "_why_silent", "ended_with",
        "is_line_out", "is_open",
    )  # fmt: skip

    status: ClassVar[int] = 200
    encoding: ClassVar[Encoding] = Encoding.MSGPACK

    def __init__(
        self, number: int, sender: Sender, labels: Mapping[str, str], why_silent: WhySilent
    ) -> None:
        self._why_silent = why_silent
        self._sender = sender
        self._labels = labels
        self._id = number
        self._credit = sender.window_bytes
        self._granted: asyncio.Future[None] | None = None
        """Set while the next line waits for credit."""
        self.is_open = False
        self.is_line_out = False
        self.ended_with: CoordinatorError | None = None

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send one line; wait while the client takes no more."""
        self._refuse_when_silent()
        await self._write(encode(body, self.encoding))

    async def send_encoded(self, line: bytes, kind: str, zxid: int | None) -> None:
        """Send a line that is encoded already."""
        self._refuse_when_silent()
        await self._write(line)

    def send_at_once(self, line: bytes) -> bool:
        """Send a line, if there is credit and room and a client; return whether it was sent."""
        if self._credit <= 0 or self._why_silent() is not None:  # which is said later, then
            return False
        if not self._sender.out.maybe_send(frames.Line(self._id, line)):
            return False
        self._credit -= len(line)
        self.is_line_out = True
        return True

    async def send_error(self, error: CoordinatorError) -> None:
        """Send an error as the last line."""
        self.ended_with = error
        forget_frames(error)  # one of them holds this response, which is kept for the audit
        await self._write(encode(to_body(StreamError(error), self.encoding), self.encoding))

    async def keep_alive(self) -> None:
        """Open it, if it is not; PING and PONG say that the connection lives."""
        self._open()

    async def end(self) -> None:
        """End the stream."""
        self._open()
        self._sender.out.send(frames.End(self._id))

    def add_credit(self, amount: int) -> None:
        """The client has taken so much."""
        self._credit += amount
        if self._credit > 0 and self._granted is not None and not self._granted.done():
            self._granted.set_result(None)

    def _refuse_when_silent(self) -> None:
        if (error := self._why_silent()) is not None:
            raise error

    async def _write(self, line: bytes) -> None:
        self._open()
        self.is_line_out = False
        while self._credit <= 0 or self._sender.out.is_full:
            if self._credit <= 0:
                await self._credited()
            else:
                await self._sender.out.room()
            if self.ended_with is None:
                self._refuse_when_silent()
        if not self._sender.is_waited_for(self._id):
            raise ConnectionResetError("the client went away")
        self._put(line)

    def _put(self, line: bytes) -> None:
        self._credit -= len(line)
        self._sender.out.send(frames.Line(self._id, line))
        self.is_line_out = True

    async def _credited(self) -> None:
        self._granted = asyncio.get_running_loop().create_future()
        try:
            await self._granted
        finally:
            self._granted = None

    def _open(self) -> None:
        if not self.is_open:
            self.is_open = True
            headers = {name.lower(): value for name, value in self._labels.items()}
            headers.pop(_MEMBER, None)  # WELCOME has said it
            self._sender.out.send(frames.Head(self._id, self.status, headers))
            self._sender.on_lines(self._id)
