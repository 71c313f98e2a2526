"""The bodies of ``with`` and ``async with``, and the cancellation of one whose grant is lost."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from coordinator.errors import LockLostError
from coordinator.recipes.grant import Grant


class Interruption:
    """Cancels the task that made it when a grant is lost; modelled on asyncio.Timeout."""

    def __init__(self, grant: Grant[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None, "async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._lost: list[Grant[Any]] = []
        """For which losses the task was cancelled; several if it acquired another grant since."""
        self._stop = grant.hold.on_lost(partial(self._fire, grant))

    def turn_to(self, grant: Grant[Any]) -> None:
        """Watch ``grant`` from now on, and the one before no more."""
        self._stop()
        self._stop = grant.hold.on_lost(partial(self._fire, grant))

    def _fire(self, grant: Grant[Any]) -> None:
        self._lost.append(grant)
        self._task.cancel()

    def loss(self) -> LockLostError:
        """Return why the task was cancelled last."""
        return self._lost[-1].loss()

    def end(self, error: BaseException | None) -> bool:
        """Stop watching; return whether ``error`` is our cancellation and no other."""
        self._stop()
        self._stop = _stopped  # the other one knows this object: a cycle for the collector
        if not self._lost:
            return False
        for _ in self._lost:
            cancelling = self._task.uncancel()
        return cancelling <= self._cancelling and isinstance(error, asyncio.CancelledError)


def _stopped() -> None:
    """Nothing is watched any more."""


class EnteredBody:
    """A body under way: who entered it, the grant it leaves, and what stops it if that is lost."""

    __slots__ = ("caller", "grant", "interruption", "loss")

    def __init__(self, caller: str, grant: Grant[Any]) -> None:
        self.caller = caller
        self.grant = grant
        self.interruption: Interruption | None = None
        self.loss: LockLostError | None = None
        """Why the grant is lost, if its caller has acquired another one since."""


def grant_in(held: Any) -> Grant[Any]:
    """Return the grant by which ``held`` is released: grants of several locks share one hold."""
    grant: Grant[Any] = held[0] if isinstance(held, tuple) else held
    return grant
