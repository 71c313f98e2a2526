"""The wire from one client to the members, with switches for faults.

1. While a wire is cut, requests and replies are held; once it is mended they arrive late, as over
   TCP. A waiting caller notices only that time passes.
2. A dropped reply is lost after the member has executed the request; the client sees a broken
   connection.
3. Switches may be set from any thread; the wire reads them in the client's own loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Literal

from coordinator.client import HttpTransport, Request, Response
from coordinator.client.transport import ResponseStream
from coordinator.errors import ConnectionLostError
from coordinator.testing.clocks import AdjustableClock
from coordinator.testing.faults import Fault

Deed = Literal["acquire", "release", "write"]
"""What the next dropped reply belongs to; "write" is whatever changes something."""

_LOOK_S = 0.005
"""How often who is held looks whether the way is mended."""


class Wire:
    """A Transport over HTTP; ``clock`` is the clock of the client at its end."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        """The session that the client opened last."""
        self.clock = AdjustableClock()
        self._http = HttpTransport()
        self._guard = threading.Lock()
        self._cuts: dict[object, Collection[str] | None] = {}
        self._freezes: set[object] = set()
        self._drops: list[_Drop] = []

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
        try:
            async with asyncio.timeout(timeout_ms / 1000) as scope:
                while self._is_held(endpoint, request):  # noqa: ASYNC110 - any thread ends it
                    await asyncio.sleep(_LOOK_S)
                response = await self._http.request(endpoint, request, timeout_ms)
                await self.until_mended(endpoint)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise _silence(endpoint, timeout_ms) from error
        if _opens_session(request) and response.status < 300:
            self.session_id = _session_id_in(response)
        self._maybe_drop(endpoint, request)
        return response

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _WireStreaming:
        """Return a stream of answers that the faults can delay and cut."""
        return _WireStreaming(self, self._http, endpoint, request, timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def note_session(self, request: Request) -> None:
        """Note the session that an answered attempt to hold has opened, if it did."""
        if _is_acquire(request) and request.body is not None and b'"lease_ms"' in request.body:
            self.session_id = str(json.loads(request.body)["session_id"])

    async def until_mended(self, endpoint: str) -> None:
        """Wait while the way to ``endpoint`` is cut."""
        while self._is_cut(endpoint):  # noqa: ASYNC110 - any thread ends it
            await asyncio.sleep(_LOOK_S)

    def maybe_drop_line(self, endpoint: str, request: Request, line: bytes) -> None:
        """Lose this line, and the connection, if it is the reply that is to be dropped."""
        if self._drops and _is_answer(line):
            self._maybe_drop(endpoint, request)

    def _is_cut(self, endpoint: str) -> bool:
        return any(at is None or endpoint in at for at in self._cuts.values())

    def _is_held(self, endpoint: str, request: Request) -> bool:
        return self._is_cut(endpoint) or (bool(self._freezes) and _is_heartbeat(request))

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
        self, wire: Wire, http: HttpTransport, endpoint: str, request: Request, timeout_ms: int
    ) -> None:
        self._wire = wire
        self._endpoint = endpoint
        self._request = request
        self._timeout_ms = timeout_ms
        self._streaming = http.stream(endpoint, request, timeout_ms)

    async def __aenter__(self) -> ResponseStream:
        try:
            async with asyncio.timeout(self._timeout_ms / 1000) as scope:
                await self._wire.until_mended(self._endpoint)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise _silence(self._endpoint, self._timeout_ms) from error
        stream = await self._streaming.__aenter__()
        return _WireStream(stream, self._wire, self._endpoint, self._request)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._streaming.__aexit__(kind, error, traceback)


class _WireStream:
    """A stream of lines over a wire; a line that is under way when it is cut comes late."""

    watches_silence = False

    def __init__(self, stream: ResponseStream, wire: Wire, endpoint: str, request: Request) -> None:
        self._stream = stream
        self._wire = wire
        self._endpoint = endpoint
        self._request = request
        self.status = stream.status
        self.headers = stream.headers

    async def line(self) -> bytes | None:
        line = await self._stream.line()
        if line is not None and line.strip() and self._stream.status < 300:
            self._wire.note_session(self._request)
        await self._wire.until_mended(self._endpoint)
        if line is not None:
            self._wire.maybe_drop_line(self._endpoint, self._request, line)
        return line

    async def read(self) -> bytes:
        return await self._stream.read()


def _silence(endpoint: str, timeout_ms: int) -> ConnectionLostError:
    return ConnectionLostError(
        f"{endpoint}: no answer within {timeout_ms} ms (cut off by the test)", endpoint=endpoint
    )


# --- which request is what


def _is_heartbeat(request: Request) -> bool:
    return request.method == "POST" and request.target.endswith("/heartbeat")


def _opens_session(request: Request) -> bool:
    return request.method == "POST" and request.target == "/v1/sessions"


def _session_id_in(response: Response) -> str | None:
    opened = json.loads(response.body)
    return str(opened["session_id"]) if "session_id" in opened else None


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


def _is_answer(line: bytes) -> bool:
    """Return whether a line of an acquire is its answer, not a place in the queue.

    The answer of one that need not wait is a body of one line, without a type."""
    try:
        said = json.loads(line)
    except ValueError:
        return False
    return isinstance(said, dict) and ("grant" in said or said.get("type") in ("granted", "error"))
