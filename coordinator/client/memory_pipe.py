"""Two protocols of one event loop, joined back to back in memory instead of by a socket.

What one writes is received by the other in a later pass of the loop, in order, with the same calls
that asyncio's transports make, back-pressure and broken connections included.
"""

from __future__ import annotations

import asyncio
from typing import Any

_HIGH_WATER_BYTES = 256 * 1024


class PipeEnd(asyncio.Transport):
    """One end of an in-memory connection; what is written here is received over there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        self._loop = loop
        self._protocol: Any = None
        self._peer: PipeEnd = self
        self._inbox = bytearray()
        self._is_paused = False
        self._is_flushing = False
        self._is_peer_held = False
        self._is_closing = False
        self._is_lost = False

    def join(self, protocol: asyncio.Protocol, peer: PipeEnd) -> None:
        """Connect this end with its protocol and with the other end."""
        self._protocol, self._peer = protocol, peer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand bytes to the other end; after a close they are dropped."""
        if not self._is_closing:
            self._peer._receive(bytes(data))

    def _receive(self, data: bytes) -> None:
        if self._is_lost:
            return
        self._inbox += data
        if len(self._inbox) > _HIGH_WATER_BYTES and not self._is_peer_held:
            self._is_peer_held = True
            self._peer._protocol.pause_writing()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_flushing and not self._is_paused:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_paused or self._is_lost:
            return
        if self._inbox:
            data = bytes(self._inbox)
            self._inbox.clear()
            self._protocol.data_received(data)
            if self._is_peer_held:
                self._is_peer_held = False
                self._peer._protocol.resume_writing()
        if self._peer._is_closing and not self._inbox:
            self._lose()

    def close(self) -> None:
        """Close both ends, in a later step of the loop."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)
            self._peer._schedule()

    def abort(self) -> None:
        """Close it: nothing is buffered that could be dropped."""
        self.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        """Say whether it has been closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Hold back what comes in."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand over what was held back, and what comes in."""
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        """Say whether what comes in is handed over."""
        return not self._is_paused

    def get_protocol(self) -> Any:
        """Return the protocol of this end."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol of this end."""
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the other end has not taken yet."""
        return len(self._peer._inbox)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limit is fixed."""

    def can_write_eof(self) -> bool:
        """Say that it cannot be closed in one direction only."""
        return False


def joined(
    loop: asyncio.AbstractEventLoop, client: asyncio.Protocol, server: asyncio.Protocol
) -> PipeEnd:
    """Connect ``client`` to ``server``; return the client's end."""
    near, far = PipeEnd(loop), PipeEnd(loop)
    near.join(client, far)
    far.join(server, near)
    server.connection_made(far)
    client.connection_made(near)
    return near
