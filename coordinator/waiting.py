"""Those who wait: for one answer that many share, or until a number that only grows (an index, a
zxid) has reached theirs.

1. Whoever is woken goes on in the next pass of the loop. So of many no more than ``AT_ONCE`` are
   woken in a pass, in their order: what thousands wait for holds the loop no longer than what one
   waits for.
2. The same turns are there for other work on many things.
3. One that gives up is let go of. Of those who wait for a number, at the latest when those who gave
   up are half of all, so they cost no more than those who wait, and letting go costs each of them
   O(log n) on average.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")

AT_ONCE = 100
"""Each goes on for some tens of microseconds, to write its answer for the most part."""

FREED_AT_ONCE = 2_000


def in_turns(items: Iterable[T], act: Callable[[T], object], at_once: int = AT_ONCE) -> None:
    """Call ``act`` for each of ``items``, for so many of them in a pass of the loop; the first ones
    now, in order. ``items`` must not change meanwhile."""
    rest = iter(items)
    for each in islice(rest, at_once):
        act(each)
    for first in rest:
        loop = asyncio.get_running_loop()
        loop.call_soon(in_turns, chain((first,), rest), act, at_once)
        break


def let_go(kept: dict[Any, Any] | deque[Any]) -> None:
    """Empty what nobody reads or writes any more; to free much in one step takes long."""
    pop: Callable[[], object] = kept.popitem if isinstance(kept, dict) else kept.pop
    in_turns(range(len(kept)), lambda _: pop(), FREED_AT_ONCE)


def wake_in_turns(
    waiting: Sequence[asyncio.Future[T]], wake: Callable[[asyncio.Future[T]], None]
) -> None:
    """Call ``wake`` for each that still waits when its turn comes."""
    in_turns(waiting, lambda each: None if each.done() else wake(each))


class Answer(Generic[T]):
    """An answer that many wait for."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[T], None] = {}

    async def wait(self) -> T:
        """Return the answer, or raise what became of it; to be called before that is known."""
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[told] = None
        try:
            return await told
        finally:
            self._waiting.pop(told, None)

    def waiting(self) -> list[asyncio.Future[T]]:
        """Return those who wait now, in the order in which they came."""
        return list(self._waiting)

    def tell(self, answer: T, among: Sequence[asyncio.Future[T]] | None = None) -> None:
        """Answer all, or those ``among`` them who still wait."""
        told = self.waiting() if among is None else among
        wake_in_turns(told, lambda each: each.set_result(answer))

    def fail(self, error: Callable[[], Exception]) -> None:
        """Raise an error of its own for each."""
        wake_in_turns(self.waiting(), lambda each: each.set_exception(error()))


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
        reached: list[asyncio.Future[None]] = []
        while heap and heap[0][0] <= number:
            reached.append(heapq.heappop(heap)[2])
        wake_in_turns(reached, lambda woken: woken.set_result(None))

    def wake_all(self, error: Callable[[], Exception] | None = None) -> None:
        """Wake everybody, each with an error of its own if there is one."""
        waiting = [woken for _, _, woken in self._heap]
        self._heap = []
        if error is None:
            wake_in_turns(waiting, lambda woken: woken.set_result(None))
        else:
            wake_in_turns(waiting, lambda woken: woken.set_exception(error()))

    def _give_up(self) -> None:
        self._given_up_count += 1
        if 2 * self._given_up_count > len(self._heap):
            self._heap = [each for each in self._heap if not each[2].done()]
            heapq.heapify(self._heap)
            self._given_up_count = 0
