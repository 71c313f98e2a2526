"""The owner of a member's background tasks: starts them, stops them, reports their failure.

1. When a task ends with anything but success or cancellation, ``on_failure`` is called once; the
   member then stops loudly.
2. After ``stop`` nothing runs and nothing new starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Tasks:
    """Background work of one member."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[Any]] = set()
        self._is_stopped = False

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Run ``work`` until it ends or the member stops."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        if self._is_stopped:
            task.cancel()
        return task

    async def stop(self) -> None:
        """Cancel everything and wait until it has ended."""
        self._is_stopped = True
        current = asyncio.current_task()
        while running := [task for task in self._running if task is not current]:
            for task in running:
                task.cancel()
            await asyncio.wait(running)  # gather lets no pass of the loop go by if all have ended

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)


def let_go(ended: asyncio.Task[Any]) -> None:
    """Break the reference cycle of a task that failed or was cancelled within a deadline.

    The task holds its error, the error its frames, one frame the deadline, and the deadline the
    task. A long wait may be frozen by then, so the collector would never free it (``garbage``).
    """
    try:
        ended.result()
    except BaseException as error:  # a cancellation, too: it is raised once and then forgotten
        error.__traceback__ = error.__context__ = None
