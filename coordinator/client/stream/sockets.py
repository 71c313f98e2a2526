"""The socket of a connection for threads: its options, and TLS on it."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
import threading

from coordinator.clock import Clock
from coordinator.tls.pipe import TlsPipe

_READ_BYTES = 64 * 1024


class PlainBytes:
    """The reader and writer of a connection without TLS."""

    def sealed(self, data: bytes | bytearray) -> bytes | bytearray:
        """Return what is to be sent for ``data``."""
        return data

    def opened(self, data: bytes) -> bytes:
        """Return what was meant by ``data``."""
        return data


class SecuredBytes:
    """Bytes that TLS protects; one thread sends at a time, another one reads."""

    def __init__(self, pipe: TlsPipe) -> None:
        self._pipe = pipe
        self._guard = threading.Lock()
        """Held around the pipe, for a moment."""

    def sealed(self, data: bytes | bytearray) -> bytes | bytearray:
        """Return what is to be sent for ``data``. Raises ssl.SSLError."""
        with self._guard:
            return self._pipe.sealed(data)

    def opened(self, data: bytes) -> bytes:
        """Return what was meant by ``data``; may be empty. Raises ssl.SSLError."""
        with self._guard:
            self._pipe.feed(data)
            return self._pipe.opened()


def secure(
    connected: socket.socket, context: ssl.SSLContext, host: str, clock: Clock, limit_ms: int
) -> SecuredBytes:
    """Make the handshake, within ``limit_ms`` in all. Raises OSError."""
    pipe = TlsPipe(context, host=host)
    until_ms = clock.monotonic_ms() + limit_ms
    while True:
        if (left_ms := until_ms - clock.monotonic_ms()) <= 0:
            raise TimeoutError(f"no TLS handshake within {limit_ms} ms")
        connected.settimeout(left_ms / 1000)
        try:
            is_done = pipe.shake()
        finally:
            if to_send := pipe.to_send():
                connected.sendall(to_send)
        if is_done:
            return SecuredBytes(pipe)
        data = connected.recv(_READ_BYTES)
        if not data:
            raise ssl.SSLEOFError("it closed the connection")
        pipe.feed(data)


def prepare(connected: socket.socket) -> None:
    """Let a socket wait for long, and send at once what is short."""
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def look_up_after(connected: socket.socket, ms: int) -> None:
    """Let a read of a socket to which nothing comes end after ``ms``.

    Some systems refuse this, as macOS does, for a socket that was shut down: a read of it ends at
    once, and says why.
    """
    try:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _time_value(ms))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise


def _time_value(ms: int) -> bytes:
    """Return a time as the socket option has it."""
    if os.name == "nt":
        return struct.pack("=L", ms)
    return struct.pack("@ll", ms // 1000, ms % 1000 * 1000)
