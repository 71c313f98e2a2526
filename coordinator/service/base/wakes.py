"""The turns of waiting readers, some at a time: ten thousand may watch one path or one lock.

The events are in each stream's buffer already, and the holders are in the state: a reader whose
turn comes later sees more at once. Turns come in the order in which they were asked for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

WOKEN_AT_ONCE = 100
"""In one pass of the loop; each reader encodes and sends."""


class Wakes:
    """The readers to be woken, for one kind of waiting."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._left = WOKEN_AT_ONCE
        self._is_counting = False

    def wake(self, reader: asyncio.Future[None]) -> None:
        """End the wait of a reader now or, after many in this pass, in a later one."""
        self.turn(lambda: _end(reader))

    def turn(self, act: Callable[[], None]) -> None:
        """Call ``act`` now or, after many in this pass, in a later one."""
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_pass)
        if self._left > 0:
            self._left -= 1
            act()
        else:
            self._waiting.append(act)

    def spend(self, turns: int) -> None:
        """Have fewer others follow in this pass: this turn does the work of so many."""
        self._left -= turns

    def later(self, act: Callable[[], None]) -> None:
        """Call ``act`` after all that wait for their turn now."""
        self._waiting.append(act)
        if not self._is_counting:
            self._is_counting = True
            asyncio.get_running_loop().call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._left = WOKEN_AT_ONCE
        while self._waiting and self._left > 0:
            self._left -= 1
            self._waiting.popleft()()
        self._is_counting = self._left < WOKEN_AT_ONCE
        if self._is_counting:
            asyncio.get_running_loop().call_soon(self._next_pass)


def _end(reader: asyncio.Future[None]) -> None:
    if not reader.done():
        reader.set_result(None)
