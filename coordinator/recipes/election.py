"""One elected among many candidates, with a value that all can read, and an epoch that grows.

::

    with Election(client, "report-service", value=b"10.0.0.7:8080") as leadership:
        serve(epoch=leadership.epoch)

    async with Election(client, "report-service") as leadership:     # cancelled on loss
        await serve(epoch=leadership.epoch)

    Election(client, "report-service").run(serve)          # again after each loss

An election is a lock that is held until its holder resigns or dies, so waiting, loss and clean-up
are the lock's. The epoch is the fencing token: pass it with every write.
``who`` and ``observe`` need no candidacy.

``hand_over`` names the next one, without a gap (``succession``). ``weight`` lets heavier
candidates go first (``weights``), ``resume`` lets a program that was restarted go on at
once (``resuming``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar, overload

from coordinator.client import (
    AsyncClient,
    BlockingStream,
    Client,
    ClientT,
    Elected,
    ElectionStream,
    ElectionView,
    both,
    entered,
    expect_function,
    returned,
    run_either,
    settled,
)
from coordinator.errors import (
    ClientClosedError,
    LockLostError,
    OutcomeUnknownError,
    SessionError,
    UnavailableError,
)
from coordinator.recipes.base.names import name_of
from coordinator.recipes.elections.candidates import CandidateQueue
from coordinator.recipes.elections.handing_over import HandingOver
from coordinator.recipes.elections.resuming import LeadershipFile, checked_file
from coordinator.recipes.elections.weights import checked_weight
from coordinator.recipes.locks.contender import obtain
from coordinator.recipes.locks.context import Context, Holding
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.locks.options import Options, WhenUnsure
from coordinator.recipes.locks.raising import Guard
from coordinator.recipes.waits import FOREVER, Timeout, wait_ms_of

_AGAIN = (LockLostError, SessionError, UnavailableError, OutcomeUnknownError)
"""What a candidacy ends with that may go better the next time."""
T = TypeVar("T")


class _Rests:
    """The pauses between rounds, longer after each that was not elected."""

    def __init__(self, core: AsyncClient) -> None:
        self._core = core
        self._failures = 0

    def begun(self) -> None:
        self._failures = 0

    async def rest(self) -> None:
        self._failures += 1
        await self._core.wait(self._core.retry_delay_ms(self._failures))


async def lead_again(election: Context[Grant[Any], Any], work: Callable[[Grant[Any]], Any]) -> Any:
    """Run ``work`` whenever elected, in this thread or task; for ``run_either``."""
    client = election.client
    rests = _Rests(client.core)
    is_main = threading.current_thread() is threading.main_thread()
    is_to_interrupt = is_main and isinstance(client, Client)
    while True:
        is_final = False
        try:
            async with entered(client, election) as leadership:
                rests.begun()
                try:
                    with leadership.interrupting() if is_to_interrupt else nullcontext():
                        result = await returned(client, work, leadership)
                finally:
                    is_final = not leadership.is_lost  # nor released: then it was handed over
                if is_final:
                    return result
        except ClientClosedError:
            raise
        except _AGAIN:
            if is_final:
                raise
        await settled(client.call(rests.rest()))


class Election(HandingOver[ClientT]):
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
        weight: 1 to 1,000: of those who wait the heaviest is elected, of equal ones who waits
            longest; 0 is never elected. None: in turn, and for others it weighs 1.
        resume: a file of this program alone, on a local disk, by which its next process takes over
            at once when this one has died, with a higher epoch.
        label, trace_id: what people see of this candidate; the label that ``connect`` was given,
            if this one is empty.
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
        weight: int | None = None,
        resume: str | os.PathLike[str] | None = None,
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
        file = None if resume is None else LeadershipFile(checked_file(resume))
        self._queue = CandidateQueue(client.core, self.name, checked_weight(weight), file)
        self._holding = Holding(f"election {self.name!r}", self._obtain, when_unsure=when_unsure)

    @property
    def leadership(self) -> Grant[ClientT] | None:
        """What this candidate won, None when it is not elected."""
        return self._holding.held

    @property
    def was_resumed(self) -> bool:
        """Whether the leadership was taken over from an earlier process of this program."""
        return self.leadership is not None and self._queue.resumed

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

    campaign = both(_campaign, undo=Context._undo_acquire, has_own_time=True)
    resign = both(_resign, has_own_time=True)

    @both
    async def proclaim(self, value: bytes) -> None:
        """Publish ``value`` as the elected.

        Raises:
            NotOwnerError: this candidate is not elected.
            LockLostError: it was, and cannot rely on it any more.
            UnavailableError, OutcomeUnknownError: nothing was published; it may have been.
        """
        leadership = self._elected()
        leadership.check()
        await self.client.core.proclaim(self.name, leadership.grant_id, value)
        self._value = value

    @overload
    def run(self: Election[Client], work: Callable[[Grant[Client]], T]) -> T: ...
    @overload
    def run(
        self: Election[AsyncClient], work: Callable[[Grant[AsyncClient]], Awaitable[T]]
    ) -> Coroutine[Any, Any, T]: ...

    def run(self: Any, work: Callable[[Any], Any]) -> Any:
        """Run ``work(leadership)`` when elected, and contend again after each loss or hand-over.

        Work that returns otherwise ends this, with its result. When the leadership is lost a task
        is cancelled, and a function in the main thread is interrupted (``Grant.interrupting``); one
        in another thread learns it from ``leadership.check()`` or ``on_lost``. While the cluster
        cannot be reached it goes on trying.

        Raises:
            ClientClosedError: the client was closed.
            RequestError: this candidate is refused.
            BadArgumentsError: ``work`` cannot be run (with an AsyncClient it may be a
                coroutine function); or it returned a coroutine or a generator, which has not run.
            What ``work`` raises, but LockLostError.
        """
        expect_function(self.client, "Election.run", work)
        return run_either(self.client, lead_again(self, work))

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
        """Return a stream of the elected: the present one, then each change.

        Raises:
            ClientClosedError: here, or while iterating, when the client is closed.
        """
        stream: BlockingStream[Elected] | ElectionStream = self.client.observe(self.name)
        return stream

    async def _obtain(self, wait_ms: int | None) -> Grant[ClientT]:
        request = self._options.campaign(self._value)
        (leadership,) = await obtain(self.client, self._queue, request, wait_ms, self.guards)
        return leadership
