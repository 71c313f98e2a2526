"""Seals on the frames of one connection: without the key none can be forged, changed or replayed.

A seal is a keyed BLAKE2b of 16 bytes over the frame's number on this connection and its payload.
The number is not sent: both ends count, each direction has a key of its own (``handshake``), and
the keys are of this connection only. So a frame that is changed, repeated, left out, moved, of
another connection or of the other direction has a wrong seal, and the first wrong one ends the
connection (``link``). Sealed frames are not encrypted: that is TLS's part, and frames that travel
over TLS are not sealed again.
"""

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b

from coordinator.raft.network.frames import frame
from coordinator.raft.network.messages import FrameError

SEAL_BYTES = 16
_NUMBER = struct.Struct(">Q")


class Seals:
    """The frames of one direction of one connection, in their order."""

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(digest_size=SEAL_BYTES, key=key)
        self._count = 0

    def sealed_frame(self, payload: bytes) -> bytes:
        """Return the next frame to send."""
        return frame(payload, self._next_seal(payload))

    def open(self, sealed: bytes) -> memoryview:
        """Return the payload of the next frame that was received; FrameError if it is another."""
        payload = memoryview(sealed)[:-SEAL_BYTES]
        if not hmac.compare_digest(self._next_seal(payload), sealed[-SEAL_BYTES:]):
            raise FrameError(
                "a frame without the right seal: something between the two members changes what"
                " they send"
            )
        return payload

    def _next_seal(self, payload: bytes | memoryview) -> bytes:
        keyed = self._keyed.copy()
        keyed.update(_NUMBER.pack(self._count))
        keyed.update(payload)
        self._count += 1
        return keyed.digest()


class Unsealed:
    """The frames of one direction of a connection that TLS protects."""

    def sealed_frame(self, payload: bytes) -> bytes:
        """Return the next frame to send."""
        return frame(payload)

    def open(self, payload: bytes) -> memoryview:
        """Return the payload of the next frame that was received."""
        return memoryview(payload)
