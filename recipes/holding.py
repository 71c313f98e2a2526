"""Holding for the length of a ``with``: what every lock-like recipe shares.

1. The body runs only with a grant; without one the ``with`` raises.
2. The grant is released on every way out, cancellation included, and the body's own exception is
   never hidden: what fails on the way out is added to it as a note.
3. asyncio: when the grant is lost the task in the body is cancelled, and the ``async with`` raises
   LockLostError instead, the way ``asyncio.timeout`` raises TimeoutError. A sync body learns it
   from ``grant.check()`` or ``grant.on_lost``, at the latest when it leaves the ``with``. A body
   that has taken its object anew is told of the loss of what it has now. With
   ``when_unsure="continue"`` nothing of this happens: only ``grant.is_unsure`` tells.
4. One object is one contender: taking it twice would wait for itself, so it raises. An
   object whose body is entered belongs to who entered it until the body is left, even if the grant
   is over by then: what a body leaves is the grant that it entered with, and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic

from coordinator.client.locks.owner import current_owner
from coordinator.client.sync_and_async import ClientT
from coordinator.errors import CoordinatorError, DeadlockError, LockLostError, LockTimeoutError
from recipes.grant import Grant
from recipes.options import WhenUnsure

_OUTLIVED_MAX = 100


@dataclass(slots=True)
class _Entered(Generic[ClientT]):
    """A body under way: who entered it, the grant it leaves, and what stops it if that is lost."""

    caller: str
    grant: Grant[ClientT]
    interruption: _Interruption | None = None
    loss: LockLostError | None = None
    """Why the grant is lost, if its caller has taken another one since."""


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
        self._caller = ""
        """Who took ``_grant``."""
        self._entered: list[_Entered[ClientT]] = []
        """The bodies of one caller, each within the one before; only a lost grant allows two."""
        self._outlived: dict[str, None] = {}
        """Who lost a grant and did not give it back before somebody else took this object."""

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What is held, None when nothing is; a lost grant is still here until it is released."""
        grant = self._grant
        return None if grant is None or grant.is_released else grant

    async def acquire(self, wait_ms: int | None) -> Grant[ClientT]:
        grant = await self._take(wait_ms)
        if self._entered:  # a body takes anew what it lost or gave back, and leaves that
            entered = self._entered[-1]
            entered.grant, entered.loss = grant, None
            if entered.interruption is not None:
                entered.interruption.turn_to(grant)
        return grant

    async def try_acquire(self, wait_ms: int | None) -> Grant[ClientT] | None:
        try:
            return await self.acquire(wait_ms)
        except LockTimeoutError:
            return None

    async def undo_acquire(self, grant: Grant[ClientT] | None) -> None:
        """Give back what nobody was told of: its caller was interrupted as it was returned."""
        if grant is not None:
            await self._release_on_the_way_out(grant, None)

    async def release(self) -> bool:
        """Give back what is held; False when nothing was held any more."""
        grant = self.grant
        if grant is None or current_owner() in self._outlived:
            return False  # or it is somebody else's by now
        return await grant.give_back()

    # --- the two kinds of ``with``

    async def enter(self, wait_ms: int | None) -> Grant[ClientT]:
        """Take the grant and begin a body over it."""
        grant = await self._take(wait_ms)
        self._entered.append(_Entered(self._caller, grant))
        return grant

    async def undo_enter(self, grant: Grant[ClientT]) -> None:
        """End a body that never ran: its caller was interrupted as ``enter`` returned ``grant``."""
        assert self._entered[-1].grant is grant, "undone before another body is entered"
        self._entered.pop()
        await self.undo_acquire(grant)

    def watch_over_task(self) -> None:
        """From now on, cancel the current task when the grant of its body is lost."""
        if self._is_to_stop:
            entered = self._entered[-1]
            entered.interruption = _Interruption(entered.grant)

    async def leave(self, error: BaseException | None) -> None:
        """Leave the body: release, and raise only what the body did not raise itself."""
        assert self._entered, "left a body that was not entered"
        entered = self._entered.pop()
        grant, interruption = entered.grant, entered.interruption
        is_ours = interruption is not None and interruption.end(error)
        # Looked at before the release, whose own end is not a loss.
        is_lost = not grant.is_released and grant.is_lost
        loss = (grant.loss() if is_lost else entered.loss) if self._is_to_stop else None
        await self._release_on_the_way_out(grant, error)
        if interruption is not None and is_ours:
            raise interruption.loss() if loss is None else loss from error
        if error is None and loss is not None:
            raise loss

    # --- taking

    async def _take(self, wait_ms: int | None) -> Grant[ClientT]:
        caller = current_owner()
        self._refuse_others(caller)
        if self._grant is not None and self._grant.is_lost:
            over, self._grant, self._is_taken = self._grant, None, False
            if not over.is_released:
                self._remember_loss(over, caller)
            await over.give_back()  # released, or lost for ever: a new contender may begin
        if self._is_taken:
            raise self._in_use(
                f"holds grant {self._grant.grant_id} already"
                if self._grant
                else "is being acquired already"
            )
        self._is_taken = True
        try:
            grant = await self._obtain(wait_ms)
        except BaseException:
            self._is_taken = False
            raise
        self._grant, self._caller = grant, caller
        self._outlived.pop(caller, None)
        return grant

    def _refuse_others(self, caller: str) -> None:
        if self._entered and self._entered[-1].caller != caller:
            entered = self._entered[-1]
            raise self._in_use(
                f"is in the hands of {entered.caller}, whose body runs over {entered.grant!r}"
            )

    def _in_use(self, found: str) -> DeadlockError:
        return DeadlockError(
            f"{self._what}: expected a free object, but it {found} and is not reentrant: it would "
            f"wait for itself. Use one object for each contender."
        )

    def _remember_loss(self, over: Grant[ClientT], successor: str) -> None:
        """Remember for who took ``over`` that it was lost, although it is given back by now."""
        if self._entered and self._entered[-1].grant is over:
            self._entered[-1].loss = over.loss()
        if self._caller != successor:
            self._outlived[self._caller] = None
        while len(self._outlived) > _OUTLIVED_MAX:
            del self._outlived[next(iter(self._outlived))]

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
        self._lost: list[Grant[Any]] = []
        """For which grants the task was cancelled; more than one if it took another one since."""
        self._stop = grant.on_lost(partial(self._fire, grant))

    def turn_to(self, grant: Grant[Any]) -> None:
        """Watch over ``grant`` from now on, and no more over the one before."""
        self._stop()
        self._stop = grant.on_lost(partial(self._fire, grant))

    def _fire(self, grant: Grant[Any]) -> None:
        self._lost.append(grant)
        self._task.cancel()

    def loss(self) -> LockLostError:
        """Return why the task was cancelled last."""
        return self._lost[-1].loss()

    def end(self, error: BaseException | None) -> bool:
        """Stop watching; return whether ``error`` is our cancellation and nobody else's."""
        self._stop()
        if not self._lost:
            return False
        for _ in self._lost:
            cancelling = self._task.uncancel()
        return cancelling <= self._cancelling and isinstance(error, asyncio.CancelledError)
