"""The run loop of a member: a pass runs at once when it is woken, at the latest when it is due.

At once is at the end of the event loop's present pass, for all that came in it (``pass_end``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.raft.pass_end import AtPassEnd

PATIENT_MS = 3


class RunLoop:
    """The run loop of one member.

    Args:
        run: one pass; must not raise.
    """

    def __init__(self, run: Callable[[], None], now_ms: Callable[[], int]) -> None:
        self._run = run
        self._now_ms = now_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self._next = AtPassEnd(self._begin)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._soon: asyncio.TimerHandle | None = None
        self._due_ms = 0

    @property
    def is_woken(self) -> bool:
        """Whether a pass runs as soon as the loop can."""
        return self._next.is_left

    def wake(self) -> None:
        """Run a pass as soon as the loop can; one pass serves all calls until then."""
        self._next.leave()

    def wake_soon(self) -> None:
        """Run a pass in ``PATIENT_MS`` at the latest; what waits for it may share one before."""
        if not self.is_woken and self._soon is None:
            self._soon = self._running_loop().call_later(PATIENT_MS / 1000, self._on_soon)

    def set_due(self, due_ms: int) -> None:
        """Run a pass at ``due_ms`` at the latest; earlier calls do not count any more."""
        self._due_ms = due_ms
        loop = self._running_loop()
        at = loop.time() + max(1, due_ms - self._now_ms()) / 1000
        if self._timer is not None:
            if self._timer_at <= at:
                return  # It comes too early and is set again then: cheaper than cancelling it.
            self._timer.cancel()
        self._timer, self._timer_at = loop.call_at(at, self._on_timer), at

    def cancel(self) -> None:
        """Run no more passes, unless woken again."""
        for handle in (self._timer, self._soon):
            if handle is not None:
                handle.cancel()
        self._next.take_back()
        self._timer = self._soon = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the member's loop; asyncio asks the system for the process each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _begin(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._run()

    def _on_soon(self) -> None:
        self._soon = None
        self.wake()

    def _on_timer(self) -> None:
        self._timer = None
        if self._now_ms() < self._due_ms:
            self.set_due(self._due_ms)
        else:
            self.wake()
