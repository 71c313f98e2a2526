"""The run loop of a member: a pass runs at once when it is woken, at the latest when it is due.

At once is at the end of the event loop's present pass, for all that came in it (``event_loop``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.event_loop import before_wait, pass_end

PATIENT_MS = 3
RUN_EVERY_S = 1.0
"""Some of what a pass looks at is due by the clock, and says so to nobody."""
NEAR_S = 0.3
"""A timer that comes as soon as this is set again by who is awake already: longer than from one
heartbeat to the next, shorter than an election timeout."""


class RunLoop:
    """The run loop of one member.

    Args:
        run: one pass; must not raise.
        beat: does what is due by the clock, where that takes no pass; False: it does. As ``run``.
    """

    def __init__(
        self, run: Callable[[], None], beat: Callable[[], bool], now_ms: Callable[[], int]
    ) -> None:
        self._run = run
        self._beat = beat
        self._now_ms = now_ms
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_woken = False
        """Whether a pass runs as soon as the loop can."""
        self._at_end: Callable[[Callable[[], None]], object] | None = None
        self._leave: Callable[[Callable[[], None]], object] | None = None
        self.left: Callable[[], None] | None = None
        """What was left to when there is nothing else to do, and may be taken back."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._soon: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._ran_at = 0.0

    def wake(self) -> None:
        """Run a pass as soon as the loop can; one pass serves all calls until then."""
        if not self.is_woken:
            self.is_woken = True
            if self._at_end is None:
                self._at_end = pass_end(self._running_loop())
            self._at_end(self._begin)

    def wake_soon(self) -> None:
        """Run a pass in ``PATIENT_MS`` at the latest; what waits for it may share one before."""
        if not self.is_woken and self._soon is None:
            self._soon = self._running_loop().call_later(PATIENT_MS / 1000, self._on_soon)

    def leave(self, call: Callable[[], None]) -> None:
        """Run ``call`` when the member has nothing else to do; under load that may be late."""
        self.left = call
        if self._leave is None:
            self._leave = before_wait(self._running_loop())
        self._leave(self._on_late)

    def postpone(self, due_ms: Callable[[], int]) -> None:
        """As ``set_due`` if the timer is near: a member that others wake is not woken by that, too.

        Or run a pass, if there was none for ``RUN_EVERY_S``."""
        now = (self._loop or self._running_loop()).time()
        is_near = self._timer is None or self._timer_at - now < NEAR_S
        is_long = now - self._ran_at >= RUN_EVERY_S
        if not is_near and not is_long:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.wake() if is_long else self.set_due(due_ms())

    def set_due(self, due_ms: int) -> None:
        """Run a pass at ``due_ms`` at the latest; earlier calls do not count any more."""
        self._due_ms = due_ms
        loop = self._loop or self._running_loop()
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
        self.is_woken = False
        self._timer = self._soon = None
        self.left = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """Return the member's loop; asyncio asks the system for the process each time."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _begin(self) -> None:
        if not self.is_woken:
            return  # cancelled meanwhile
        self.is_woken = False
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self._ran_at = self._running_loop().time()
        self._run()

    def _on_late(self) -> None:
        left, self.left = self.left, None
        if left is not None:
            left()

    def _on_soon(self) -> None:
        self._soon = None
        self.wake()

    def _on_timer(self) -> None:
        self._timer = None
        if self._now_ms() < self._due_ms:
            self.set_due(self._due_ms)
        else:
            is_long = self._running_loop().time() - self._ran_at >= RUN_EVERY_S
            if self.is_woken or is_long or not self._beat():
                self.wake()
