"""The outbox of one stream connection: the frames that leave next.

1. What is sent in one pass of the loop leaves in one send, a lone answer at once.
2. Of many answers of one pass ``ANSWERS_AT_ONCE`` leave together: their client works on these while
   the rest is made.
3. A client that does not read is cut off after ``deadline_s``, or when more waits for it than
   ``UNSENT_BYTES_MAX``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from typing import Final

from coordinator.wire.stream.frames import AnswerFrame, FrameWriter, FromServer, Line

ANSWERS_AT_ONCE: Final = 16
"""With fewer, sends cost more than is won: a send costs about as much as an answer."""
UNSENT_BYTES_MAX = 16 * 1024 * 1024
"""The unsent answers of a connection to requests that came before its client ceased to read."""
_FULL_BYTES: Final = 256 * 1024
"""Beyond it lines wait."""


class Outbox:
    """What one connection sends, and who waits for room in it."""

    __slots__ = (
        "_answers", "_deadline_s", "_frames", "_is_flush_due", "_longest", "_loop",
        "_room", "_running", "_transport", "_unsent_max", "_write_timer", "is_paused",
    )  # fmt: skip

    def __init__(
        self, transport: asyncio.Transport, running: Container[int], deadline_s: float
    ) -> None:
        self._transport: asyncio.Transport | None = transport
        self._running = running
        """The ids of the requests under way."""
        self._deadline_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self._frames = FrameWriter()
        self._answers = 0
        """How many answers are among what was gathered."""
        self._is_flush_due = False
        self._unsent_max = UNSENT_BYTES_MAX
        self._longest = 0
        """The size of the longest answer that was gathered, if it is a long one."""
        self._room: list[asyncio.Future[None]] = []
        self._write_timer: asyncio.TimerHandle | None = None
        self.is_paused = False
        """Whether its client does not take what is sent."""

    def send(self, frame: FromServer) -> None:
        """Send ``frame`` with what else is sent in this pass."""
        self._frames.add(frame)
        if not self._is_flush_due:
            if self._running:
                self._is_flush_due = True
                self._loop.call_soon(self.flush)
            else:
                self.flush()

    def answer(self, frame: AnswerFrame) -> None:
        """Send an answer with what else is sent in this pass, or with those before it."""
        self._answers += 1
        self.send(frame)
        if self._answers >= ANSWERS_AT_ONCE:
            self._write()

    def maybe_send(self, line: Line) -> bool:
        """Send a line if its client waits for it and there is room; return whether it was sent."""
        if self.is_paused or line.id not in self._running or len(self._frames.buffer) > _FULL_BYTES:
            return False
        self._frames.add(line)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)
        return True

    def hold(self) -> bool:
        """Gather what is sent until ``flush``; return False if it is gathered already."""
        is_first, self._is_flush_due = not self._is_flush_due, True
        return is_first

    def flush(self) -> None:
        """Send what was gathered."""
        self._is_flush_due = False
        self._write()

    def _write(self) -> None:
        self._answers = 0
        if not self._frames.buffer:
            return
        sent = self._frames.take()
        if self._transport is None or self._transport.is_closing():
            return
        if self._longest:
            self._unsent_max = max(self._unsent_max, UNSENT_BYTES_MAX + self._longest)
            self._longest = 0
        self._transport.write(sent)
        if self.is_paused and self.unsent_bytes() > self._unsent_max:
            self._abort()

    # --- a client that does not read

    def unsent_bytes(self) -> int:
        """Return how much waits here, and before the system."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return len(self._frames.buffer) + waiting

    def allow(self, size: int) -> None:
        """Let a long answer that is sent next wait beside what may wait, however long it is."""
        self._longest = max(self._longest, size)

    def pause(self) -> None:
        """Its client takes nothing: cut it off if that lasts for too long."""
        self.is_paused = True
        self._write_timer = self._loop.call_later(self._deadline_s, self._abort)

    def resume(self) -> None:
        """Its client has taken what was sent: wake those who wait for room."""
        self.is_paused = False
        self._unsent_max = UNSENT_BYTES_MAX
        self._stop_waiting()

    def close(self) -> None:
        """The connection is lost."""
        self._transport = None
        self._stop_waiting()

    @property
    def is_full(self) -> bool:
        """Whether there is more to send than may wait."""
        return self.is_paused or len(self._frames.buffer) > _FULL_BYTES

    async def room(self) -> None:
        """Wait until it is not full any more; the caller looks again."""
        if not self.is_paused:
            await asyncio.sleep(0)  # until the end of this pass, when it is flushed
            return
        woken = self._loop.create_future()
        self._room.append(woken)
        await woken

    def _stop_waiting(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        room, self._room = self._room, []
        for each in room:
            if not each.done():
                each.set_result(None)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
