"""Frames on a byte stream: four bytes of length, big endian, then that many bytes. No I/O.

A length over the limit is refused when its four bytes are read, before memory is used for it.
"""

from __future__ import annotations

import struct

from coordinator.raft.network.messages import FrameError

_LENGTH = struct.Struct(">I")
LENGTH_BYTES = _LENGTH.size


def frame(payload: bytes, seal: bytes = b"") -> bytes:
    """Return ``payload``, and its ``seal`` behind it, with the length of both in front."""
    return b"".join((_LENGTH.pack(len(payload) + len(seal)), payload, seal))


class PayloadReader:
    """Cuts a stream into payloads, however it was split on the way."""

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """May be raised between two frames: it is small until the peer has proved who it is."""
        self._buffer = bytearray()
        self._position = 0

    def only(self, data: bytes) -> bytes | None:
        """Return the payload of ``data`` if that is one whole frame, and nothing waits before it.

        None: nothing was taken."""
        if self._buffer or len(data) <= LENGTH_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(data)
        is_whole = length == len(data) - LENGTH_BYTES and length <= self.frame_bytes_max
        return data[LENGTH_BYTES:] if is_whole else None

    def feed(self, data: bytes) -> None:
        """Take what the stream brought."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the next whole payload, or None until more arrives.

        Raises FrameError for a length over the limit."""
        start = self._position + LENGTH_BYTES
        if len(self._buffer) < start:
            self._forget_read()
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._position)
        if length > self.frame_bytes_max:
            raise FrameError(
                f"expected a frame of at most {self.frame_bytes_max} bytes, found {length}"
            )
        end = start + length
        if len(self._buffer) < end:
            self._forget_read()
            return None
        payload = bytes(memoryview(self._buffer)[start:end])
        self._position = end
        return payload

    def _forget_read(self) -> None:
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
