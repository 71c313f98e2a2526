"""Waiters: for one answer that many share, or for a growing number (an index, a zxid).

1. A woken waiter continues in the next pass of the loop. At most ``AT_ONCE`` are woken in one pass,
   in their order, so thousands of waiters do not hold the loop.
2. The same turns serve other work on many items.
3. A waiter that gave up is dropped. Of those that wait for a number, at the latest when half of all
   have given up: so they cost no more memory than the waiting ones, and dropping one costs O(log n)
   on average.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 100
"""Each waiter runs for some tens of microseconds, mostly to write its answer."""

FREED_AT_ONCE: Final = 2_000


def in_turns(items: Iterable[T], act: Callable[[T], object], at_once: int = AT_ONCE) -> None:
    """Call ``act`` for each of ``items``, for so many of them in a pass of the loop; the first ones
    now, in order. ``items`` must not change meanwhile."""
    rest = iter(items)
    for each in islice(rest, at_once):
        act(each)
    _go_on(rest, act, at_once)


def _go_on(rest: Iterator[T], act: Callable[[T], object], at_once: int) -> None:
    for first in rest:
        asyncio.get_running_loop().call_soon(_next_turn, first, rest, act, at_once)
        break


def _next_turn(first: T, rest: Iterator[T], act: Callable[[T], object], at_once: int) -> None:
    act(first)
    for each in islice(rest, at_once - 1):
        act(each)
    _go_on(rest, act, at_once)


def let_go(kept: dict[Any, Any] | deque[Any] | list[Any]) -> None:
    """Empty a container that is no longer used, in turns: freeing much at once takes long."""
    pop: Callable[[], object] = kept.popitem if isinstance(kept, dict) else kept.pop
    in_turns(range(len(kept)), lambda _: pop(), FREED_AT_ONCE)


def wake_in_turns(
    waiting: Sequence[asyncio.Future[T]], wake: Callable[[asyncio.Future[T]], None]
) -> None:
    """Call ``wake`` for each that still waits when its turn comes."""
    in_turns(waiting, lambda each: None if each.done() else wake(each))


class OneByOne:
    """Lets one after the other go on, in the order in which they came, no two in one pass.

    It keeps no loop alive: what waits holds the loop, and nothing else does.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False
        """Whether a pass is still to come for one that waits; those behind wait."""

    async def turn(self) -> None:
        """Wait for the caller's turn; what it does before it waits again is done alone."""
        if not self._is_taken:
            self._is_taken = True
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                self._wake_next()
                raise
        else:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            try:
                await woken
            except asyncio.CancelledError:
                if not woken.cancelled():  # else its turn is passed over when it comes
                    self._wake_next()
                raise
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            woken = self._waiting.popleft()
            if not woken.done():
                woken.set_result(None)
                return
        self._is_taken = False


class SharedAnswer(Generic[T]):
    """An answer that many wait for."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[T], None] = {}

    async def wait(self) -> T:
        """Wait for the answer and return it, or raise its error; call it before it is known."""
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            return await waiter
        finally:
            self._waiting.pop(waiter, None)

    def waiting(self) -> list[asyncio.Future[T]]:
        """Return the present waiters, in the order in which they came."""
        return list(self._waiting)

    def resolve(self, answer: T, among: Sequence[asyncio.Future[T]] | None = None) -> None:
        """Answer all waiters, or those ``among`` them that still wait."""
        waiter = self.waiting() if among is None else among
        wake_in_turns(waiter, lambda each: each.set_result(answer))

    def fail(self, error: Callable[[], Exception]) -> None:
        """Raise in each waiter an error of its own."""
        wake_in_turns(self.waiting(), lambda each: each.set_exception(error()))


class Waiters:
    """The waiters for a growing number, the smallest number first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        """Counts all waiters; it orders those with equal numbers."""
        self._given_up_count = 0

    def __len__(self) -> int:
        """Return how many are kept: the waiting ones, and at most as many that gave up."""
        return len(self._heap)

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    async def until(self, number: int) -> None:
        """Wait until ``on_reached`` gets ``number`` or more, or ``wake_all`` is called."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._heap, (number, self._count, woken))
        try:
            await woken
        finally:
            if woken.cancel() or woken.cancelled():
                self._give_up()

    def on_reached(self, number: int) -> None:
        """Wake the waiters for ``number`` or less."""
        heap = self._heap
        reached: list[asyncio.Future[None]] = []
        while heap and heap[0][0] <= number:
            reached.append(heapq.heappop(heap)[2])
        if reached:
            wake_in_turns(reached, lambda woken: woken.set_result(None))

    def wake_all(self, error: Callable[[], Exception] | None = None) -> None:
        """Wake all waiters, each with an error of its own if there is one."""
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
