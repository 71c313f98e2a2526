"""Those who wait until a number that only grows (an index, a zxid) has reached theirs.

One that gives up is let go of: at the latest when those who gave up are half of all, so they cost
no more than those who wait, and letting go costs each of them O(log n) on average.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable


class Waiters:
    """Who waits for what, the smallest number first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        """Of all that ever waited: it decides between equal numbers."""
        self._given_up_count = 0

    def __len__(self) -> int:
        """Return how many are kept: those who wait, and as many again at most."""
        return len(self._heap)

    async def until(self, number: int) -> None:
        """Wait until ``on_reached`` is told ``number`` or more, or ``wake_all`` is called."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._heap, (number, self._count, woken))
        try:
            await woken
        finally:
            if woken.cancel() or woken.cancelled():
                self._give_up()

    def on_reached(self, number: int) -> None:
        """Wake those who wait for ``number`` or less."""
        heap = self._heap
        while heap and heap[0][0] <= number:
            _, _, woken = heapq.heappop(heap)
            if not woken.done():
                woken.set_result(None)

    def wake_all(self, error: Callable[[], Exception] | None = None) -> None:
        """Wake everybody, each with an error of its own if there is one."""
        heap, self._heap = self._heap, []
        for _, _, woken in heap:
            if woken.done():
                continue
            if error is None:
                woken.set_result(None)
            else:
                woken.set_exception(error())

    def _give_up(self) -> None:
        self._given_up_count += 1
        if 2 * self._given_up_count > len(self._heap):
            self._heap = [each for each in self._heap if not each[2].done()]
            heapq.heapify(self._heap)
            self._given_up_count = 0
