"""The one session of a client: opened at the first need, anew when the last one was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from coordinator.client.chores import Chores
from coordinator.client.session import Session
from coordinator.errors import UnavailableError


class CurrentSession:
    """Shared by all who need it; ``open_one`` opens another."""

    def __init__(self, chores: Chores, open_one: Callable[[], Coroutine[Any, Any, Session]]):
        self._chores = chores
        self._open_one = open_one
        self._opening: asyncio.Task[Session] | None = None

    async def get(self, timeout_s: float | None) -> Session:
        """Return the session, opening it if need be, within ``timeout_s``."""
        opening = self._opening
        if opening is None or _is_over(opening):
            # A task of its own: all who wait share it, and one who gives up leaves it alone.
            opening = self._opening = self._chores.start(self._open_one(), "open a session")
        if not opening.done():
            await asyncio.wait({opening}, timeout=timeout_s)
        if not opening.done():
            raise UnavailableError(f"no session could be opened within {timeout_s} s")
        return opening.result()

    async def close(self, limit_ms: int) -> None:
        """Close the session, if there is one, within ``limit_ms``."""
        opening = self._opening
        if opening is not None and opening.done() and not _has_failed(opening):
            await opening.result().close(limit_ms)


def _is_over(opening: asyncio.Task[Session]) -> bool:
    return opening.done() and (_has_failed(opening) or opening.result().is_lost)


def _has_failed(opening: asyncio.Task[Session]) -> bool:
    return opening.cancelled() or opening.exception() is not None
