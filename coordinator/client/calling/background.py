"""Work that outlives the call that began it, such as giving back what a cancelled call may hold.

Every such task has this owner: it is remembered until it is done, awaited for a bounded time when
the client closes, and then cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from coordinator.client.calling.deadline import without_deadline

T = TypeVar("T")


class BackgroundTasks:
    """The background tasks of one client."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work`` in a task of its own, which ``drain`` waits for."""
        loop, context = asyncio.get_running_loop(), without_deadline()
        task = loop.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    async def drain(self, timeout_ms: int) -> None:
        """Let what is under way end, for at most ``timeout_ms``; then cancel the rest."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=timeout_ms / 1000)
        rest = list(self._tasks)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen by its starter, or of no use: the session's end clears up
