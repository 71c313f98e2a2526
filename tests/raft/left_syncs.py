"""Syncs that take their time and are left to themselves, as those of the kernel are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable


class LeftSync:
    """One of them, under way for ``seconds``.

    ``met`` counts how often it was not done yet, for who looked at once, and for who waited."""

    def __init__(self, call: Callable[[], None], seconds: float, met: Counter[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._met = met
        self._call = call
        self._ends = self._loop.time() + seconds
        self._is_done = False
        self._error: Exception | None = None

    def wait(self, seconds: float) -> bool:
        """Whether it is done within ``seconds``, which pass at once; raises why it failed."""
        if not self._is_done:
            if self._loop.time() + seconds < self._ends:
                self._met["sync_left" if seconds == 0 else "sync_not_awaited"] += 1
                return False
            self._is_done = True
            try:
                self._call()
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return True

    async def done(self) -> None:
        """Return when it is done, or raise why it failed."""
        if not self._is_done:
            await asyncio.sleep(max(0.0, self._ends - self._loop.time()))
        self.wait(1.0)
