"""Contenders in queues that the server runs, and their grants.

``LockContender`` has the verbs that locks share. ``QueueContender`` is one contender in one queue:
``Lock`` and ``Semaphore``, which differ in their options alone. ``obtain`` goes from a request to
grants, for these, ``MultiLock``, ``ReentrantLock`` and ``Election``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from coordinator.client import AnyClientT, ClientT, answered, both, expect_function
from coordinator.client.locks import Acquired, AcquireRequest
from coordinator.errors import ClientClosedError, CoordinatorError, DeadlockError
from coordinator.recipes.locks.context import Context, HeldT_co, Holding
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.hold import Hold, QueueClient
from coordinator.recipes.locks.options import Options
from coordinator.recipes.locks.raising import Guard, raise_guards
from coordinator.recipes.waits import Timeout, wait_ms_of


class LockContender(Context[HeldT_co, ClientT]):
    """One contender, which may acquire and release repeatedly; a subclass has ``_obtain``."""

    _options: Options
    _on_position: Callable[[int], object] | None = None

    def _prepare(self, client: Any, what: str, options: Options) -> None:
        """Set up; ``what`` names this contender in errors."""
        self.client = client
        self._options = options
        self._wait_ms = options.wait_ms
        self._holding = Holding(what, self._obtain, when_unsure=options.when_unsure)

    async def _obtain(self, wait_ms: int | None) -> HeldT_co:
        raise NotImplementedError

    async def _acquire(
        self,
        blocking: bool = True,
        timeout: Timeout | None = None,
        *,
        on_position: Callable[[int], object] | None = None,
    ) -> HeldT_co:
        """Wait for the turn and return the grant; ``timeout`` None means the contender's own.

        ``blocking=False`` tries once, and raises LockTimeoutError as well; ``try_acquire`` returns
        None instead. ``on_position`` is called with how many are before this contender, holders
        included, and waited for; what it raises ends the wait. With an AsyncClient it may be a
        coroutine function.

        Raises:
            LockTimeoutError: not granted in time; the attempt left nothing behind.
            DeadlockError: this owner (this very task or thread) holds or waits already, or the
                wait would close a circle of owners that wait for each other (``error.cycle``).
            UnavailableError, OutcomeUnknownError: the service is away, or has no quorum; not
                granted. One try says so within 1.5 s.
            SessionExpiredError: a member says that the session ended while waiting.
            LockLostError, StaleTokenError: lost before the guards were raised; not granted.
            BadArgumentsError: an argument is out of its range.
        """
        if on_position is not None:
            expect_function(self.client, "on_position", on_position)
            on_position = partial(answered, self.client.core.own_loop, on_position)
        self._on_position = on_position
        return await self._holding.acquire(self._options.wait(blocking, timeout))

    async def _try_acquire(self, *, timeout: Timeout = 0) -> HeldT_co | None:
        """Return the grant, None when it was not granted within ``timeout`` (0: try once).

        Raises:
            All that ``acquire`` raises but LockTimeoutError.
        """
        return await self._holding.try_acquire(wait_ms_of(timeout))

    async def _release(self) -> bool:
        """Give it back; False when it was not held any more. Idempotent.

        Raises:
            OutcomeUnknownError, UnavailableError: not known, or not possible now; it still counts
                as held here, and may be tried again.
        """
        return await self._holding.release()

    acquire = both(_acquire, undo=Context._undo_acquire, has_own_time=True)
    try_acquire = both(_try_acquire, undo=Context._undo_acquire, has_own_time=True)
    release = both(_release, has_own_time=True)


class QueueContender(LockContender[Grant[ClientT], ClientT]):
    """One contender for the lock ``name``."""

    name: str
    guards: Sequence[Guard]

    def _contend(self, client: Any, name: str, what: str, options: Options) -> None:
        self.name = name
        self.guards = options.guards
        self._queue = client.core.lock_queue(name)
        self._prepare(client, f"{what} {name!r}", options)

    @property
    def grant(self) -> Grant[ClientT] | None:
        """What this object holds, None when nothing."""
        return self._holding.held

    async def _release_until_known(self) -> None:
        """Release, trying until that is known, or it is lost, or goes with its session."""
        core, failures = self.client.core, 0
        while self.grant is not None and not self.grant.is_lost:
            try:
                await self._release()
            except ClientClosedError:
                return  # its session is closed with it
            except CoordinatorError:
                failures += 1
                await core.wait(core.retry_delay_ms(failures))

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        request, guards = self._options.request(), self._options.guards_to_raise
        client, queue, on_position = self.client, self._queue, self._on_position
        (grant,) = await obtain(client, queue, request, wait_ms, guards, on_position)
        return grant


class Queueing(QueueClient, Protocol):
    """Where a contender waits: a ``LockQueue``, or a recipe's own around one."""

    names: tuple[str, ...]

    async def acquire(
        self,
        request: AcquireRequest,
        wait_ms: int | None,
        on_position: Callable[[int], object] | None = None,
    ) -> Acquired:
        """Wait for the turn, as ``LockQueue.acquire`` does."""
        ...


async def obtain(
    client: AnyClientT,
    queue: Queueing,
    request: AcquireRequest,
    wait_ms: int | None,
    guards: Sequence[Guard] = (),
    on_position: Callable[[int], object] | None = None,
) -> tuple[Grant[AnyClientT], ...]:
    """Wait for the turn in ``queue``; return a grant for each of its names, in their order.

    The grants share one hold: given back or lost, they are so together. ``guards`` have been raised
    to their token.

    Raises:
        DeadlockError: the wait would never end; ``cycle`` says who would wait for whom.
        All else that ``LockQueue.acquire`` and ``raise_guards`` raise.
    """
    try:
        acquired = await queue.acquire(request, wait_ms, on_position)
    except DeadlockError as error:
        raise _with_advice(error) from error
    grants = _grants_of(client, queue, acquired, request.owner)
    if guards:
        await raise_guards(grants[0], guards)
    return grants


def _grants_of(
    client: AnyClientT, queue: Queueing, acquired: Acquired, owner: str
) -> tuple[Grant[AnyClientT], ...]:
    hold = Hold(acquired, queue, owner)
    if len(queue.names) == 1 and not acquired.grant.grants:
        return (Grant(client, hold, queue, acquired.grant),)
    reply_for = {each.lock: each for each in acquired.grant.grants or (acquired.grant,)}
    return tuple([Grant(client, hold, queue, reply_for[name]) for name in queue.names])


def _with_advice(error: DeadlockError) -> DeadlockError:
    """Return ``error`` with what a caller can do about it here."""
    if len(error.fields.get("cycle", ())) > 1:
        advice = "take all of them at once (MultiLock), or always in one order"
    else:
        advice = (
            "use ReentrantLock to nest, or owner='' for a grant that another task or thread "
            "releases"
        )
    return DeadlockError(f"{error.message}; {advice}", **error.fields)
