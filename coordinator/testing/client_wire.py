"""The wire from one client to the members, with switches for faults.

1. While a wire is cut, what passes over it is held (``held``); once it is mended it arrives late,
   as over TCP. A waiting caller notices only that time passes.
2. A dropped reply is lost after the member has executed the request; the client sees a broken
   connection.
3. Switches may be set from any thread; the wire reads them in the client's own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Literal

from coordinator.client import Request, Response, Transport
from coordinator.client.calling.answers import encoding_of
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.securing import ClientTls
from coordinator.client.calling.transport import ResponseStream
from coordinator.client.connecting import TransportName
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import BadArgumentsError, ConnectionLostError
from coordinator.testing import held
from coordinator.testing.clocks import AdjustableClock
from coordinator.testing.faults import Fault
from coordinator.wire.encoding import Encoding, decode
from coordinator.wire.messages import SESSION_ID_HEADER

Deed = Literal["acquire", "release", "write"]
"""What the next dropped reply belongs to; "write" is whatever changes something."""

_SESSION_ID = SESSION_ID_HEADER.lower()


class Wire:
    """A Transport of one client: over the stream, or over what ``name`` says.

    ``clock`` is the clock of the client at its end; ``leader`` is None over HTTP.
    """

    def __init__(
        self, name: TransportName = "auto", label: str = "", tls: ClientTls | None = None
    ) -> None:
        self.session_id: str | None = None
        """The session that the client opened last."""
        self.clock = AdjustableClock()
        self.leader = None if name == "http" else KnownLeader()
        self._inner = self._over(name, label, tls or ClientTls())
        self._guard = threading.Lock()
        self._cuts: dict[object, Collection[str] | None] = {}
        self._freezes: set[object] = set()
        self._drops: list[_Drop] = []

    def _over(self, name: TransportName, label: str, tls: ClientTls) -> Transport:
        http = held.HeldHttp(self._is_cut, tls) if name != "stream" else None
        if name == "http" and http is not None:
            return http
        connect = partial(held.connect, self._is_cut, tls)
        return StreamTransport(self.leader, label=label, http=http, connect=connect)

    # --- switches, for any thread

    def cut(self, endpoints: Collection[str] | None) -> Fault:
        """Hold everything to and from these members; None: all members."""
        key = object()
        with self._guard:
            self._cuts = {**self._cuts, key: endpoints}
        return Fault(lambda: self._mend(key))

    def freeze_heartbeats(self) -> Fault:
        """Hold heartbeats, and nothing else."""
        key = object()
        with self._guard:
            self._freezes = {*self._freezes, key}
        return Fault(lambda: self._thaw(key))

    def drop_reply(self, deed: Deed | Callable[[Request], bool]) -> Fault:
        """Lose the reply of the next such request; then the fault has ended."""
        matches = deed if callable(deed) else _DEEDS[deed]
        drop = _Drop(matches)
        with self._guard:
            self._drops.append(drop)
        drop.fault = Fault(lambda: self._undrop(drop))
        return drop.fault

    def _mend(self, key: object) -> None:
        with self._guard:
            self._cuts = {each: at for each, at in self._cuts.items() if each is not key}

    def _thaw(self, key: object) -> None:
        with self._guard:
            self._freezes = self._freezes - {key}

    def _undrop(self, drop: _Drop) -> None:
        with self._guard:
            if drop in self._drops:
                self._drops.remove(drop)

    # --- the Transport, in the client's loop

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request as soon as no fault holds it, and return the answer."""
        if self._freezes and _is_heartbeat(request):
            began_s = asyncio.get_running_loop().time()
            await held.within(timeout_ms, endpoint, self._until_thawed())
            timeout_ms -= int((asyncio.get_running_loop().time() - began_s) * 1000)
        response = await self._inner.request(endpoint, self.sent(request), max(1, timeout_ms))
        if _opens_session(request) and response.status < 300:
            opened = _decoded(response.body, response.headers)
            self.session_id = str(opened["session_id"])
        self._maybe_drop(endpoint, request)
        return response

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _WireStreaming:
        """Return a stream of lines of which the faults can lose one."""
        streaming = self._inner.stream(endpoint, self.sent(request), timeout_ms)
        return _WireStreaming(self, streaming, endpoint, request)

    def sent(self, request: Request) -> Request:
        """Return what is sent of a request: while heartbeats are held back it renews nothing."""
        if not self._freezes:
            return request
        headers = {name: value for name, value in request.headers.items() if name != _SESSION_ID}
        return request.with_headers(headers)

    async def close(self) -> None:
        """Close the connections."""
        await self._inner.close()

    def note_session(self, request: Request) -> None:
        """Note the session that an answered attempt to hold has opened, if it did."""
        if _is_acquire(request) and request.body is not None and b"lease_ms" in request.body:
            body = _decoded(request.body, request.headers)
            if "lease_ms" in body:
                self.session_id = str(body["session_id"])

    def maybe_drop_line(
        self, endpoint: str, request: Request, headers: Mapping[str, str], line: bytes
    ) -> None:
        """Lose this line, and the connection, if it is the reply that is to be dropped."""
        if self._drops and _is_answer(line, headers):
            self._maybe_drop(endpoint, request)

    async def _until_thawed(self) -> None:
        while self._freezes:  # noqa: ASYNC110 - any thread ends it
            await asyncio.sleep(held.LOOK_S)

    def _is_cut(self, endpoint: str) -> bool:
        return any(at is None or endpoint in at for at in self._cuts.values())

    def _maybe_drop(self, endpoint: str, request: Request) -> None:
        for drop in list(self._drops):
            if drop.matches(request):
                assert drop.fault is not None, "set before anybody can see the drop"
                drop.fault.end()
                raise ConnectionLostError(
                    f"{endpoint}: the connection broke before the answer (dropped by the test)",
                    endpoint=endpoint,
                )


class _Drop:
    def __init__(self, matches: Callable[[Request], bool]) -> None:
        self.matches = matches
        self.fault: Fault | None = None


class _WireStreaming:
    """``async with`` it to stream; a class, so that one that is left open leaves no generator."""

    def __init__(
        self,
        wire: Wire,
        streaming: AbstractAsyncContextManager[ResponseStream],
        endpoint: str,
        request: Request,
    ) -> None:
        self._wire = wire
        self._streaming = streaming
        self._endpoint = endpoint
        self._request = request

    async def __aenter__(self) -> ResponseStream:
        stream = await self._streaming.__aenter__()
        return _WireStream(stream, self._wire, self._endpoint, self._request)

    async def __aexit__(self, *exception: Any) -> None:
        await self._streaming.__aexit__(*exception)


class _WireStream:
    """A stream of lines over a wire."""

    def __init__(self, stream: ResponseStream, wire: Wire, endpoint: str, request: Request) -> None:
        self._stream = stream
        self._wire = wire
        self._endpoint = endpoint
        self._request = request
        self.watches_silence = stream.watches_silence
        self.status = stream.status
        self.headers = stream.headers

    def line_here(self) -> bytes | None:
        return None

    async def line(self) -> bytes | None:
        line = await self._stream.line()
        if line is not None and line.strip() and self.status < 300:
            self._wire.note_session(self._request)
        if line is not None:
            self._wire.maybe_drop_line(self._endpoint, self._request, self.headers, line)
        return line

    async def read(self) -> bytes:
        return await self._stream.read()


# --- which request is what


def _is_heartbeat(request: Request) -> bool:
    return request.method == "POST" and request.target.endswith("/heartbeat")


def _opens_session(request: Request) -> bool:
    return request.method == "POST" and request.target == "/v1/sessions"


def _decoded(body: bytes, headers: Mapping[str, str]) -> Any:
    """Return what a body says; without a type it is one of the stream's."""
    is_packed = "content-type" not in headers
    return decode(body, Encoding.MSGPACK if is_packed else encoding_of(headers))


def _is_acquire(request: Request) -> bool:
    path = request.target.partition("?")[0]
    is_queue = path.startswith(("/v1/locks", "/v1/elections/"))
    return request.method == "POST" and is_queue and "/grants/" not in path


def _is_release(request: Request) -> bool:
    return request.method == "DELETE" and "/grants/" in request.target


def _is_write(request: Request) -> bool:
    return request.method in ("POST", "PUT", "DELETE") and not _is_heartbeat(request)


_DEEDS: dict[str, Callable[[Request], bool]] = {
    "acquire": _is_acquire,
    "release": _is_release,
    "write": _is_write,
}


def _is_answer(line: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether a line of an acquire is its answer, not a place in the queue.

    The answer of one that need not wait is a body of one line, without a type."""
    try:
        line_body = _decoded(line, headers)
    except BadArgumentsError:
        return False
    return isinstance(line_body, dict) and (
        "grant" in line_body or line_body.get("type") in ("granted", "error")
    )
