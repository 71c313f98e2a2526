"""The ``with`` and ``async with`` of every lock, and what one object holds at a time.

1. The body runs only with a grant; without one the ``with`` raises.
2. The grant is released on every way out, cancellation included, and the body's own exception is
   never hidden: what fails on the way out is added to it as a note.
3. asyncio: when the grant is lost the task in the body is cancelled, and the ``async with`` raises
   LockLostError instead, the way ``asyncio.timeout`` raises TimeoutError. A sync body learns it
   from ``grant.check()`` or ``grant.on_lost``, at the latest when it leaves the ``with``. A body
   that has acquired its object again is interrupted by the loss of what it holds now. With
   ``when_unsure="continue"`` nothing of this happens: only ``grant.is_unsure`` says so.
4. One object is one contender: acquiring it twice would wait for itself, so it raises. An object
   whose body is entered belongs to its caller until the body is left, even if the grant is over
   by then: a body leaves the grant that it entered with, and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from coordinator.client import AsyncClient, Client, ClientT, expect_client
from coordinator.client.locks import Contending, current_owner
from coordinator.errors import CoordinatorError, DeadlockError, LockLostError, LockTimeoutError
from coordinator.recipes.base.ended_by_with import ended_here
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import WhenUnsure

HeldT = TypeVar("HeldT")
"""What the caller gets: a grant, or of several locks a tuple of grants over one hold."""
HeldT_co = TypeVar("HeldT_co", covariant=True)
_OUTLIVED_MAX = 100


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
        self._stop = lambda: None  # the other one knows this object: a cycle for the collector
        if not self._lost:
            return False
        for _ in self._lost:
            cancelling = self._task.uncancel()
        return cancelling <= self._cancelling and isinstance(error, asyncio.CancelledError)


@dataclass(slots=True, eq=False)
class EnteredBody:
    """A body under way: who entered it, the grant it leaves, and what stops it if that is lost."""

    caller: str
    grant: Grant[Any]
    interruption: Interruption | None = None
    loss: LockLostError | None = None
    """Why the grant is lost, if its caller has acquired another one since."""


def grant_in(held: Any) -> Grant[Any]:
    """Return the grant by which ``held`` is released: grants of several locks share one hold."""
    grant: Grant[Any] = held[0] if isinstance(held, tuple) else held
    return grant


class Holding(Generic[HeldT]):
    """What one object holds: acquired by ``obtain``, maybe for a body, and given back once."""

    def __init__(
        self,
        what: str,
        obtain: Callable[[int | None], Coroutine[Any, Any, HeldT]],
        *,
        when_unsure: WhenUnsure,
    ) -> None:
        self._what = what
        self._obtain = obtain
        self._is_to_stop = when_unsure == "stop"
        """Held for a moment, by the caller that takes this object."""
        self._is_taken = False
        self._held: HeldT | None = None
        self._grant: Grant[Any] | None = None
        self._caller = ""
        """Who acquired ``_grant``."""
        self._entered: list[EnteredBody] = []
        """The bodies of one caller, each within the one before; only a lost grant allows two."""
        self._outlived: dict[str, None] = {}
        """Who lost a grant and did not give it back before another caller acquired this object."""

    @property
    def held(self) -> HeldT | None:
        """What is held, None when nothing is; a lost grant is still here until it is released."""
        return None if self._grant is None or self._grant.is_released else self._held

    async def acquire(self, wait_ms: int | None) -> HeldT:
        """Wait for the grant; raises what ``obtain`` raises, DeadlockError when it is in use."""
        held = await self._take(wait_ms, is_body=False)
        if self._entered:  # a body acquires again what it lost or gave back, and leaves that
            entered = self._entered[-1]
            entered.grant, entered.loss = grant_in(held), None
            if entered.interruption is not None:
                entered.interruption.turn_to(entered.grant)
        return held

    async def try_acquire(self, wait_ms: int | None) -> HeldT | None:
        """Acquire, or return None when it was not granted in time."""
        try:
            return await self.acquire(wait_ms)
        except LockTimeoutError:
            return None

    async def undo_acquire(self, held: HeldT | None) -> None:
        """Release what no caller has seen: it was interrupted as ``acquire`` returned."""
        if held is not None:
            grant = grant_in(held)
            try:
                await grant.give_back()
            except CoordinatorError:
                grant.keep_releasing()
                raise

    async def release(self) -> bool:
        """Give back what is held; False when nothing was held any more."""
        grant = self._grant
        if grant is None or grant.is_released or current_owner() in self._outlived:
            return False  # or another caller holds it by now
        return await grant.give_back()

    # --- the two kinds of ``with``

    def enter(self, wait_ms: int | None) -> Coroutine[Any, Any, HeldT]:
        """Acquire, and begin a body that holds it."""
        return self._take(wait_ms, is_body=True)

    async def undo_enter(self, held: HeldT) -> None:
        """End a body that never ran: its caller was interrupted as ``enter`` returned ``held``."""
        assert self._entered[-1].grant is grant_in(held), "undone before another body is entered"
        self._entered.pop()
        await self.undo_acquire(held)

    def interrupt_on_loss(self) -> None:
        """From now on, cancel the current task when the grant of its body is lost."""
        if self._is_to_stop:
            entered = self._entered[-1]
            entered.interruption = Interruption(entered.grant)

    async def leave(self, error: BaseException | None) -> None:
        """Leave the body: release, and raise only what the body did not raise itself."""
        assert self._entered, "left a body that was not entered"
        entered = self._entered.pop()
        grant, interruption = entered.grant, entered.interruption
        is_ours = interruption is not None and interruption.end(error)
        # Checked before the release, after which it is not held either, but not lost.
        is_to_stop, is_ended = self._is_to_stop, grant.is_released
        is_lost = not is_ended and grant.remaining_safe_ms() == 0
        loss = (grant.loss() if is_lost else entered.loss) if is_to_stop else None
        try:
            await grant.give_back()
        except CoordinatorError as failure:
            grant.keep_releasing()
            if error is None:
                raise
            error.add_note(f"and {self._what} could not be released yet: {failure}")
        if is_to_stop and loss is None and not is_ended and grant.hold.was_lost:
            loss = grant.loss()  # the release has found that it was not held any more
        if interruption is not None and is_ours:
            raise interruption.loss() if loss is None else loss from error
        if error is None and loss is not None:
            raise loss

    # --- acquiring

    async def _take(self, wait_ms: int | None, *, is_body: bool) -> HeldT:
        caller = current_owner()
        over = self._begin_to_take(caller)
        try:
            if over is not None:
                await over.give_back()  # lost for good: the object is free again
            held = await self._obtain(wait_ms)
        except BaseException:
            self._is_taken = False
            raise
        grant = grant_in(held)
        self._held, self._grant, self._caller = held, grant, caller
        self._outlived.pop(caller, None)
        if is_body:
            self._entered.append(EnteredBody(caller, grant))
        return held

    def _begin_to_take(self, caller: str) -> Grant[Any] | None:
        """Take this object for ``caller``, or raise; return a lost grant, if it is given back."""
        if self._entered:
            self._refuse_others(caller)
        over, lost = self._grant, None
        if over is not None and (over.is_released or over.is_lost):
            self._grant, self._is_taken = None, False
            if not over.is_released:
                lost = over
                self._remember_loss(lost, caller)
        if self._is_taken:
            doing = f"holds grant {self._grant.grant_id}" if self._grant else "is being acquired"
            raise self._in_use(f"{doing} already")
        self._is_taken = True
        return lost

    def _refuse_others(self, caller: str) -> None:
        entered = self._entered[-1]
        if entered.caller != caller:
            raise self._in_use(f"is used by {entered.caller}, whose body holds {entered.grant!r}")

    def _in_use(self, found: str) -> DeadlockError:
        return DeadlockError(
            f"{self._what}: expected a free object, but it {found} and is not reentrant: it would "
            f"wait for itself. Use one object for each contender."
        )

    def _remember_loss(self, over: Grant[Any], successor: str) -> None:
        """Remember for the caller of ``over`` that it was lost; it is given back next."""
        if self._entered and self._entered[-1].grant is over:
            self._entered[-1].loss = over.loss()
        if self._caller != successor:
            self._outlived[self._caller] = None
        while len(self._outlived) > _OUTLIVED_MAX:
            del self._outlived[next(iter(self._outlived))]


class Context(Contending, Generic[HeldT_co, ClientT]):
    """Base of what is entered with ``with``: sets ``client``, ``_holding`` and ``_wait_ms``."""

    client: ClientT
    _holding: Holding[HeldT_co]
    _wait_ms: int | None
    """How long the statement waits: 0 tries once, None waits without end."""

    def __enter__(self: Context[HeldT_co, Client]) -> HeldT_co:
        expect_client(self.client, Client, "with")
        return self.client.call(self._enter(), self._undo_enter)

    def __exit__(
        self: Context[HeldT_co, Client], _kind: object, error: BaseException | None, _where: object
    ) -> Literal[None]:
        ended_here(lambda: self.client.call(self._leave(error)), error)

    async def __aenter__(self: Context[HeldT_co, AsyncClient]) -> HeldT_co:
        if not isinstance(self.client, AsyncClient):
            expect_client(self.client, AsyncClient, "async with")
        held = await self._enter()
        self._interrupt_on_loss()
        return held

    def __aexit__(
        self: Context[HeldT_co, AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Coroutine[Any, Any, None]:
        return self._leave(error)

    def _enter(self) -> Coroutine[Any, Any, HeldT_co]:
        return self._holding.enter(self._wait_ms)

    async def _undo_enter(self, held: Any) -> None:
        await self._holding.undo_enter(held)

    def _interrupt_on_loss(self) -> None:
        self._holding.interrupt_on_loss()

    def _leave(self, error: BaseException | None) -> Coroutine[Any, Any, None]:
        return self._holding.leave(error)

    async def _undo_acquire(self, held: Any) -> None:
        await self._holding.undo_acquire(held)
