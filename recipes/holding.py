"""Holding for the length of a ``with``: what every lock-like recipe shares.

1. The body runs only with a grant; without one the ``with`` raises (S068).
2. The grant is released on every way out, cancellation included, and the body's own exception is
   never hidden: what fails on the way out is added to it as a note (S149).
3. asyncio: when the grant is lost the task in the body is cancelled, and the ``async with`` raises
   LockLostError instead, the way ``asyncio.timeout`` raises TimeoutError. A sync body learns it
   from ``grant.check()`` or ``grant.on_lost``, at the latest when it leaves the ``with``. With
   ``when_unsure="continue"`` neither happens: only ``grant.is_unsure`` tells (S041).
4. One object is one contender: taking it twice would wait for itself, so it raises (S082).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic

from coordinator.client.facing import ClientT
from coordinator.errors import CoordinatorError, DeadlockError, LockTimeoutError
from recipes.grant import Grant
from recipes.terms import WhenUnsure


class Holding(Generic[ClientT]):
    """One contender's way to a grant and back; each recipe object has one."""

    def __init__(
        self,
        what: str,
        obtain: Callable[[int | None], Coroutine[Any, Any, Grant[ClientT]]],
        *,
        when_unsure: WhenUnsure,
    ) -> None:
        self._what = what
        self._obtain = obtain
        self._is_to_stop = when_unsure == "stop"
        self._is_taken = False
        self._grant: Grant[ClientT] | None = None
        self._interruption: _Interruption | None = None

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What is held, None when nothing is; a lost grant is still here until it is released."""
        grant = self._grant
        return None if grant is None or grant.is_released else grant

    async def acquire(self, wait_ms: int | None) -> Grant[ClientT]:
        if self._grant is not None and self._grant.is_lost:
            await self._grant.give_back()  # released, or lost for ever: a new contender may begin
            self._grant, self._is_taken = None, False
        if self._is_taken:
            held = f"holds grant {self._grant.grant_id}" if self._grant else "is being acquired"
            raise DeadlockError(
                f"{self._what}: expected a free object, but it {held} already and is not "
                f"reentrant: it would wait for itself. Use one object for each contender."
            )
        self._is_taken = True
        try:
            self._grant = await self._obtain(wait_ms)
        except BaseException:
            self._is_taken = False
            raise
        return self._grant

    async def try_acquire(self, wait_ms: int | None) -> Grant[ClientT] | None:
        try:
            return await self.acquire(wait_ms)
        except LockTimeoutError:
            return None

    async def release(self) -> bool:
        """Give back what is held; False when nothing was held any more."""
        grant = self.grant
        return False if grant is None else await grant.give_back()

    # --- the two kinds of ``with``

    def watch_over_task(self, grant: Grant[ClientT]) -> None:
        """From now on, cancel the current task when ``grant`` is lost."""
        if self._is_to_stop:
            self._interruption = _Interruption(grant)

    async def leave(self, error: BaseException | None) -> None:
        """Leave the body: release, and raise only what the body did not raise itself."""
        interruption, self._interruption = self._interruption, None
        is_ours = interruption is not None and interruption.end(error)
        grant = self._grant
        assert grant is not None, "left a body that was not entered"
        # Looked at before the release, whose own end is not a loss.
        loss = grant.loss() if self._is_to_stop and self._is_lost_now(grant) else None
        await self._release_on_the_way_out(grant, error)
        if is_ours:
            raise grant.loss() if loss is None else loss from error
        if error is None and loss is not None:
            raise loss

    def _is_lost_now(self, grant: Grant[ClientT]) -> bool:
        return not grant.is_released and grant.is_lost

    async def _release_on_the_way_out(
        self, grant: Grant[ClientT], error: BaseException | None
    ) -> None:
        try:
            await grant.give_back()
        except CoordinatorError as failure:
            grant.keep_releasing()
            if error is None:
                raise
            error.add_note(f"and {self._what} could not be released yet: {failure}")


class _Interruption:
    """Cancels the task that made it when a grant is lost; modelled on asyncio.Timeout."""

    def __init__(self, grant: Grant[Any]) -> None:
        task = asyncio.current_task()
        assert task is not None, "async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._has_fired = False
        self._stop = grant.on_lost(self._fire)

    def _fire(self) -> None:
        self._has_fired = True
        self._task.cancel()

    def end(self, error: BaseException | None) -> bool:
        """Stop watching; return whether ``error`` is our cancellation and nobody else's."""
        self._stop()
        if not self._has_fired:
            return False
        is_only_ours = self._task.uncancel() <= self._cancelling
        return is_only_ours and isinstance(error, asyncio.CancelledError)
