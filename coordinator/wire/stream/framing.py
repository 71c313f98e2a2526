"""The frames of the stream as bytes: each behind its length, several in one send.

A module of its own, so that it can be compiled: records of msgspec cannot be (``frames``).
"""

from __future__ import annotations

import struct
from typing import Final, Generic, NoReturn, TypeVar

import msgspec

from coordinator.errors import BadArgumentsError
from coordinator.wire.strict_json import shortened

FRAMES_AT_ONCE: Final = 100
"""How many frames of one connection are taken in one pass, so that others have their turn."""
_LENGTH_BYTES: Final = 4
_NO_LENGTH: Final = bytes(_LENGTH_BYTES)
_COPIED_BYTES_MAX: Final = 16 * 1024
_LENGTH: Final = struct.Struct(">I")
_LENGTH_AT: Final = _LENGTH.unpack_from
_PUT_LENGTH: Final = _LENGTH.pack_into

FrameT = TypeVar("FrameT")

_ENCODER: Final = msgspec.msgpack.Encoder()
_ENCODE_INTO: Final = _ENCODER.encode_into


def encoded(frame: msgspec.Struct) -> bytes:
    """Return ``frame`` as bytes, its length in front."""
    payload = _ENCODER.encode(frame)
    return _LENGTH.pack(len(payload)) + payload


class FrameWriter:
    """Collects the frames of one pass, so that they leave in one send."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray()

    def add(self, frame: msgspec.Struct) -> None:
        """Put ``frame`` behind what is there."""
        buffer = self.buffer
        start = len(buffer)
        buffer += _NO_LENGTH
        try:
            _ENCODE_INTO(frame, buffer, -1)
        except BaseException:
            del buffer[start:]  # half a frame would spoil all that follow
            raise
        _PUT_LENGTH(buffer, start, len(buffer) - start - _LENGTH_BYTES)

    def __len__(self) -> int:
        return len(self.buffer)

    def __bool__(self) -> bool:
        return len(self.buffer) > 0

    def take(self) -> bytearray:
        """Return what was collected; the caller owns it."""
        taken, self.buffer = self.buffer, bytearray()
        return taken


class FrameReader(Generic[FrameT]):
    """Cuts what arrives into frames, however it was split on the way."""

    __slots__ = ("_at", "_buffer", "_decode", "_mistake", "frame_bytes_max")

    def __init__(self, decoder: msgspec.msgpack.Decoder[FrameT], frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        """May be raised between two frames: it is small until the peer is known."""
        self._decode = decoder.decode
        self._buffer: bytes | bytearray = b""
        self._at = 0
        self._mistake: BadArgumentsError | None = None

    def feed(self, data: bytes) -> None:
        """Take what the connection brought."""
        rest = self._buffer
        if self._at == len(rest):
            self._buffer, self._at = data, 0  # not copied: it mostly holds whole frames
            return
        if type(rest) is not bytearray or self._at:
            self._buffer = rest = bytearray(memoryview(rest)[self._at :])
            self._at = 0
        rest += data

    def take(self, count_max: int = FRAMES_AT_ONCE) -> list[FrameT]:
        """Return the next whole frames, ``count_max`` at most; none until more has arrived.

        Raises:
            BadArgumentsError: what comes next is no frame; nothing after it can be read.
        """
        mistake = self._mistake
        if mistake is not None:
            raise mistake
        frames: list[FrameT] = []
        buffer, at, decode = self._buffer, self._at, self._decode
        available = len(buffer)
        try:
            while len(frames) < count_max and available - at >= _LENGTH_BYTES:
                (length,) = _LENGTH_AT(buffer, at)
                if length > self.frame_bytes_max:
                    self._refuse_length(length)
                end = at + _LENGTH_BYTES + length
                if end > available:
                    break
                # A copy of little is cheaper than a view. No name keeps the view: what a mistake
                # is raised with would keep it, too, and the buffer could not grow any more.
                begin = at + _LENGTH_BYTES
                is_little = length <= _COPIED_BYTES_MAX
                frames.append(
                    decode(buffer[begin:end] if is_little else memoryview(buffer)[begin:end])
                )
                at = end
        except BadArgumentsError as error:
            self._mistake = mistake = error
        except (ValueError, RecursionError) as error:
            self._mistake = mistake = _not_a_frame(error)
        if at == available:
            self._buffer, at = b"", 0
        self._at = at
        if mistake is not None and not frames:
            raise mistake
        return frames

    @property
    def has_rest(self) -> bool:
        """Whether bytes are left: a frame in part, or whole ones that were not taken yet."""
        return self._at < len(self._buffer)

    @property
    def rest_bytes(self) -> int:
        """How many bytes are left."""
        return len(self._buffer) - self._at

    def _refuse_length(self, length: int) -> NoReturn:
        raise BadArgumentsError(
            f"stream: expected a frame of at most {self.frame_bytes_max} bytes, found {length}"
        )


def _not_a_frame(error: ValueError | RecursionError) -> BadArgumentsError:
    reason = shortened(" ".join(ascii(str(error))[1:-1].split()))
    return BadArgumentsError(f"stream: expected a frame of docs/stream.md, found: {reason}")
