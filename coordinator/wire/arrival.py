"""A new connection, until its first bytes say what its client speaks: HTTP, or the stream.

1. One too many is refused at once, in HTTP: 503 and closed; nothing of it is read.
2. The first bytes come within ``header_deadline_ms``, or the connection is closed.
3. A stream begins with its preface, which begins with NUL; no method of HTTP does. Everything else
   is HTTP's. Its door gets the connection, with the bytes that have come; so telling the two apart
   costs no round trip.
4. With a certificate TLS comes first, within the same deadline. A client without it, or with it
   where there is none, gets an answer that says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from weakref import WeakSet

from coordinator.errors import BadArgumentsError, CoordinatorError, ThrottledError, to_problem
from coordinator.tls.files import Reloaded, ServerTls
from coordinator.tls.handshakes import Handshakes
from coordinator.tls.transport import TlsTransport
from coordinator.tls.wording import TO_MEMBERS, why_no_tls
from coordinator.waiting import in_turns
from coordinator.wire.addresses import is_local, network_of
from coordinator.wire.admission import Admission, Place
from coordinator.wire.messages import PROBLEM_TYPE
from coordinator.wire.stream.frames import begins_stream

logger = logging.getLogger("coordinator.http")

SPARE_S = 1.0
"""For how long a spare connection waits for its client to ask."""
_REFUSAL_LINGER_S = 0.5
_REFUSALS_LINGERING_MAX = 100
UNFINISHED_HANDSHAKES_MAX = 1_000
"""The TLS handshakes that wait for their client; it answers within a round trip."""
_TLS_RECORD = b"\x16"
"""How TLS begins; no method of HTTP does, nor the stream."""
_NO_TLS_HERE = "this port does not speak TLS: use http:// here, or set http.tls_cert_file"
_TLS_HERE = "this port speaks TLS: use https:// here"

Speaker = Callable[[Place, float], asyncio.Protocol]
"""Returns who goes on with a connection: its place, and when it came on the clock of the loop."""


class Doorway:
    """Takes connections for both doors; asyncio calls it for each."""

    def __init__(
        self,
        admission: Admission,
        http: Speaker,
        stream: Speaker,
        tls: Reloaded[ServerTls] | None = None,
    ) -> None:
        self.admission = admission
        self.http = http
        self.stream = stream
        self.tls = tls
        self.handshakes = Handshakes(UNFINISHED_HANDSHAKES_MAX)
        self.arrivals: set[Arrival] = set()
        """The connections that have not said what they speak."""
        self.is_closing = False
        self._all_gone: asyncio.Future[None] | None = None
        self.certified: WeakSet[TlsTransport] = WeakSet()
        """The connections whose clients have shown a certificate."""

    def __call__(self) -> Arrival:
        return Arrival(self)

    def break_certified(self, after_s: float) -> None:
        """Break the connections whose clients have shown a certificate so far."""
        so_far = tuple(self.certified)
        asyncio.get_running_loop().call_later(after_s, in_turns, so_far, TlsTransport.abort)

    def leave(self, arrival: Arrival) -> None:
        """A connection has said what it speaks, or was lost."""
        self.arrivals.discard(arrival)
        if self._all_gone is not None and not self.arrivals and not self._all_gone.done():
            self._all_gone.set_result(None)

    def close(self) -> None:
        """End those that have not said what they speak, and take no more."""
        self.is_closing = True
        for each in list(self.arrivals):
            each.end()

    def abort(self) -> None:
        """Break those that have not said what they speak, and take no more."""
        self.is_closing = True
        for each in list(self.arrivals):
            each.abort()

    async def closed(self) -> None:
        """Wait until the last of them has gone; ``abort`` sees to that in the end."""
        if self.arrivals:
            self._all_gone = asyncio.get_running_loop().create_future()
            await self._all_gone


class Arrival(asyncio.Protocol):
    """One new connection."""

    __slots__ = (
        "_at", "_doorway", "_head", "_is_plain", "_place", "_timer", "_transport", "_trusted",
    )  # fmt: skip

    def __init__(self, doorway: Doorway) -> None:
        self._doorway = doorway
        self._head = b""
        self._at = 0.0
        self._is_plain = True
        """Whether its bytes are not those of TLS."""
        self._trusted = b""
        """The CAs and revocation lists by which its client's certificate is judged."""
        self._place: Place | None = None
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the connection a place, or refuse it."""
        assert isinstance(transport, asyncio.Transport)
        if self._doorway.is_closing:
            transport.abort()
            return
        peer = transport.get_extra_info("peername")
        address = network_of(str(peer[0])) if isinstance(peer, tuple) else ""
        admission, loop = self._doorway.admission, asyncio.get_running_loop()
        self._transport, self._at = transport, loop.time()
        place = admission.enter(address)
        if isinstance(place, str):
            self._refuse(transport, place)
            return
        self._place = place
        reached = transport.get_extra_info("sockname")
        place.is_local = isinstance(peer, tuple) and is_local(
            str(peer[0]), str(reached[0]) if isinstance(reached, tuple) else None
        )
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
        if self._is_plain and not self._head and not self._may_be_plain(transport, data):
            return
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

    def _may_be_plain(self, transport: asyncio.Transport, data: bytes) -> bool:
        """Begin with TLS if that is spoken here; return whether ``data`` are what it protects."""
        tls, is_tls = self._doorway.tls, data[:1] == _TLS_RECORD
        if tls is None and not is_tls:
            return True
        if tls is not None and is_tls:
            self._is_plain = False
            context, self._trusted = tls.current.context, tls.current.trusted
            TlsTransport(
                self, context, self._doorway.handshakes, is_server=True,
                address="" if self._place is None else self._place.network,
            ).begin(transport, data)  # fmt: skip
        else:
            self._settle()
            transport.write(closing(BadArgumentsError(_NO_TLS_HERE if is_tls else _TLS_HERE)))
            transport.close()
        return False

    def on_secured(self, transport: TlsTransport) -> None:
        """Go on with what is said within TLS."""
        place = self._place
        assert place is not None
        self._transport = transport
        place.certificate_names = transport.certificate_names
        place.has_certificate = transport.has_certificate
        if not place.has_certificate:
            return
        self._doorway.certified.add(transport)
        tls = self._doorway.tls
        if tls is not None and tls.current.trusted != self._trusted:
            transport.abort()  # since its handshake began, others count

    def on_tls_failed(self, error: Exception) -> None:
        """Note why; the connection is closed next."""
        if self._place is not None:
            reason = why_no_tls(error, TO_MEMBERS)
            logger.debug("no TLS with a client at %s: %s", self._place.address, ascii(reason))

    def connection_lost(self, exc: BaseException | None) -> None:
        """Give the place back."""
        self._settle()
        place, transport, admission = self._place, self._transport, self._doorway.admission
        if place is not None:
            admission.leave(place)
        elif transport is not None:  # it was refused
            admission.lingering -= 1
        if transport is not None:
            release(transport)

    def end(self) -> None:
        """Close the connection: the member stops."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Break the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _settle(self) -> None:
        self._doorway.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        assert self._transport is not None
        assert self._place is not None
        is_understood = self._doorway.tls is None or isinstance(self._transport, TlsTransport)
        if self._place.full and is_understood:
            self._transport.write(refusal(self._place.full))
        self._transport.close()

    def _refuse(self, transport: asyncio.Transport, reason: str) -> None:
        """Answer 503 and go; wait a moment for the client to read it before the port is reset."""
        admission = self._doorway.admission
        admission.lingering += 1
        if self._doorway.tls is not None:
            transport.close()  # a sentence would take a handshake
            return
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
    (``coordinator.node.garbage``)."""
    transport = transport.get_extra_info("plain_transport") or transport
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = _nothing_to_read


def _nothing_to_read() -> None:
    """What is left of a connection that has ended."""


def refusal(reason: str) -> bytes:
    """Return the response to a connection that is one too many, its last."""
    body = json.dumps({**to_problem(ThrottledError(reason)), "status": 503}).encode("ascii")
    return _CLOSING % (b"503 Service Unavailable\r\nRetry-After: 1", len(body), body)


def closing(error: CoordinatorError) -> bytes:
    """Return the response to a connection whose first bytes are not what is spoken here."""
    body = json.dumps(to_problem(error)).encode("ascii")
    return _CLOSING % (b"400 Bad Request", len(body), body)


_CLOSING = (
    b"HTTP/1.1 %b\r\nContent-Type: "
    + PROBLEM_TYPE.encode("ascii")
    + b"\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
)
