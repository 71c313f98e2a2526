"""The fair lock, run by the server: one request to wait and acquire, one to release.

::

    with Lock(client, "daily-report", timeout=10) as grant:          # a Client
        save(report, token=grant.fencing_token)

    async with Lock(client, "daily-report") as grant:                # an AsyncClient
        await save(report, token=grant.fencing_token)

1. Contenders are granted in the order in which they queued, one at a time, with growing tokens.
2. ``timeout`` is one overall deadline in seconds: 10 by default. 0 tries once. To wait without end,
   say FOREVER.
3. The error says what to do: LockTimeoutError (others hold it: come back later), UnavailableError
   or OutcomeUnknownError from acquire (the service is away: do not enter), LockLostError (you held
   it: stop), OutcomeUnknownError from release (the work is done; the lock frees itself at the
   latest with the session).
4. An acquire without waiting is one round trip and one proposal, which also opens the client's
   session if it has none; so is a release.
5. The lock is not reentrant: a holder that asks again gets DeadlockError at once, as does an owner
   that would close a cycle of owners that wait for each other. ``ReentrantLock`` counts.
"""

from __future__ import annotations

from typing import Unpack

from coordinator.client import AnyClientT, ClientT
from coordinator.recipes.base.names import name_of
from coordinator.recipes.locks.contender import QueueContender
from coordinator.recipes.locks.options import LockOptions, Options


class Lock(QueueContender[ClientT]):
    """One contender for the lock ``name``; not reentrant.

    Args:
        client: a Client for ``with`` and plain calls, an AsyncClient for ``async with`` and await.
        name: opaque; an integer is taken as its decimal digits.
        timeout: seconds to wait in all, or FOREVER; 10.
        when_unsure: ``stop`` (the default): when the lock is lost, cancel the task in an ``async
            with``, and raise LockLostError when either ``with`` is left. ``continue``: let the body
            run on, for work where twice is better than not at all; ``grant.is_unsure`` reports it.
        owner: on whose behalf it is acquired, for the deadlock detection; at most 128 characters.
            None, the default, is the asyncio task or the thread that acquires. An owner that holds
            the lock and asks for it again gets DeadlockError at once. "" is an owner of its own,
            for a grant that one task or thread acquires and another releases.
        lock_delay: seconds, 0 (the default) to 60, for which the lock stays closed after this grant
            was lost without being released, so that what its holder had sent can still arrive.
        max_hold: seconds after which the grant ends although its holder lives, 0.5 to 2,592,000 (30
            days); None, the default, without a bound. Costs one more round trip to acquire.
        purpose: ``correctness`` refuses to be without a guard or a waiver; ``efficiency`` does
            not insist. Recorded with the grant.
        guards: what refuses stale tokens in the stores that the lock protects
            (``coordinator.guards``).
        raise_on_acquire: raise the guards to the new token before the caller gets the grant, so
            that the holder before is refused even if the new one has not written yet; True.
        waiver: with ``purpose="correctness"``, why it is correct without guards; recorded.
        label, trace_id: what people see of this contender in the lock's queue; the label that
            ``connect`` was given, if this one is empty.

    Raises:
        BadArgumentsError: an argument is out of its range.
    """

    def __init__(self, client: ClientT, name: str | int, **options: Unpack[LockOptions]) -> None:
        self._contend(client, name_of(name), "lock", Options.of(client, **options))

    @classmethod
    def with_options(cls, client: AnyClientT, name: str, options: Options) -> Lock[AnyClientT]:
        """Return a contender with checked options, maybe of another kind; for other recipes."""
        lock: Lock[AnyClientT] = Lock.__new__(Lock)
        lock._contend(client, name, "lock", options)
        return lock
