"""Cancelling at every step: a loop in virtual time that counts callbacks and acts before the k-th.

A callback is the finest grain that an event loop has: whatever a program awaits, a cancellation
comes between two of them. So what holds for k = 1, 2, 3, … until the work is done holds wherever it
is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import Any

from coordinator.client import AsyncClient
from coordinator.errors import NoNodeError
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
)
from coordinator.state.locks.reads import LockReads
from tests.client.memory_cluster import MemoryCluster, cluster
from tests.client.virtual_time import VirtualLoop
from tests.met import Met

LEAVES_WITHIN_S = 1.0
NEAR_AND_FAR = (0, 3)
"""How long requests are on their way, in passes of the loop, in one round after the other."""
Attempt = Callable[[AsyncClient], AbstractAsyncContextManager[Any]]

ATTEMPTS: dict[str, Attempt] = {
    "Lock": lambda client: Lock(client, "a", timeout=60),
    "TreeLock": lambda client: TreeLock(client, "a", timeout=60),
    "MultiLock": lambda client: MultiLock(client, "b", "a", timeout=60),
    "Election": lambda client: Election(client, "a", timeout=60),
    "ReentrantLock": lambda client: ReentrantLock(client, "a", timeout=60),
    "Reader": lambda client: RWLock(client, "a", timeout=60).read(),
    "Writer": lambda client: RWLock(client, "a", timeout=60).write(),
    "Semaphore": lambda client: Semaphore(client, "a", 2, timeout=60),
    "Bounded": lambda client: Lock(client, "a", timeout=60, max_hold=60, lock_delay=1),
}
"""What every kind of lock has in common: it is entered, and left."""

APART = ("Lock", "TreeLock", "MultiLock", "Election")
"""Those whose ways to a grant and back are their own."""


class CountingLoop(VirtualLoop):
    """Runs ``on_step(k)`` before the k-th callback since ``count`` was called."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = 0
        self._on_step: Callable[[int], None] | None = None
        self.is_waiting = False
        self.cancelled_s: float | None = None
        """When the work was cancelled last, None if it was not."""
        self.met = Met()
        """What the work was at when it was cancelled."""
        self.locks: LockReads | None = None

    def standing(self) -> dict[tuple[str, int], bool]:
        """Return who stands in any queue, and whether it holds."""
        assert self.locks is not None, "run by run_counting"
        locks = self.locks
        every = [each for one in locks.directories() for each in locks.contenders(one)]
        return {(each.path, each.czxid): each.is_holder for each in every}

    def note_cancellation(self, before: dict[tuple[str, int], bool]) -> None:
        """Count what is cancelled: who stands nowhere, waits or holds beside those of before."""
        mine = [holds for place, holds in self.standing().items() if place not in before]
        self.met["cancelled"] += 1
        self.met["cancelled as it holds" if any(mine) else "cancelled as it waits"] += bool(mine)
        self.met["cancelled as it stands nowhere"] += not mine

    def count(self, on_step: Callable[[int], None] | None, *, is_waiting: bool = False) -> None:
        """Count anew, at once or when ``is_waiting`` is cleared; None: do not count any more."""
        self._steps, self._on_step, self.is_waiting = 0, on_step, is_waiting

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._step, callback, args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._step, callback, args, context=context)

    def _step(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if self._on_step is not None and not self.is_waiting:
            self._steps += 1
            self._on_step(self._steps)
        callback(*args)


def run_counting(
    scenario: Callable[[MemoryCluster], Coroutine[Any, Any, None]], ways: Sequence[int] = (0,)
) -> Met:
    """Run ``scenario`` with a member in memory, on a loop that counts, in a round for each way.

    On a way of some passes there are steps while a request is under way. Return what all met.
    """
    met = Met()

    async def main(way_passes: int) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        async with cluster(way_passes) as world:
            loop.locks = world.member._replica.machine.locks
            await scenario(world)
        met.update(loop.met)

    for way_passes in ways:
        with asyncio.Runner(loop_factory=CountingLoop) as runner:
            runner.run(main(way_passes))
    return met


async def cancelled_at(
    work: Coroutine[Any, Any, Any], *steps: int, counts_at_once: bool = True
) -> asyncio.Task[Any]:
    """Run ``work`` to its end, cancelled before these of its steps; return its task.

    Steps are counted from its first one, or from where it calls ``begin_to_count``.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop), "run by run_counting"
    task = asyncio.create_task(work)
    loop.cancelled_s = None
    before = loop.standing()

    def on_step(step: int) -> None:
        if step in steps and not task.done():
            loop.note_cancellation(before)
            loop.met["cancelled again"] += loop.cancelled_s is not None
            task.cancel()
            loop.cancelled_s = loop.time()

    loop.count(on_step, is_waiting=not counts_at_once)
    await asyncio.wait({task})
    loop.count(None)
    return task


async def a_second_after_the_cancellation() -> None:
    """Wait until then; fails if it has passed already."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop), "run by run_counting"
    since = loop.time() if loop.cancelled_s is None else loop.cancelled_s
    assert loop.time() <= since + LEAVES_WITHIN_S, "it took longer to give up"
    await asyncio.sleep(since + LEAVES_WITHIN_S - loop.time())


def met_now() -> Met:
    """Return what was met so far."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop), "run by run_counting"
    return loop.met


def begin_to_count() -> None:
    """The step after this one is the first."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop), "run by run_counting"
    loop.is_waiting = False


async def standing(client: AsyncClient) -> dict[str, list[str]]:
    """Return who stands in which queue, whoever made it and however."""
    found: dict[str, list[str]] = {}
    for root in ("/locks", "/elections"):
        try:
            directories = (await client.children(root)).names
        except NoNodeError:
            continue
        for name in directories:
            contenders = (await client.children(f"{root}/{name}")).names
            if contenders:
                found[f"{root}/{name}"] = list(contenders)
    return found
