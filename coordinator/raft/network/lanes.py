"""The lanes of what waits to leave for one member: nothing short waits behind much that is long.

1. Raft's own words (votes, heartbeats, acknowledgements, probes) go first, in their order.
2. Appends, short questions and answers, and all that is long have a lane each. They take turns, a
   piece at a time, so a lane that is full delays the others by a part of the line and no more.
3. What is longer than a piece leaves in pieces, and is put together at the other end (``Joiner``).
4. Each lane keeps its order: an append never overtakes another one. One without entries is a word
   if none waits before it.

No I/O.
"""

from __future__ import annotations

from collections import deque

from coordinator.raft.network.messages import (
    Append,
    FrameError,
    MemberRequest,
    Message,
    Reply,
    SnapshotPiece,
)

PIECE_BYTES = 32 * 1024
"""The longest piece. All words are shorter, but for one that is as long and sent once for each
connection (``Incarnation``)."""
SHORT_BYTES_MAX = 4 * 1024
"""A question or an answer of more is long."""
PIECE_FRAME_BYTES_MAX = PIECE_BYTES + 1024
"""The longest frame, with what says which message it is a piece of."""

_MORE, _LAST = 0, 1
"""The first byte of a piece; that of a whole message is the one of an array, 0x90 or more."""
_HEAD_BYTES = 2
_APPENDS, _SHORT, _LONG = 0, 1, 2
_LANES = 3


class _Lane:
    """The messages of one lane, of which the first may have left in part."""

    __slots__ = ("messages", "offset", "waiting_bytes")

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque()
        self.offset = 0
        """How much of the first message has left."""
        self.waiting_bytes = 0

    def add(self, payload: bytes) -> None:
        self.messages.append(payload)
        self.waiting_bytes += len(payload)

    def take(self, number: int, taken: list[bytes]) -> int:
        """Append the next piece, or some whole messages; return their size together."""
        messages, size = self.messages, 0
        while messages:
            first = messages[0]
            if len(first) > PIECE_BYTES:
                if size:
                    break
                end = self.offset + PIECE_BYTES
                head = bytes((_LAST if end >= len(first) else _MORE, number))
                taken.append(head + memoryview(first)[self.offset : end])
                size = min(end, len(first)) - self.offset
                self.offset = end
                if end >= len(first):
                    messages.popleft()
                    self.offset = 0
                break
            if size and size + len(first) > PIECE_BYTES:
                break
            taken.append(messages.popleft())
            size += len(first)
        self.waiting_bytes -= size
        return size


class Lanes:
    """The lanes to one member; each holds ``lane_bytes_max``, and one message in any case."""

    def __init__(self, lane_bytes_max: int) -> None:
        self._lane_bytes_max = lane_bytes_max
        self._words: list[bytes] = []
        self._words_bytes = 0
        self._lanes = tuple(_Lane() for _ in range(_LANES))
        self._next = 0
        """The lane whose turn it is."""

    @property
    def waiting_bytes(self) -> int:
        """How much waits, in all lanes."""
        return self._words_bytes + sum(lane.waiting_bytes for lane in self._lanes)

    @property
    def has_too_many_words(self) -> bool:
        """Whether the other side reads nothing: it waits for no answer, and each is a word."""
        return self._words_bytes > self._lane_bytes_max

    def add(self, message: Message, payload: bytes) -> bool:
        """Let ``message`` wait, as ``payload``; False if its lane is full."""
        lane = self._lane_of(message, len(payload))
        if lane is None:
            self._words.append(payload)
            self._words_bytes += len(payload)
            return not self.has_too_many_words
        waiting_bytes = lane.waiting_bytes
        if waiting_bytes and waiting_bytes + len(payload) > self._lane_bytes_max:
            return False
        lane.add(payload)
        return True

    def _lane_of(self, message: Message, size: int) -> _Lane | None:
        """Return where a message waits; None: with the words."""
        if isinstance(message, Append):
            lane = self._lanes[_APPENDS]
            return lane if message.entries or lane.messages else None
        if isinstance(message, MemberRequest | Reply | SnapshotPiece):
            return self._lanes[_SHORT if size <= SHORT_BYTES_MAX else _LONG]
        return None

    def take(self, room_bytes: int) -> list[bytes]:
        """Take all words, and of the rest what begins within ``room_bytes``: frames to send."""
        taken, self._words = self._words, []
        size, self._words_bytes = self._words_bytes, 0
        idle = 0
        while size < room_bytes and idle < _LANES:
            number = self._next
            lane = self._lanes[number]
            self._next = (number + 1) % _LANES
            if lane.messages:
                size += lane.take(number, taken)
                idle = 0
            else:
                idle += 1
        return taken

    def clear(self) -> None:
        """Forget all that waits: the connection was lost."""
        self._words, self._words_bytes = [], 0
        self._lanes = tuple(_Lane() for _ in range(_LANES))


class Joiner:
    """Puts together what the other member's lanes have cut; each has one message under way."""

    def __init__(self, message_bytes_max: int) -> None:
        self._message_bytes_max = message_bytes_max
        self._begun = tuple(bytearray() for _ in range(_LANES))

    def take(self, frame: memoryview) -> memoryview | None:
        """Return the message that ``frame`` is or ends, or None until more arrives.

        Raises FrameError for what is no piece, or of a message over the limit."""
        if not len(frame) or frame[0] > _LAST:
            return frame
        if len(frame) <= _HEAD_BYTES or frame[1] >= _LANES:
            raise FrameError("expected a piece of a message, found none")
        begun = self._begun[frame[1]]
        size = len(begun) + len(frame) - _HEAD_BYTES
        if size > self._message_bytes_max:
            raise FrameError(
                f"expected a message of at most {self._message_bytes_max} bytes, found {size}"
            )
        begun += frame[_HEAD_BYTES:]
        if frame[0] == _MORE:
            return None
        whole = bytes(begun)
        begun.clear()
        return memoryview(whole)
