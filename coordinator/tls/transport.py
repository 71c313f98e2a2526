"""TLS on a connection of an event loop: a transport for its protocol, a protocol for the socket.

1. A handshake goes on when it is its turn (``handshakes``).
2. A connection is read ``READ_BYTES`` at a time, so however its bytes are cut into records, one
   pass opens a bounded number of them. What TLS itself answers is bounded, too.
3. A connection has no buffer of its own to read into. In the midst of its handshake it holds 42
   KiB.
4. How long a handshake may take is its protocol's to bound: it has the connection from the
   beginning, and closes it when it is late.

asyncio's own TLS (``loop.start_tls``) cannot take its place. It goes on with a handshake whenever
bytes come, and says neither when nor for how long, so no address can be kept to its share. It reads
256 KiB at a time, in which there may be changes of keys for 150 ms, and keeps a buffer of that size
for each connection: 305 KiB in the midst of a handshake, which strangers may begin.
"""

from __future__ import annotations

import asyncio
import ssl
from functools import partial
from typing import Any, Protocol

from coordinator.tls.handshakes import Handshakes
from coordinator.tls.names import uris_of
from coordinator.tls.pipe import TlsPipe

HANDSHAKE_BYTES_MAX = 128 * 1024
"""How much a stranger may send before its handshake is done; a chain of certificates is some
KiB."""
ANSWERS_UNSENT_BYTES_MAX = 64 * 1024
"""Each change of keys may ask for one in answer: so much of them waits for a side that reads."""


class SecuredProtocol(Protocol):
    """The protocol of a connection that is to speak TLS."""

    def on_secured(self, transport: TlsTransport) -> None:
        """The handshake is done: from now on ``transport`` is to be used."""

    def on_tls_failed(self, error: Exception) -> None:
        """TLS has ended by an error; the connection is lost next."""

    def data_received(self, data: bytes) -> None:
        """As of ``asyncio.Protocol``."""

    def eof_received(self) -> bool | None:
        """As of ``asyncio.Protocol``."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As of ``asyncio.Protocol``; called whether the handshake was done or not."""


class TlsTransport(asyncio.Transport, asyncio.BufferedProtocol):
    """The transport of one connection with TLS.

    Args:
        protocol: whose connection it is; it has the plain one already.
        context: whom to trust, and what to show.
        handshakes: of its port.
        host: whom a client calls.
        address: who calls, as its share of the handshakes is counted; "" without one.
    """

    __slots__ = (
        "__weakref__",
        "_beginner",
        "_error",
        "_handshakes",
        "_has_turn",
        "_head",
        "_is_closing",
        "_is_secured",
        "_make_pipe",
        "_pipe",
        "_plain",
        "_protocol",
        "_taken_bytes",
        "address",
    )  # fmt: skip

    def __init__(
        self,
        protocol: SecuredProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        *,
        is_server: bool,
        host: str | None = None,
        address: str = "",
    ) -> None:
        super().__init__()
        self.address = address
        self._make_pipe = partial(TlsPipe, context, is_server=is_server, host=host)
        self._head = bytearray()
        """What was read of the handshake, and not looked at yet."""
        self._protocol: Any = protocol
        self._beginner: SecuredProtocol | None = protocol
        self._error: Exception | None = None
        self._pipe: TlsPipe | None = None
        self._handshakes = handshakes
        self._plain: asyncio.Transport | None = None
        self._taken_bytes = 0
        self._has_turn = False
        self._is_secured = False
        self._is_closing = False

    def begin(self, plain: asyncio.Transport, head: bytes = b"") -> None:
        """Take over a connection, of which ``head`` has been read; the handshake begins."""
        self._plain = plain
        plain.set_protocol(self)
        self._head += head
        self._take_turn()

    @property
    def _tls(self) -> TlsPipe:
        assert self._pipe is not None, "the handshake has begun"
        return self._pipe

    @property
    def has_certificate(self) -> bool:
        """Whether the other side showed a certificate, which was verified; it may have no names."""
        return bool(self._tls.ssl_object.getpeercert())

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """The URIs of the other side's certificate, which was verified; () if it showed none."""
        return uris_of(self._tls.ssl_object.getpeercert())

    @property
    def application(self) -> str | None:
        """What both sides have agreed to speak (ALPN)."""
        return self._tls.ssl_object.selected_alpn_protocol()

    # --- the handshake

    def _take_turn(self) -> None:
        if not self._has_turn:
            self._has_turn = True
            self._handshakes.take_turn(self)

    def shake(self) -> None:
        """Go on with the handshake."""
        self._has_turn = False
        if self._plain is None or self._is_closing:
            return
        try:
            if self._pipe is None:
                self._pipe = self._make_pipe()
            self._pipe.feed(bytes(self._head))
            self._head.clear()
            is_done = self._pipe.shake()
        except (ssl.SSLError, ValueError) as error:
            self.fail(error)
            return
        self._send(self._pipe.to_send())
        if is_done:
            self._is_secured = True
            self._handshakes.end(self)
            self._protocol.on_secured(self)
            if not self._is_closing:  # what came with it is not for a protocol that was refused
                self._read()
        else:
            self._handshakes.answered(self)

    def fail(self, error: Exception) -> None:
        """End the connection because of ``error``; the other side may get an alert."""
        if self._plain is None or self._is_closing:
            return
        # Without its frames, which hold on to us: no cycle is left for the collector.
        self._is_closing, self._error = True, error.with_traceback(None)
        self._handshakes.end(self)
        if self._pipe is not None:
            self._send(self._pipe.to_send())
        if self._beginner is not None:
            self._beginner.on_tls_failed(error)
        self._plain.close()

    # --- called by the socket's transport

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Return where to read to; it is used up before anything else is read."""
        return self._handshakes.buffer

    def buffer_updated(self, count: int) -> None:
        """Take what was read."""
        if self._is_closing:
            return
        if self._is_secured:
            self._tls.feed(self._handshakes.buffer[:count])
            self._read()
            return
        self._head += self._handshakes.buffer[:count]
        self._taken_bytes += count
        if self._taken_bytes > HANDSHAKE_BYTES_MAX:
            self.fail(ssl.SSLError("expected a TLS handshake, found no end of it"))
        else:
            self._take_turn()

    def _read(self) -> None:
        pipe = self._tls
        try:
            data = pipe.opened()
        except ssl.SSLError as error:
            self.fail(error)
            return
        if answer := pipe.to_send():  # to new keys
            self._send(answer)
            if self.get_write_buffer_size() > ANSWERS_UNSENT_BYTES_MAX:
                self.fail(ssl.SSLError("it asks for new keys again and again, and reads nothing"))
                self.abort()
                return
        if data:
            self._protocol.data_received(data)
        if pipe.is_over and self._plain is not None:
            self.eof_received()
            self._plain.close()

    def eof_received(self) -> bool:
        """Close: a side that sends no more wants no answer."""
        if self._is_closing:
            return False
        if not self._is_secured:
            self.fail(ssl.SSLEOFError("it closed the connection"))
            return False
        self._is_closing = True
        self._protocol.eof_received()
        return False

    def pause_writing(self) -> None:
        """Pass on that the other side does not read."""
        if self._is_secured:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass on that it reads again."""
        if self._is_secured:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass on that it is over; of a handshake that was not done, too."""
        self._handshakes.end(self)
        self._is_closing = True
        protocol = self._protocol
        protocol.connection_lost(self._error or exc)
        self._plain = self._protocol = self._beginner = None  # no cycle is left for the collector

    # --- asked by the protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, sealed."""
        if self._plain is None or self._is_closing or not data:
            return
        try:
            self._plain.write(self._tls.sealed(data))
        except ssl.SSLError as error:
            self.fail(error)

    def writelines(self, list_of_data: Any) -> None:
        """Send all of it, sealed."""
        self.write(b"".join(list_of_data))

    def _send(self, sealed: bytes) -> None:
        if sealed and self._plain is not None:
            self._plain.write(sealed)

    def close(self) -> None:
        """Close when all that was written has left."""
        if self._plain is None or self._is_closing:
            return
        self._is_closing = True
        if self._is_secured:
            self._send(self._tls.farewell())
        self._plain.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        if self._plain is not None:
            self._plain.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._is_closing or self._plain is None or self._plain.is_closing()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell ``protocol`` what comes from now on."""
        self._protocol = protocol
        self._beginner = None

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that gets what comes."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        if name == "plain_transport":
            return self._plain
        if name == "ssl_object":
            return self._tls.ssl_object
        if name == "sslcontext":
            return self._tls.ssl_object.context
        if name == "peercert":
            return self._tls.ssl_object.getpeercert()
        return default if self._plain is None else self._plain.get_extra_info(name, default)

    def is_reading(self) -> bool:
        """Whether what comes is read."""
        return self._plain is not None and self._plain.is_reading()

    def pause_reading(self) -> None:
        """Read nothing more for now."""
        if self._plain is not None:
            self._plain.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._plain is not None:
            self._plain.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set while the protocol is paused because the other side does not read."""
        if self._plain is not None:
            self._plain.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to be taken."""
        return 0 if self._plain is None else self._plain.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """TLS has no half-closed connections."""
        return False
