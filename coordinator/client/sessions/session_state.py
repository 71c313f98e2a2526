"""The states of a session, and who is notified of them.

``coordinator.client.sessions.session`` draws the ways between the states.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from enum import StrEnum


class SessionState(StrEnum):
    """The state of a session as its client knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


class StateListeners:
    """The callbacks of one session, added and taken away in any thread, called in ``loop``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[SessionState], None]] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._callbacks)

    def add(self, callback: Callable[[SessionState], None]) -> Callable[[], None]:
        """Call ``callback(state)`` at each change; returns how to stop that."""
        number = next(self._numbers)
        self._callbacks[number] = callback

        def stop() -> None:
            self._callbacks.pop(number, None)

        return stop

    def notify(self, state: SessionState) -> None:
        """Call all of them."""
        for callback in list(self._callbacks.values()):
            try:
                callback(state)
            except (Exception, asyncio.CancelledError) as error:
                # One holder's mistake must not keep the others uninformed.
                self._loop.call_exception_handler(
                    {"message": "a callback of a session failed", "exception": error}
                )
