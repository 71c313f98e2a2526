"""One contender on its terms in one queue: what ``Lock`` and ``Semaphore`` are.

They differ in the terms alone, so how such a contender is had and given back is written here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.client.sync_and_async import ClientT, both
from recipes.body import Body
from recipes.grant import Grant
from recipes.guards.raising import Guard
from recipes.holding import Holding
from recipes.obtaining import obtain
from recipes.options import Terms
from recipes.waiting import Timeout, wait_ms_of


class Contender(Body[ClientT]):
    """Contends for the lock ``name``, over and over if need be; ``what`` names it in errors."""

    name: str
    guards: tuple[Guard, ...]
    _terms: Terms

    def _prepare(self, client: Any, name: str, terms: Terms, what: str) -> None:
        self.client = client
        self.name = name
        self.guards = terms.guards
        self._terms = terms
        self._wait_ms = terms.wait_ms
        self._contest = client.core.contest("locks", name)
        self._on_position: Callable[[int], None] | None = None
        self._holding: Holding[ClientT] = Holding(
            f"{what} {name!r}", self._obtain, when_unsure=terms.when_unsure
        )

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.grant

    async def _acquire(
        self,
        blocking: bool = True,
        timeout: Timeout | None = None,
        *,
        on_position: Callable[[int], None] | None = None,
    ) -> Grant[ClientT]:
        """Wait for the turn and return the grant; ``timeout`` None means the contender's own.

        ``blocking=False`` tries once, and raises LockTimeoutError as well; ``try_acquire`` returns
        None instead. ``on_position`` is told, in the client's event loop, how
        many stand before us, those who hold included; what it raises ends the wait.

        Raises:
            LockTimeoutError: not granted in time; the attempt left nothing behind.
            DeadlockError: this owner (this very task or thread) holds or waits already, or the
                wait would close a circle of owners that wait for each other (``error.cycle``).
            UnavailableError, OutcomeUnknownError: the service is away, or has no quorum; not
                granted. One try says so within one election.
            SessionExpiredError: a member says that the session ended while waiting.
        """
        self._on_position = on_position
        return await self._holding.acquire(self._terms.wait(blocking, timeout))

    async def _release(self) -> bool:
        """Give it back; False when it was not held any more. Idempotent.

        Raises:
            OutcomeUnknownError, UnavailableError: not known, or not possible now; it still counts
                as held here, and may be tried again.
        """
        return await self._holding.release()

    async def _try_acquire(self, *, timeout: Timeout = 0) -> Grant[ClientT] | None:
        """Return the grant, None when it was not had within ``timeout`` (0: try once)."""
        return await self._holding.try_acquire(wait_ms_of(timeout))

    async def _undo_acquire(self, grant: Grant[ClientT] | None) -> None:
        await self._holding.undo_acquire(grant)

    acquire = both(_acquire, undo=_undo_acquire)
    try_acquire = both(_try_acquire, undo=_undo_acquire)
    release = both(_release)

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        (grant,) = await obtain(self.client, self._contest, self._terms, wait_ms, self._on_position)
        return grant
