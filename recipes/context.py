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
5. What a sync caller begins runs in its thread until it needs the event loop (``client.begin``), so
   two threads may be in one object at once: who takes it is decided under a guard.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from coordinator.client import AsyncClient, Client, ClientT, expect_client
from coordinator.client.locks import Contending
from recipes.holding import Holding

HeldT_co = TypeVar("HeldT_co", covariant=True)
"""What the caller gets, as ``HeldT`` of ``recipes.holding``."""


class Context(Contending, Generic[HeldT_co, ClientT]):
    """Base of what is entered with ``with``: sets ``client``, ``_holding`` and ``_wait_ms``."""

    client: ClientT
    _holding: Holding[HeldT_co]
    _wait_ms: int | None
    """How long the statement waits: 0 tries once, None waits without end."""

    def __enter__(self: Context[HeldT_co, Client]) -> HeldT_co:
        expect_client(self.client, Client, "with")
        return self.client.begin(self._enter(), self._undo_enter)

    def __exit__(
        self: Context[HeldT_co, Client],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.client.begin(self._leave(error))

    async def __aenter__(self: Context[HeldT_co, AsyncClient]) -> HeldT_co:
        expect_client(self.client, AsyncClient, "async with")
        held = await self._enter()
        self._interrupt_on_loss()
        return held

    async def __aexit__(
        self: Context[HeldT_co, AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        await self._leave(error)

    async def _enter(self) -> HeldT_co:
        return await self._holding.enter(self._wait_ms)

    async def _undo_enter(self, held: Any) -> None:
        await self._holding.undo_enter(held)

    def _interrupt_on_loss(self) -> None:
        self._holding.interrupt_on_loss()

    async def _leave(self, error: BaseException | None) -> None:
        await self._holding.leave(error)

    async def _undo_acquire(self, held: Any) -> None:
        await self._holding.undo_acquire(held)
