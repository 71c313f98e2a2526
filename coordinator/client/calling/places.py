"""A bounded number of places for what runs at once; the others wait for one, in their order."""

from __future__ import annotations

import asyncio
from collections import deque


class Places:
    """Belongs to one event loop. A place that is free costs no wait and no future."""

    __slots__ = ("_free", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[asyncio.Future[None]] = deque()

    def take_now(self) -> bool:
        """Take a place if one is free: then nobody waits for it."""
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
