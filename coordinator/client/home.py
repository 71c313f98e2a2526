"""The event loop of a client, and how a call that began in another thread comes into it.

A call of a sync client over the stream begins in the thread that makes it: its coroutine sends and
waits there, and does not suspend. What an event loop alone can do (a task, a timer, a callback) it
does after ``await home.enter()``: from there on it runs in the loop, to its end, and the thread
waits for it. So one coroutine serves an asyncio client, which is in its loop from the beginning,
and threads. ``LoopThread.begin_here`` is what runs it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator

from coordinator.client.process import Process


class _Entering:
    """What a coroutine yields to the thread that runs it: go on in the loop."""

    __slots__ = ()

    def __await__(self) -> Generator[_Entering, None, None]:
        yield self


_ENTERING = _Entering()


class Home:
    """Where a client lives; made in its event loop."""

    __slots__ = ("_thread_id", "loop", "process")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self.process = Process()

    @property
    def is_here(self) -> bool:
        """Whether this thread runs the loop."""
        return threading.get_ident() == self._thread_id

    async def enter(self) -> None:
        """Go on in the loop; does nothing there.

        Raises:
            ClientClosedError: the loop has ended.
        """
        if not self.is_here:
            await _ENTERING

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in the loop, from any thread; not at all once that is closed.

        Nor in a forked child, whose copy of the loop nobody runs."""
        if not self.process.is_ours:
            return
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # nothing waits there any more
