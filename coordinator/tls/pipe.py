"""TLS without a socket: what to send for bytes, and which bytes came. Of one connection.

Not safe for two threads at once. TLS 1.3 knows no renegotiation, and a session is never resumed: a
certificate that was replaced, or a CA that is trusted no more, counts for the next connection.
"""

from __future__ import annotations

import ssl

RECORD_BYTES = 16 * 1024
"""The most that one record carries."""


class TlsPipe:
    """One connection; ``host`` is whom a client calls, None where no name is compared."""

    __slots__ = ("_in", "_out", "is_over", "ssl_object")

    def __init__(
        self, context: ssl.SSLContext, *, is_server: bool = False, host: str | None = None
    ) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(
            self._in, self._out, server_side=is_server, server_hostname=host
        )
        self.is_over = False
        """Whether the other side has said that nothing more comes."""

    def shake(self) -> bool:
        """Go on with the handshake; return whether it is done. Raises ssl.SSLError."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def feed(self, data: bytes | memoryview) -> None:
        """Take what came from the network."""
        self._in.write(data)

    def to_send(self) -> bytes:
        """Return what is to be sent now; may be empty."""
        return self._out.read() if self._out.pending else b""

    def sealed(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return ``data`` as it is to be sent, with what else is to be sent before it."""
        write = self.ssl_object.write
        length = len(data)
        done = write(data) if length else 0
        if done < length:
            view = memoryview(data)
            while done < length:
                done += write(view[done : done + RECORD_BYTES])
        return self._out.read()

    def opened(self) -> bytes:
        """Return what was fed, as the other side meant it; may be empty. Raises ssl.SSLError."""
        parts: list[bytes] = []
        read, fed = self.ssl_object.read, self._in
        try:
            while fed.pending or self.ssl_object.pending():
                data = read(RECORD_BYTES)
                if not data:
                    self.is_over = True
                    break
                parts.append(data)
        except ssl.SSLWantReadError:
            pass
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def farewell(self) -> bytes:
        """Return what says that nothing more comes from here."""
        try:
            self.ssl_object.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # it waits for the other side's, which nobody reads; or there was no handshake
        return self.to_send()
