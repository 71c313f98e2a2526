"""The callbacks at the end of a hold: once each, whichever thread registered them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from coordinator.client import Session


class CallsBack:
    """Base of a hold, which sets these."""

    _guard: threading.Lock
    _session: Session
    _loop: asyncio.AbstractEventLoop
    _grant_id: str
    _callbacks: list[Callable[[], None]]
    _ends: list[Callable[[], None]]
    _reason: str
    _is_released: bool

    def remaining_safe_ms(self) -> int:
        """Return for how long nobody else can certainly be granted the lock, 0 when unknown."""
        raise NotImplementedError

    def on_lost(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback()`` once when it is lost; returns how to stop that.

        In a forked child, which does not hold, at once."""
        if not self._session.home.process.is_ours:
            callback()
            return lambda: None
        with self._guard:
            self._callbacks.append(callback)
        if self._reason or (not self._is_released and self.remaining_safe_ms() == 0):
            try:
                self._loop.call_soon_threadsafe(self._call_back)
            except RuntimeError:  # the loop is closed: only this thread can call it
                self._call_back()

        def stop() -> None:
            with self._guard:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)

        return stop

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` when it is lost or given back, in any thread; it must not block."""
        with self._guard:
            self._ends.append(callback)
        if self._is_released or self._reason:
            self._call_ends()

    def _call_ends(self) -> None:
        with self._guard:
            ends, self._ends = self._ends, []
        for each in ends:
            each()

    def _call_back(self) -> None:
        self._call_ends()
        with self._guard:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except (Exception, asyncio.CancelledError) as error:
                # One callback's mistake keeps neither the others nor the session from going on.
                self._loop.call_exception_handler(
                    {"message": f"a callback of grant {self._grant_id} failed", "exception": error}
                )
