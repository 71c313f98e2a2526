"""The short way of a plain HTTP request: parsed here, answered as over the stream, no aiohttp.

aiohttp costs a member more than everything else that it does for a read: one of 64 clients takes 97
µs this way and 199 to 250 by aiohttp alone, a write 956 and 1,327 µs of three members (not
compiled, in turns with a build that hands every connection over). So what clients send most goes
this way, and everything else, at the first byte that is not plain, aiohttp's: the connection
is handed over to it with what has come, and stays there. So this parser need not be lenient, or
complete; what it takes must mean the same to both, and the same bytes are answered.

1. Plain is: GET, PUT, POST, DELETE or PATCH of a znode, lock, election, session or multi, and what
   is asked of a member all the time (health, status, metrics); HTTP/1.1; at most 32 headers of
   printable ASCII, none of them twice, no transfer coding, nothing about the connection but
   keep-alive or close, nothing that browsers say of other sites; a host that is ours; a body that
   came whole with its header; an answer that is whole.
2. One request after the other: what is sent ahead waits, and is bounded.
3. A client that goes away cancels its request; one that takes nothing for ``idle_deadline_ms`` is
   cut off; one that asks nothing for as long is closed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from functools import cache
from http import HTTPStatus

from coordinator.model.access import NOBODY
from coordinator.service.base.turns import KEY
from coordinator.wire import messages
from coordinator.wire.admission import Admission, Place
from coordinator.wire.arrival import Speaker, release
from coordinator.wire.client_turns import is_open
from coordinator.wire.encoding import Encoding
from coordinator.wire.http.full_door import FullDoor
from coordinator.wire.http.hosts import Names, is_known
from coordinator.wire.messages import AUTHORIZATION
from coordinator.wire.request import Answer, LineStream, WhySilent
from coordinator.wire.routes.answering import Answering

_HEADERS_MAX = 32
_HEAD = re.compile(
    rb"(GET|PUT|POST|DELETE|PATCH) "
    rb"(/(?:v1/(?:tree|multi|sessions|locks|elections|status)|health|metrics)"
    rb"(?:[/?][!-~]{0,4096})?) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]{1,64}:[ -~]{0,2048}\r\n){1,%d})\r\n" % _HEADERS_MAX
)
_LEFT_TO_AIOHTTP = frozenset(
    {"transfer-encoding", "content-encoding", "expect", "upgrade", "te", "trailer", "origin",
     "sec-fetch-site", "http2-settings", "proxy-connection"}
)  # fmt: skip
_CLOSE = "close"
_CONNECTION = frozenset({"", "keep-alive", "Keep-Alive", _CLOSE})
_LENGTH_DIGITS_MAX = 8
_AHEAD_BYTES_MAX = 64 * 1024
_HOSTS_MAX = 100


class SlimDoor:
    """The state that the connections of one member share."""

    def __init__(
        self, answering: Answering, admission: Admission, full: FullDoor, names: Names | None
    ) -> None:
        self.answering = answering
        self.admission = admission
        self.full = full
        """Goes on with a connection that is not plain."""
        self.idle_s = answering.door.config.idle_deadline_ms / 1_000
        self.is_closing = False
        self._names = names
        self._hosts: set[str] = set()
        self._connections: set[SlimConnection] = set()
        self._all_gone: asyncio.Future[None] | None = None
        self._date_s = 0
        self._date = b""

    def knows(self, host: str) -> bool:
        """Whether ``host`` is a name or an address that this member may be called by."""
        if host in self._hosts:
            return True
        if self._names is not None and not is_known(host, self._names):
            return False
        if len(self._hosts) < _HOSTS_MAX:
            self._hosts.add(host)
        return True

    def date(self) -> bytes:
        """Return the header that says when it is."""
        now_s = self.answering.door.clock.wall_ms() // 1_000
        if now_s != self._date_s:
            self._date_s = now_s
            self._date = b"Date: %b\r\n" % formatdate(now_s, usegmt=True).encode("ascii")
        return self._date

    def enter(self, connection: SlimConnection) -> None:
        """A connection was made."""
        self._connections.add(connection)

    def leave(self, connection: SlimConnection) -> None:
        """A connection was lost, or handed over."""
        self._connections.discard(connection)
        if self._all_gone is not None and not self._connections and not self._all_gone.done():
            self._all_gone.set_result(None)

    def close(self) -> None:
        """Close connections that ask nothing; the others when they were answered."""
        self.is_closing = True
        for each in list(self._connections):
            each.maybe_close()

    def abort(self) -> None:
        """Break all connections."""
        for each in list(self._connections):
            each.abort()

    async def closed(self) -> None:
        """Wait until the last connection has gone, and what it asked has ended."""
        if self._connections:
            self._all_gone = asyncio.get_running_loop().create_future()
            await self._all_gone


class SlimRequest:
    """A plain request, as the routes see it."""

    __slots__ = ("_body", "_connection", "caller", "cost", "headers", "key", "mark", "method",
                 "query", "target")  # fmt: skip

    def __init__(
        self,
        connection: SlimConnection,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
    ) -> None:
        self._connection = connection
        self.method = method
        self.target = target
        self.query = target.partition("?")[2].partition("#")[0]
        self.headers = headers
        self.caller = NOBODY
        self._body = body
        self.key = ""
        self.mark = 0
        self.cost = 1

    @property
    def encoding(self) -> Encoding:
        """The encoding of bodies, both ways, if no header names another."""
        return Encoding.JSON

    @property
    def has_begun(self) -> bool:
        """Whether a response has begun that goes on: never."""
        return False

    @property
    def authorization(self) -> str | None:
        """What the client shows to prove who it is."""
        return self.headers.get(AUTHORIZATION)

    @property
    def place(self) -> Place:
        """The place of its connection."""
        return self._connection.place

    @property
    def remote(self) -> str:
        """The address of the client; empty when it has none."""
        return self._connection.remote

    @property
    def has_body(self) -> bool:
        """Whether there is a body: plain ones are whole, and not empty."""
        return bool(self._body)

    @property
    def has_unread_body(self) -> bool:
        """Whether the body was not taken yet."""
        return bool(self._body)

    @property
    def body_length(self) -> int | None:
        """How many bytes of the body were not taken yet."""
        return len(self._body)

    def header_values(self, name: str) -> Sequence[str]:
        """Return the value of a header; a plain request has each once."""
        value = self.headers.get(name)
        return () if value is None else (value,)

    def whole_body(self) -> bytes | None:
        """Take the body, once."""
        body, self._body = self._body, b""  # once: a wait may last for hours
        return body

    async def next_chunk(self) -> bytes:
        """Return the end of a body: a plain one came whole."""
        return b""

    def is_connected(self) -> bool:
        """Whether the client is still there, as far as one can tell."""
        return self._connection.is_connected()

    async def begin(self) -> None:
        """Wait for its turn."""
        await self._connection.turns.turn(self)
        KEY.set(self.key)

    def on_waiting(self) -> None:
        """End its turn: it waits for others."""
        self._connection.turns.end(self)

    def lines(
        self, labels: Mapping[str, str], why_silent: WhySilent, *, is_sse: bool = False
    ) -> LineStream:
        """Fail: a request for a response that goes on is not plain."""
        raise AssertionError("a request for lines is not plain")


class SlimConnection(asyncio.Protocol):
    """A connection on which all was plain so far."""

    __slots__ = ("_at", "_buffer", "_door", "_heard_at", "_idle_timer", "_is_leaving", "_is_paused",
                 "_loop", "_task", "_transport", "_write_timer", "place", "remote",
                 "turns")  # fmt: skip

    def __init__(self, door: SlimDoor, place: Place, at: float) -> None:
        self._door = door
        self.place = place
        self.turns = door.answering.door.turns
        self._at = at
        """When it was made, until its first request was answered: the time of a header counts."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        """What came behind the request that is answered."""
        self._task: asyncio.Task[None] | None = None
        self._is_leaving = False
        """Whether it is not plain any more, and waits for aiohttp to be loaded."""
        self._is_paused = False
        """Whether its client does not take what is sent."""
        self._heard_at = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self.remote = ""

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with a connection of which the first bytes are those of HTTP."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.remote = str(peer[0]) if isinstance(peer, tuple) else ""
        self._door.enter(self)
        self._idle_timer = self._loop.call_later(self._door.idle_s, self._maybe_idle)

    def data_received(self, data: bytes) -> None:
        """Begin the next request, or keep what comes ahead of its time."""
        self._heard_at = self._loop.time()
        self._buffer = self._buffer + data if self._buffer else data
        if self._task is None and not self._is_paused:
            self._next()
        elif len(self._buffer) > _AHEAD_BYTES_MAX and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """Close: a client that sends no more wants no answer."""
        return False

    def pause_writing(self) -> None:
        """Begin nothing more; cut off a client that reads nothing for too long."""
        self._is_paused = True
        self._write_timer = self._loop.call_later(self._door.idle_s, self.abort)

    def resume_writing(self) -> None:
        """Go on with what has come meanwhile."""
        self._is_paused = False
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self._task is None and self._buffer:
            self._next()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End what is under way for a client that has gone."""
        transport, self._transport = self._transport, None
        self._end_timers()
        self._door.admission.leave(self.place)
        if transport is not None:
            release(transport)
        if self._task is None:
            self._door.leave(self)
        else:
            self._task.cancel()
            # Not by the task itself: of one that had not begun nothing runs any more.
            self._task.add_done_callback(self._ended)
            self._task = None

    def _ended(self, _task: asyncio.Task[None]) -> None:
        self._door.leave(self)

    def _end_timers(self) -> None:
        for timer in (self._idle_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._idle_timer = self._write_timer = None

    # --- one request after the other

    def _next(self) -> None:
        """Begin the next request, or let aiohttp go on if it is not plain."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_leaving:
            return
        request = None if self.place.full else self._plain()
        if request is None:
            self._hand_over(transport)
        else:
            if not transport.is_reading():
                transport.resume_reading()
            self._task = self._loop.create_task(self._serve(request))

    def _plain(self) -> SlimRequest | None:
        """Take the next request off the buffer; None if it is not plain."""
        buffer = self._buffer
        head = _HEAD.match(buffer)
        if head is None:
            return None
        headers: dict[str, str] = {}
        lines = head[3].decode("ascii").split("\r\n")
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip(" ")
        del headers[""]  # behind the last line end
        is_plain = (
            len(headers) == len(lines) - 1
            and _LEFT_TO_AIOHTTP.isdisjoint(headers)
            and headers.get("connection", "") in _CONNECTION
            and "stream" not in (accept := headers.get("accept", "").lower())
            and "ndjson" not in accept
            and self._door.knows(headers.get("host", ""))
        )
        length = headers.get("content-length", "0")
        if not (is_plain and length.isdecimal() and len(length) <= _LENGTH_DIGITS_MAX):
            return None
        begin = head.end()
        end = begin + int(length)
        is_last = headers.get("connection") == _CLOSE
        if len(buffer) < end or (is_last and len(buffer) > end):
            return None
        body, self._buffer = buffer[begin:end], buffer[end:]
        method, target = head[1].decode("ascii"), head[2].decode("ascii")
        return SlimRequest(self, method, target, headers, body)

    def _hand_over(self, transport: asyncio.Transport) -> None:
        full = self._door.full
        if full.speaker is not None:
            self._go_on(full.speaker)
            return
        self._is_leaving = True
        if transport.is_reading():
            transport.pause_reading()
        full.ask(self._go_on)

    def _go_on(self, speaker: Speaker | None) -> None:
        if speaker is None:
            self.abort()
            return
        transport, self._transport = self._transport, None
        if transport is None:
            return  # it was lost meanwhile
        self._end_timers()
        self._door.leave(self)
        protocol = speaker(self.place, self._at or self._loop.time())
        transport.set_protocol(protocol)
        if not transport.is_reading():
            transport.resume_reading()
        protocol.connection_made(transport)
        protocol.data_received(self._buffer)
        self._buffer = b""

    async def _serve(self, request: SlimRequest) -> None:
        answered = None
        try:  # not `suppress`: it is entered and left for each request
            answered = await self._door.answering.answer(
                request, begin=None if is_open(request.target) else request.begin
            )
        except (ConnectionError, asyncio.CancelledError):
            pass  # its task ends by no error, which would hold on to all that it has passed through
        self.turns.end(request)
        self._task = None
        self._at = 0.0
        self._heard_at = self._loop.time()
        transport = self._transport
        if transport is None:
            return
        if not isinstance(answered, Answer):
            transport.abort()
            return
        is_last = request.headers.get("connection") == _CLOSE
        closes = answered.closes or self._door.is_closing or is_last
        transport.write(self._response(answered, closes=closes))
        if closes:
            transport.close()
        elif self._buffer and not self._is_paused:
            self._next()

    def _response(self, answer: Answer, *, closes: bool) -> bytes:
        body = answer.body or b""
        parts = [_status_line(answer.status)]
        if answer.content_type is not None:
            parts.append(f"Content-Type: {answer.content_type}\r\n")
        if answer.is_labelled:
            zxid, index = messages.ZXID_HEADER, messages.INDEX_HEADER
            parts.append(f"{zxid}: {answer.zxid}\r\n{index}: {answer.index}\r\n")
        parts.append(
            f"{messages.MEMBER_HEADER}: {self._door.answering.door.member_id}\r\n"
            "Server: coordinator\r\n"
        )
        for name, value in (answer.headers or {}).items():
            parts.append(f"{name}: {value}\r\n")
        if answer.status != HTTPStatus.NOT_MODIFIED:
            parts.append(f"Content-Length: {len(body)}\r\n")
        end = b"Connection: close\r\n\r\n" if closes else b"\r\n"
        return b"".join(("".join(parts).encode("utf-8"), self._door.date(), end, body))

    # --- the end

    def is_connected(self) -> bool:
        """Whether the client is still there, as far as one can tell."""
        return self._transport is not None and not self._transport.is_closing()

    def maybe_close(self) -> None:
        """Close the connection if its client asks nothing."""
        if self._task is None and self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break it; what waits to be sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _maybe_idle(self) -> None:
        left_s = self._heard_at + self._door.idle_s - self._loop.time()
        if self._task is None and left_s <= 0 and not self._is_paused:
            self.maybe_close()
            return
        wait_s = left_s if left_s > 0 else self._door.idle_s
        self._idle_timer = self._loop.call_later(wait_s, self._maybe_idle)


@cache
def _status_line(status: int) -> str:
    return f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
