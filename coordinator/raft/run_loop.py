"""The run loop of a member: a pass runs at once when it is woken, at the latest when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RunLoop:
    """The run loop of one member; ``run`` is one pass and must not raise."""

    def __init__(self, run: Callable[[], None], now_ms: Callable[[], int]) -> None:
        self._run = run
        self._now_ms = now_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0

    @property
    def is_woken(self) -> bool:
        """Whether a pass runs as soon as the loop can."""
        return self._next is not None

    def wake(self) -> None:
        """Run a pass as soon as the loop can; one pass serves all calls until then."""
        if self._next is None:
            self._next = self._running_loop().call_soon(self._begin)

    def set_due(self, due_ms: int) -> None:
        """Run a pass at ``due_ms`` at the latest; earlier calls do not count any more."""
        self._due_ms = due_ms
        loop = self._running_loop()
        at = loop.time() + max(1, due_ms - self._now_ms()) / 1000
        if self._timer is not None:
            if self._timer.when() <= at:
                return  # It comes too early and is set again then: cheaper than cancelling it.
            self._timer.cancel()
        self._timer = loop.call_at(at, self._on_timer)

    def cancel(self) -> None:
        """Run no more passes, unless woken again."""
        for handle in (self._next, self._timer):
            if handle is not None:
                handle.cancel()
        self._next = self._timer = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the member's loop; asyncio asks the system for the process each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _begin(self) -> None:
        self._next = None
        self._run()

    def _on_timer(self) -> None:
        self._timer = None
        if self._now_ms() < self._due_ms:
            self.set_due(self._due_ms)
        else:
            self.wake()
