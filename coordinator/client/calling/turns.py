"""Turns of attempts that were sent and have no answer yet: so many of a client at once.

A program may wait for a lock in thousands of tasks. If all of them asked at once, most would
not be answered in time and would ask again, and the heartbeat of their session would come last.
An attempt that has an answer, if only that it waits in the queue, has had its turn. Turns come in
order.
"""

from __future__ import annotations

import asyncio
from collections import deque

from coordinator.errors import UnavailableError


class Places:
    """Belongs to one event loop. A place that is free costs no wait and no future."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a place if one is free: then no other waits for it."""
        if self._free == 0:
            return False
        self._free -= 1
        return True

    async def take(self, limit_s: float) -> None:
        """Wait for a place, and take it.

        Raises:
            TimeoutError: none has become free in time.
        """
        if self.take_now():
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(limit_s):
                await waiting
        except BaseException:
            if waiting.done() and not waiting.cancelled():
                self.leave()  # it was given in the same instant
            else:
                self._waiting.remove(waiting)
            raise

    def leave(self) -> None:
        """Give a place back: to the first that waits for one, if any does."""
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
                self._waiting.remove(waiting)
                return
        self._free += 1


TURNS_MAX = 256
OPENINGS_MAX = 32
"""How many long streams of lines are opened at once: when a connection breaks all of a client are
opened again, and each has a short time for its first line."""


class AttemptTurn:
    """One turn; it ends with ``end``."""

    __slots__ = ("_turns",)

    def __init__(self, turns: Places | None) -> None:
        self._turns = turns

    def end(self) -> None:
        """Let the next one begin; does nothing the second time."""
        turns, self._turns = self._turns, None
        if turns is not None:
            turns.leave()


class AttemptTurns:
    """The turns of one client, in its loop."""

    def __init__(self, count: int = TURNS_MAX) -> None:
        self._count = count
        self._free = Places(count)

    def take_now(self) -> AttemptTurn | None:
        """Return a turn if there is one."""
        return AttemptTurn(self._free) if self._free.take_now() else None

    async def take(self, limit_ms: int) -> AttemptTurn:
        """Wait for a turn.

        Raises:
            UnavailableError: it has not come within ``limit_ms``; nothing was sent.
        """
        try:
            await self._free.take(limit_ms / 1000)
        except TimeoutError:
            late = UnavailableError(
                f"not sent within {limit_ms} ms: {self._count} attempts of this client were before "
                "it, without an answer; wait longer, or with fewer tasks"
            )
            raise late from None
        return AttemptTurn(self._free)
