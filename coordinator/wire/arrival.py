"""A new connection, until its first bytes say what its client speaks: HTTP, or the stream.

1. One too many is refused at once, in HTTP: 503 and closed; nothing of it is read.
2. The first bytes come within ``header_deadline_ms``, or the connection is closed.
3. A stream begins with its preface, which begins with NUL; no method of HTTP does. Everything else
   is HTTP's. Who speaks it is handed the connection, with the bytes that have come; so telling them
   apart costs no round trip.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from coordinator.errors import ThrottledError, to_problem
from coordinator.wire.addresses import network_of
from coordinator.wire.admission import Admission, Place
from coordinator.wire.messages import PROBLEM_TYPE
from coordinator.wire.stream.frames import begins_stream

SPARE_S = 1.0
"""For how long a spare connection waits for its client to ask."""
_REFUSAL_LINGER_S = 0.5
_REFUSALS_LINGERING_MAX = 100

Speaker = Callable[[Place, float], asyncio.Protocol]
"""Returns who goes on with a connection: its place, and when it came on the clock of the loop."""


class Doorway:
    """Takes connections for both doors; asyncio calls it for each."""

    def __init__(self, admission: Admission, http: Speaker, stream: Speaker) -> None:
        self.admission = admission
        self.http = http
        self.stream = stream
        self.arrivals: set[Arrival] = set()
        """Those that have not said what they speak."""

    def __call__(self) -> Arrival:
        return Arrival(self)

    def close(self) -> None:
        """End those that have not said what they speak."""
        for each in list(self.arrivals):
            each.end()


class Arrival(asyncio.Protocol):
    """One new connection."""

    __slots__ = ("_at", "_doorway", "_head", "_place", "_timer", "_transport")

    def __init__(self, doorway: Doorway) -> None:
        self._doorway = doorway
        self._head = b""
        self._at = 0.0
        self._place: Place | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection a place, or refuse it."""
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        address = network_of(str(peer[0])) if isinstance(peer, tuple) else ""
        admission, loop = self._doorway.admission, asyncio.get_running_loop()
        self._transport, self._at = transport, loop.time()
        place = admission.enter(address)
        if isinstance(place, str):
            self._refuse(transport, place)
            return
        self._place = place
        self._doorway.arrivals.add(self)
        wait_s = admission.config.header_deadline_ms / 1_000
        if place.full:
            wait_s = min(wait_s, spare_s(admission))
        self._timer = loop.call_later(wait_s, self._late)

    def data_received(self, data: bytes) -> None:
        """Hand the connection to its door as soon as its first bytes say which."""
        place, transport = self._place, self._transport
        if place is None or transport is None:
            return  # refused: it is not read
        head = self._head + data if self._head else data
        is_stream = begins_stream(head)
        if is_stream is None:
            self._head = head
            return
        self._settle()
        speaker = self._doorway.stream if is_stream else self._doorway.http
        protocol = speaker(place, self._at)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(head)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._settle()
        if self._place is None:
            self._doorway.admission.lingering -= 1
        else:
            self._doorway.admission.leave(self._place)
        if self._transport is not None:
            release(self._transport)

    def end(self) -> None:
        """Close the connection: the member stops."""
        if self._transport is not None:
            self._transport.close()

    def _settle(self) -> None:
        self._doorway.arrivals.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        assert self._transport is not None
        assert self._place is not None
        if self._place.full:
            self._transport.write(refusal(self._place.full))
        self._transport.close()

    def _refuse(self, transport: asyncio.Transport, reason: str) -> None:
        """Answer 503 and go; wait a moment for the client to read it before the port is reset."""
        admission = self._doorway.admission
        admission.lingering += 1
        transport.write(refusal(reason))
        if admission.lingering > _REFUSALS_LINGERING_MAX or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:
            transport.abort()  # it hung up while it waited to be taken
            return
        asyncio.get_running_loop().call_later(_REFUSAL_LINGER_S, transport.abort)


def spare_s(admission: Admission) -> float:
    """Return for how long a spare connection may wait before it asks."""
    return min(SPARE_S, admission.config.idle_deadline_ms / 2_000)


def release(transport: asyncio.BaseTransport) -> None:
    """Break the cycle that a transport of Python is in, once its connection is lost.

    It holds on to itself by its callback; nobody collects such a cycle once it was put aside
    (``coordinator.garbage``)."""
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = _nothing_to_read


def _nothing_to_read() -> None:
    """What is left of a connection that has ended."""


def refusal(reason: str) -> bytes:
    """Return the response to a connection that is one too many, its last."""
    body = json.dumps({**to_problem(ThrottledError(reason)), "status": 503}).encode("ascii")
    return _REFUSED % (len(body), body)


_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: "
    + PROBLEM_TYPE.encode("ascii")
    + b"\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
)
