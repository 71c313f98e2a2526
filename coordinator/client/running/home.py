"""The event loop in which a client lives, and its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.client.running.process import Process


class Home:
    """Where a client lives; made in its event loop."""

    __slots__ = ("loop", "process")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.process = Process()

    def at_once(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` now in the loop; from another thread ``soon``, before its next call."""
        try:
            is_here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_here = False
        if is_here:
            callback()
        else:
            self.soon(callback)

    def soon(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` in the loop, from any thread; not at all once that is closed.

        Nor in a forked child, whose copy of the loop nobody runs."""
        if not self.process.is_ours:
            return
        try:
            self.loop.call_soon_threadsafe(callback)
        except RuntimeError:
            pass  # nothing waits there any more
