"""The handing over of an election: at once, or when the elected is asked to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from coordinator.client import AsyncClient, Candidate, ClientT, both
from coordinator.errors import BadArgumentsError, NotOwnerError
from coordinator.recipes.base.changes import until
from coordinator.recipes.elections.candidates import CandidateQueue
from coordinator.recipes.elections.succession import (
    SuccessionRequest,
    directory_of,
    named,
    read_request,
    write_request,
)
from coordinator.recipes.elections.weights import OUTWEIGHED, WEIGHT, heaviest, weights_of
from coordinator.recipes.locks.context import Context
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.waits import FOREVER, Timeout, wait_ms_of

_SOON_MS = 100


class HandingOver(Context[Grant[ClientT], ClientT]):
    """Base of ``Election``, which sets ``name`` and ``_queue``."""

    name: str
    _queue: CandidateQueue

    @both
    async def hand_over(self, to: str | None = None) -> Candidate:
        """Resign, and let the candidate with the label, session id or grant id ``to`` be elected.

        Both are one command, so nobody is elected in between and no two are. None names the
        heaviest, and of equal ones who waits longest. Stop the work first, as before ``resign``.
        After a request that ``asked`` returned, the history of the leadership says who asked, and
        why.

        Raises:
            BadArgumentsError: no such candidate waits, or several do; this one is still elected.
            NotOwnerError, LockLostError: this one is not elected (any more).
            NoAuthError: one that waits before it has another identity; still elected.
            UnavailableError, OutcomeUnknownError: still elected; it may not be.
        """
        leadership = self._elected()
        leadership.check()
        core, found = self.client.core, list[Candidate]()
        choose = heaviest(await weights_of(core, self.name)) if to is None else named(to)

        def chosen(waiting: Sequence[Candidate]) -> Candidate:
            found[:] = [choose(waiting)]
            return found[0]

        self._queue.choice = chosen
        try:
            was_elected = await self._holding.release()
        finally:
            self._queue.choice = None
        if not was_elected or not found:  # or another task was resigning it already
            raise NotOwnerError(f"election {self.name!r}: not elected any more; not handed over")
        return found[0]

    @both
    async def ask(self, to: str = "", *, by: str = "", reason: str = "") -> int:
        """Ask the elected to hand over, to the candidate ``to`` if given; return its epoch.

        It does so when it can stop its work, and not if it does not listen (``asked``).

        Raises:
            NotOwnerError: nobody is elected.
            UnavailableError, OutcomeUnknownError: nothing was asked; it may have been.
        """
        core = self.client.core
        elected = (await core.election(self.name)).elected
        if elected is None:
            raise NotOwnerError(
                f"election {self.name!r}: expected one who is elected, to be asked, found nobody"
            )
        await write_request(core, self.name, SuccessionRequest(elected.epoch, to, by, reason))
        return elected.epoch

    @both
    async def asked(
        self, timeout: Timeout = FOREVER, *, give_way: bool = False
    ) -> SuccessionRequest | None:
        """As the elected, wait until another one should be; None when ``timeout`` is over.

        That is when ``ask`` was called, or with ``give_way`` when a heavier candidate waits.

        Raises:
            NotOwnerError: this candidate is not elected.
            UnavailableError, OutcomeUnknownError: it could not be seen.
        """
        leadership, weight = self._elected(), self._queue.weight
        wait_ms = wait_ms_of(timeout)
        rival = WEIGHT if weight is None else weight
        epoch, above = leadership.epoch, rival if give_way else None
        request = await next_request(self.client.core, self.name, epoch, above, wait_ms)
        self._queue.asked = request or self._queue.asked
        return request

    def _elected(self) -> Grant[ClientT]:
        leadership = self._holding.held
        if leadership is None:
            raise NotOwnerError(f"election {self.name!r}: expected to be elected, found it is not")
        return leadership


async def next_request(
    core: AsyncClient, name: str, epoch: int, above: int | None, wait_ms: int | None = None
) -> SuccessionRequest | None:
    """Wait until the elected of ``epoch`` is asked to go, or one heavier than ``above`` waits.

    ``above`` None: none is too heavy. ``wait_ms`` 0 looks once, None waits without end.

    Raises:
        NoAuthError: this client may not look.
        UnavailableError, OutcomeUnknownError: no member answered at the end of the time.
    """

    async def look(*, is_last: bool = False) -> SuccessionRequest | None:
        while (request := await read_request(core, name, epoch)) is None and above is not None:
            weights = await weights_of(core, name)
            view = await core.election(name)
            try:
                heavier = heaviest(weights, above)(view.candidates)
                return SuccessionRequest(epoch, heavier.grant_id, reason=OUTWEIGHED)
            except BadArgumentsError:
                there = {each.session_id for each in (view.elected, *view.candidates) if each}
                coming = weights.keys() - there
                if is_last or all(weights[each] <= above for each in coming):
                    break
            await core.wait(_SOON_MS)  # it has said its weight, and queues up next
        return request

    last = partial(look, is_last=True)
    return await until(core, directory_of(name), "subtree", look, wait_ms, last)
