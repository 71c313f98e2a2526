"""The fair lock, run by the server: one request waits in the queue, one gives the lock back.

::

    with Lock(client, "daily-report", timeout=10) as grant:          # a Client
        save(report, token=grant.fencing_token)

    async with Lock(client, "daily-report") as grant:                # an AsyncClient
        await save(report, token=grant.fencing_token)

1. Contenders are granted in the order in which they queued, one at a time, with growing tokens.
2. ``timeout`` is one overall deadline in seconds (S073): 10 by default, 0 tries once, FOREVER has
   to be asked for.
3. What is raised says what to do (S077): LockTimeoutError (others hold it: come back later),
   UnavailableError or OutcomeUnknownError from acquire (the service is away: do not enter),
   LockLostError (you held it: stop), OutcomeUnknownError from release (the work is done; the lock
   frees itself at the latest with the session).
4. A clean acquire is one round trip and one proposal, a release another, once the client's session
   is open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Literal

from coordinator.client import AsyncClient, Client
from coordinator.client.facing import ClientT, both, expect_face
from recipes.grant import Grant
from recipes.guards.raising import Guard, checked_guards, raise_guards
from recipes.holding import DEFAULT_TIMEOUT_S, Holding, Timeout, wait_ms_of, wish_of


class Lock(Generic[ClientT]):
    """One contender for the lock ``name``.

    Args:
        client: a Client for ``with`` and plain calls, an AsyncClient for ``async with`` and await.
        name: opaque; an integer is taken as its decimal digits (S020).
        timeout: seconds to wait in all; see above.
        cancel_on_loss: stop when unsure: cancel the task in an ``async with``, and raise
            LockLostError when either ``with`` is left. False continues when unsure (S041).
        guards: what refuses stale tokens in the stores that the lock protects (``recipes.guards``).
        raise_on_acquire: raise the guards to the new token before anybody gets the grant, so that
            the holder before is refused even if the new one has not written yet (S104).
        label, trace_id: what people see of this contender in the lock's queue.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        timeout: Timeout = DEFAULT_TIMEOUT_S,
        cancel_on_loss: bool = True,
        guards: Sequence[Guard] = (),
        raise_on_acquire: bool = True,
        label: str = "",
        trace_id: str = "",
    ) -> None:
        self.client = client
        self.name = str(name)
        self.guards = checked_guards(client, guards)
        self._raise_on_acquire = raise_on_acquire
        self._wait_ms = wait_ms_of(timeout)
        self._wish = wish_of(label, trace_id)
        self._contest = client.core.contest("locks", self.name)
        self._on_position: Callable[[int], None] | None = None
        self._holding: Holding[ClientT] = Holding(
            f"lock {self.name!r}", self._obtain, cancel_on_loss=cancel_on_loss
        )

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.grant

    async def _acquire(
        self,
        *,
        blocking: bool = True,
        timeout: Timeout | None = None,
        on_position: Callable[[int], None] | None = None,
    ) -> Grant[ClientT]:
        """Wait for the lock and return the grant; ``timeout`` None means the lock's own.

        ``blocking=False`` tries once. ``on_position`` is told, in the client's event loop, how
        many stand before us.

        Raises:
            LockTimeoutError: not granted in time; the attempt left nothing behind.
            DeadlockError: this very object holds or waits already.
            UnavailableError, OutcomeUnknownError: the service is away; not granted.
            SessionExpiredError: the session ended while waiting.
        """
        self._on_position = on_position
        return await self._holding.acquire(self._wait(blocking, timeout))

    async def _release(self) -> bool:
        """Give the lock back; False when it was not held any more. Idempotent.

        Raises:
            OutcomeUnknownError, UnavailableError: not known, or not possible now; it still counts
                as held here, and may be tried again.
        """
        return await self._holding.release()

    async def _try_acquire(self, *, timeout: Timeout = 0) -> Grant[ClientT] | None:
        """Return the grant, None when it was not had within ``timeout`` (0: try once)."""
        return await self._holding.try_acquire(wait_ms_of(timeout))

    acquire = both(_acquire, undo=_release)
    try_acquire = both(_try_acquire, undo=_release)
    release = both(_release)

    def __enter__(self: Lock[Client]) -> Grant[Client]:
        expect_face(self.client, Client, "with")
        return self.client.call(self._holding.acquire(self._wait_ms), self._holding.release)

    def __exit__(
        self: Lock[Client],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.client.call(self._holding.leave(error))

    async def __aenter__(self: Lock[AsyncClient]) -> Grant[AsyncClient]:
        expect_face(self.client, AsyncClient, "async with")
        grant = await self._holding.acquire(self._wait_ms)
        self._holding.watch_over_task(grant)
        return grant

    async def __aexit__(
        self: Lock[AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        await self._holding.leave(error)

    def _wait(self, blocking: bool, timeout: Timeout | None) -> int | None:
        if timeout is None:
            return self._wait_ms if blocking else 0
        return wait_ms_of(timeout, blocking=blocking)

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        award = await self._contest.contend(self._wish, wait_ms, self._on_position)
        grant = Grant(
            self.client,
            lock=self.name,
            grant_id=award.grant.grant_id,
            fencing_token=award.grant.fencing_token,
            path=award.grant.path,
            session=award.session,
            queue=self._contest,
        )
        if self._raise_on_acquire:
            await raise_guards(grant, self.guards)
        return grant
