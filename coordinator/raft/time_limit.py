"""One time limit of many callers: those who begin within ``GRAIN_S`` share a timer.

``asyncio.timeout`` sets a timer for each, which is a quarter of what a read costs. Nobody is cut
off early, and nobody later than ``GRAIN_S`` after the time, except that many are cut off in turns.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

from coordinator.waiting import in_turns

GRAIN_S = 0.02


class _Batch:
    """Those who share a timer."""

    __slots__ = ("limited", "timer", "until")

    def __init__(self, until: float) -> None:
        self.until = until
        """Who begins before this belongs to it."""
        self.limited: dict[Limited, None] = {}
        self.timer: asyncio.TimerHandle | None = None

    def end(self) -> None:
        """Cut off who is still there, in their order, so many in a pass that others can work."""
        in_turns(list(self.limited), Limited.cut)


class TimeLimit:
    """``with limit():`` raises TimeoutError inside when ``seconds`` have passed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._batch = _Batch(0.0)

    def __call__(self) -> Limited:
        """Return the limit of one caller, from now on."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        now = loop.time()
        batch = self._batch
        if now >= batch.until or batch.timer is None:
            batch = self._batch = _Batch(now + GRAIN_S)
            batch.timer = loop.call_at(batch.until + self._seconds, batch.end)
        return Limited(batch, loop)


class Limited:
    """One caller, within its ``with``."""

    __slots__ = ("_batch", "_cancelling", "_is_over", "_loop", "_task")

    def __init__(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> None:
        self._batch = batch
        self._loop = loop
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._is_over = False

    def __enter__(self) -> None:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None, "a limit bounds what a task does"
        self._cancelling = task.cancelling()
        self._batch.limited[self] = None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        batch = self._batch
        batch.limited.pop(self, None)
        if not batch.limited and batch.timer is not None:
            batch.timer.cancel()  # a lone caller leaves nothing behind that wakes the member
            batch.timer = None
        if self._is_over and task is not None:
            is_ours = task.uncancel() <= self._cancelling
            if is_ours and kind is asyncio.CancelledError:
                raise TimeoutError from error

    def cut(self) -> None:
        """End what goes on inside: its time is over."""
        if self._task is not None and not self._is_over:
            self._is_over = True
            self._task.cancel()
