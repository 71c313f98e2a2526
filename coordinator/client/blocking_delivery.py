"""The delivery of all calls that threads make by themselves: its coroutines never suspend."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from coordinator.client.delivery import CallDelivery, LosableSession
from coordinator.client.deputy import wait_cancellably
from coordinator.client.renewal import Renewal
from coordinator.client.request_ids import (
    WRITES_AT_ONCE_MAX,
    RequestIdPool,
    RequestIds,
    too_many_writes,
)
from coordinator.client.session import WaitOverError
from coordinator.client.stream.blocking import BlockingTransport
from coordinator.client.stream.blocking_waiters import BlockingLines
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.turns import AttemptTurn
from coordinator.wire.encoding import Encoding

_STEP_MS = 100
"""How long a pause goes on at most after the main thread was interrupted."""


def _nothing_to_wake() -> None:
    """Wake nothing: the wait is short."""


class _BlockingPool(RequestIdPool):
    """The ids of the threads of one client."""

    def __init__(self, floor: Callable[[], int]) -> None:
        super().__init__(floor)
        self._threads = threading.BoundedSemaphore(WRITES_AT_ONCE_MAX)

    def begin_write(self) -> RequestIds | None:
        """Lend an id for one write; None while very many are under way."""
        return self.take() if self._threads.acquire(blocking=False) else None

    async def wait_to_write(self, wait_ms: int) -> RequestIds:
        """Lend an id for one write, within ``wait_ms``; waits in this thread."""
        if not self._threads.acquire(timeout=max(0, wait_ms) / 1000):
            raise too_many_writes(wait_ms)
        return self.take()

    def end_write(self, ids: RequestIds) -> None:
        """Take back what was lent for a write, which has ended."""
        self._free.append(ids)
        self._threads.release()


class BlockingDelivery(CallDelivery):
    """All calls that threads make by themselves; its coroutines never suspend."""

    def __init__(
        self, beside: CallDelivery, transport: BlockingTransport, leader: KnownLeader
    ) -> None:
        super().__init__(
            transport,
            beside.endpoints.urls,
            beside.clock,
            beside.retry,
            leader,
            encoding=Encoding.MSGPACK,
            credentials=beside.credentials,
        )
        self.endpoints = beside.endpoints
        self.acceptance = beside.acceptance
        self._beside = beside
        self.request_ids = _BlockingPool(lambda: self.index_seen)
        self._is_over = threading.Event()

    def renewal(self, now_ms: int) -> Renewal | None:
        """Return what makes a request of a thread renew the session, if it should."""
        return self._beside.renewal(now_ms)

    def end_session(self, reason: str) -> None:
        """Let the client's session be lost; its holders are notified in the client's loop."""
        self._beside.end_session(reason)

    def turn_now(self) -> AttemptTurn:
        """Return a turn of its own: each thread has one attempt under way."""
        return AttemptTurn(None)

    async def wait(self, delay_ms: int) -> None:
        """Wait for so long, or until the client is closed."""
        until_ms = self.clock.monotonic_ms() + delay_ms
        while (left_ms := until_ms - self.clock.monotonic_ms()) > 0 and not self.is_closed:
            step_s = min(left_ms, _STEP_MS) / 1000
            wait_cancellably(self._is_over.wait, _nothing_to_wake, step_s)

    async def line(
        self, stream: Any, limit_ms: int, session: LosableSession | None = None
    ) -> bytes | None:
        """Return the next line; the end of ``session`` ends the wait.

        Raises:
            TimeoutError: it has not come within ``limit_ms``.
            WaitOverError: the session has ended.
        """
        lines: BlockingLines = stream
        if lines.has_news:
            return lines.take()
        until_ms = self.clock.monotonic_ms() + limit_ms
        stop = None if session is None else session.on_change(lambda _state: lines.ring())
        try:
            while not lines.has_news:
                if session is not None and session.is_lost:
                    raise WaitOverError
                left_ms = until_ms - self.clock.monotonic_ms()
                if left_ms <= 0:
                    raise TimeoutError
                if session is not None:
                    left_ms = min(left_ms, session.remaining_safe_ms() + 1)
                wait_cancellably(lines.wait, lines.ring, left_ms / 1000)
        finally:
            if stop is not None:
                stop()
        return lines.take()

    async def rest(self, stream: Any, limit_ms: int) -> bytes:
        """Return the rest of the stream; TimeoutError after ``limit_ms``."""
        until_ms = self.clock.monotonic_ms() + limit_ms
        parts = []
        while (part := await self.line(stream, until_ms - self.clock.monotonic_ms())) is not None:
            parts.append(part)
        return b"".join(parts)

    async def close(self) -> None:
        """End the calls under way, and the connections."""
        self.is_closed = True
        self._is_over.set()
        await self._transport.close()
