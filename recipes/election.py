"""One elected among many candidates, with a value that all can read, and an epoch that grows.

::

    with Election(client, "report-service", value=b"10.0.0.7:8080") as leadership:
        serve(epoch=leadership.epoch)

    async with Election(client, "report-service") as leadership:     # cancelled on loss
        await serve(epoch=leadership.epoch)

An election is a lock that is held until its holder resigns or dies, so waiting, loss and clean-up
are the lock's. The epoch is the fencing token: pass it with every write.
``who`` and ``observe`` need no candidacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from coordinator.client import (
    AsyncClient,
    BlockingStream,
    Client,
    ClientT,
    Elected,
    ElectionStream,
    ElectionView,
    both,
)
from coordinator.errors import NotOwnerError
from recipes.contender import obtain
from recipes.context import Context, Holding
from recipes.grant import Grant
from recipes.guards.raising import Guard
from recipes.options import FOREVER, Options, Timeout, WhenUnsure, name_of, wait_ms_of


class Election(Context[Grant[ClientT], ClientT]):
    """One candidate, or only an observer, of the election ``name``.

    Args:
        client: a Client for ``with`` and plain calls, an AsyncClient for ``async with`` and await.
        name: opaque; an integer is taken as its decimal digits.
        value: published when elected; ``proclaim`` changes it.
        timeout: seconds to wait before giving up; FOREVER by default, because waiting for the
            elected to fail is what a candidate is for.
        when_unsure: ``stop``: cancel the task in an ``async with`` when leadership is lost, and
            raise LockLostError when either ``with`` is left. ``continue``: leave it running.
        guards: what refuses the epochs of earlier leaders in the stores that this one writes to; as
            with ``Lock`` they are raised to the new epoch before ``campaign`` returns.
        label, trace_id: what people see of this candidate.
    """

    def __init__(
        self,
        client: ClientT,
        name: str | int,
        *,
        value: bytes = b"",
        timeout: Timeout = FOREVER,
        when_unsure: WhenUnsure = "stop",
        guards: Sequence[Guard] = (),
        label: str = "",
        trace_id: str = "",
    ) -> None:
        self.client = client
        self.name = name_of(name)
        self._value = value
        self._options = Options.of(
            client,
            timeout=timeout,
            when_unsure=when_unsure,
            guards=guards,
            label=label,
            trace_id=trace_id,
        )
        self.guards = self._options.guards
        self._wait_ms = self._options.wait_ms
        self._queue = client.core.lock_queue(self.name, is_election=True)
        self._holding = Holding(f"election {self.name!r}", self._obtain, when_unsure=when_unsure)

    @property
    def leadership(self) -> Grant[ClientT] | None:
        """What this candidate won, None when it is not elected."""
        return self._holding.held

    async def _resign(self) -> bool:
        """Stop being elected; False when it was not any more. Idempotent.

        Raises:
            OutcomeUnknownError, UnavailableError: as ``Lock.release``; it may be tried again.
        """
        return await self._holding.release()

    async def _campaign(
        self, value: bytes | None = None, *, timeout: Timeout | None = None
    ) -> Grant[ClientT]:
        """Wait until elected and return the leadership; ``value`` replaces the one to publish.

        Raises:
            LockTimeoutError, and all else that ``Lock.acquire`` raises but ``DeadlockError``, which
                an election, whose candidates have no owner, does not know.
        """
        if value is not None:
            self._value = value
        wait_ms = self._wait_ms if timeout is None else wait_ms_of(timeout)
        return await self._holding.acquire(wait_ms)

    campaign = both(_campaign, undo=Context._undo_acquire)
    resign = both(_resign)

    @both
    async def proclaim(self, value: bytes) -> None:
        """Publish ``value`` as the elected.

        Raises:
            NotOwnerError: this candidate is not elected.
            LockLostError: it was, and cannot rely on it any more.
            UnavailableError, OutcomeUnknownError: nothing was published; it may have been.
        """
        leadership = self._holding.held
        if leadership is None:
            raise NotOwnerError(f"election {self.name!r}: expected to be elected, found it is not")
        leadership.check()
        await self.client.core.proclaim(self.name, leadership.grant_id, value)
        self._value = value

    @both
    async def who(self) -> ElectionView:
        """Return who is elected, with value and epoch, and who waits to be.

        Raises:
            UnavailableError: no member answered in time.
        """
        return await self.client.core.election(self.name)

    @overload
    def observe(self: Election[Client]) -> BlockingStream[Elected]: ...
    @overload
    def observe(self: Election[AsyncClient]) -> ElectionStream: ...

    def observe(self: Election[Any]) -> BlockingStream[Elected] | ElectionStream:
        """Return a stream of who is elected now, then of each change.

        Raises:
            ClientClosedError: here, or while iterating, when the client is closed.
        """
        stream: BlockingStream[Elected] | ElectionStream = self.client.observe(self.name)
        return stream

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        request = self._options.campaign(self._value)
        (leadership,) = await obtain(self.client, self._queue, request, wait_ms, self.guards)
        return leadership
