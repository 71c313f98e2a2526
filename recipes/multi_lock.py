"""Several locks at once, all or none: one place in all their queues, one grant, one token.

::

    with MultiLock(client, "account-a", "account-b") as (a, b):
        transfer(token=a.fencing_token)

1. One command enters all the queues, so two programs never wait for each other in a circle,
   whatever the order in which they name the locks, and nobody holds one of them while it
   waits for another.
2. They are granted together, when the place is the first in every queue, with one fencing token.
   Whoever came later to any of the queues waits behind, so nobody is overtaken for ever.
3. The grants come in the order in which the names were given. Given back or lost, they are so
   together.
4. ``timeout`` is one overall deadline for all of them; after it nothing of the attempt is left.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Literal, Unpack

from coordinator.client import AsyncClient, Client
from coordinator.client.hints import Contending
from coordinator.client.sync_and_async import ClientT, both, expect_face
from coordinator.errors import BadArgumentsError
from recipes.grant import Grant
from recipes.holding import Holding
from recipes.naming import name_of
from recipes.obtaining import obtain
from recipes.options import LockOptions, Terms
from recipes.waiting import Timeout, wait_ms_of


class MultiLock(Contending, Generic[ClientT]):
    """One contender for all the locks ``names`` (up to 64); see ``Lock`` for the options."""

    def __init__(self, client: ClientT, *names: str | int, **options: Unpack[LockOptions]) -> None:
        self.client = client
        self.names = tuple(name_of(name) for name in names)
        if not names or len(set(self.names)) != len(names):
            raise BadArgumentsError(
                f"MultiLock: expected one name or more, each once; found {names!r}"
            )
        self._terms = Terms.of(client, **options)
        self._contest = client.core.contest("locks", *self.names)
        self._grants: tuple[Grant[ClientT], ...] = ()
        # All the grants share one hold, so whoever holds the first holds them all.
        self._holding: Holding[ClientT] = Holding(
            f"MultiLock {self.names!r}", self._obtain, when_unsure=self._terms.when_unsure
        )

    @property
    def grants(self) -> tuple[Grant[ClientT], ...]:
        """What this object holds, in the order of the names; empty when nothing."""
        return () if self._holding.grant is None else self._grants

    async def _acquire(
        self, blocking: bool = True, timeout: Timeout | None = None
    ) -> tuple[Grant[ClientT], ...]:
        """Wait for all the locks and return their grants; raises as ``Lock.acquire`` does."""
        await self._holding.acquire(self._terms.wait(blocking, timeout))
        return self._grants

    async def _try_acquire(self, *, timeout: Timeout = 0) -> tuple[Grant[ClientT], ...] | None:
        """Return the grants, None when not all were had within ``timeout`` (0: try once)."""
        first = await self._holding.try_acquire(wait_ms_of(timeout))
        return None if first is None else self._grants

    async def _release(self) -> bool:
        """Give all the locks back; False when they were not held any more. Idempotent."""
        return await self._holding.release()

    async def _undo_acquire(self, grants: tuple[Grant[ClientT], ...] | None) -> None:
        await self._holding.undo_acquire(None if grants is None else grants[0])

    acquire = both(_acquire, undo=_undo_acquire)
    try_acquire = both(_try_acquire, undo=_undo_acquire)
    release = both(_release)

    def __enter__(self: MultiLock[Client]) -> tuple[Grant[Client], ...]:
        expect_face(self.client, Client, "with")
        self.client.call(self._holding.enter(self._terms.wait_ms), self._holding.undo_enter)
        return self._grants

    def __exit__(
        self: MultiLock[Client],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.client.call(self._holding.leave(error))

    async def __aenter__(self: MultiLock[AsyncClient]) -> tuple[Grant[AsyncClient], ...]:
        expect_face(self.client, AsyncClient, "async with")
        await self._holding.enter(self._terms.wait_ms)
        self._holding.watch_over_task()
        return self._grants

    async def __aexit__(
        self: MultiLock[AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        await self._holding.leave(error)

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        self._grants = await obtain(self.client, self._contest, self._terms, wait_ms)
        return self._grants[0]
