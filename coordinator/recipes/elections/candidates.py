"""The queue of an election as a candidate uses it: a lock's queue, and the order of weights.

1. A candidate that was passed over by a hand-over enters again, within the same wait.
2. One with a weight that is elected while a heavier one waits hands over at once, before its caller
   hears of it. No work was done under that epoch.
3. One with a file (``resuming``) that finds its predecessor elected, and dead, takes over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

from coordinator.client import AsyncClient
from coordinator.client.locks import Acquired, AcquireRequest, GrantReply, LockQueue
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NotOwnerError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.elections.resuming import LeadershipFile, Left
from coordinator.recipes.elections.succession import Choice, SuccessionRequest, of_session, succeed
from coordinator.recipes.elections.weights import OUTWEIGHED, announced, heaviest, weights_of

_LOOK_MS = 200
"""How often the file of a predecessor that still runs is looked at."""
_SETTLES_S = 0.2
"""How long the answer to a take-over that has succeeded may come after the grant."""


class CandidacyWait:
    """How long one candidacy waits in all, however often it enters."""

    def __init__(self, core: AsyncClient, wait_ms: int | None) -> None:
        self._clock = clock = core.clock
        self._wait_ms = wait_ms
        self._ends_ms = None if wait_ms is None else clock.monotonic_ms() + wait_ms
        self._is_first = True

    def left_ms(self) -> int | None:
        """Return for how long to wait now: 0 once, None without end."""
        if self._ends_ms is None or self._is_first:
            return self._wait_ms
        return max(1, self._ends_ms - self._clock.monotonic_ms())

    def go_on(self, because: str) -> None:
        """Enter once more; raises LockTimeoutError when the time is over."""
        self._is_first = False
        if self._ends_ms is not None and self._ends_ms <= self._clock.monotonic_ms():
            raise LockTimeoutError(because)


class CandidateQueue:
    """What a candidate acquires its leadership from, and gives it back to."""

    is_election = True

    def __init__(
        self, core: AsyncClient, name: str, weight: int | None, file: LeadershipFile | None
    ) -> None:
        self.names: tuple[str, ...] = (name,)
        self.weight = weight
        self.file = file
        self.resumed = False
        """Whether the present leadership was taken over from a predecessor."""
        self.choice: Choice | None = None
        """Who is to be elected next, while that is being done."""
        self.asked: SuccessionRequest | None = None
        """What asked the elected of its epoch for that, if anything did: it is recorded."""
        self._core = core
        self._queue: LockQueue = core.lock_queue(name, is_election=True)

    async def acquire(
        self,
        request: AcquireRequest,
        wait_ms: int | None,
        on_position: Callable[[int], object] | None = None,
    ) -> Acquired:
        """Wait until elected, as ``LockQueue.acquire`` does."""
        core, name = self._core, self.names[0]
        wait = CandidacyWait(core, wait_ms)
        if self.weight is None and self.file is None:
            return await self._entered(request, wait, on_position)
        if self.weight == 0:
            raise BadArgumentsError(
                f"election {name!r}: expected a candidate, found weight 0, which is never elected; "
                f"who() and observe() need no candidacy"
            )
        async with AsyncExitStack() as stack:
            if self.file is not None:
                stack.enter_context(self.file)
            if self.weight is not None:
                await stack.enter_async_context(announced(core, name, self.weight))
            acquired = await self._taken_over(request, wait, on_position)
            while await self._has_ceded(acquired):
                wait.go_on("a heavier candidate is elected")
                acquired = await self._entered(request, wait, on_position)
            self._leave_to_successor(acquired)
        return acquired

    async def release(self, grant: GrantReply) -> bool:
        """Resign, or hand over to the ``choice``; False when it was not elected."""
        if self.choice is None:
            was_held = await self._queue.release(grant)
        else:
            try:
                epoch, asked = grant.fencing_token, self.asked
                is_asked = asked is not None and asked.epoch == epoch
                by, reason = (asked.by, asked.reason) if asked and is_asked else ("", "")
                await succeed(self._core, grant.lock, epoch, self.choice, by=by, reason=reason)
                was_held = True
            except NotOwnerError:
                was_held = False
        if self.file is not None:
            self.file.give_up(grant.fencing_token)
        return was_held

    async def is_current(self, grant: GrantReply) -> tuple[bool, int]:
        """Return whether the cluster says that this grant is elected, and as of which zxid."""
        return await self._queue.is_current(grant)

    async def note(self, grant: GrantReply, note: bytes) -> None:
        """Refuse: an election has a value instead."""
        await self._queue.note(grant, note)

    async def downgrade(self, grant: GrantReply) -> Any:
        """Refuse: the elected is one."""
        return await self._queue.downgrade(grant)

    async def extend(self, grant: GrantReply, *, by_ms: int = 0, to_ms: int = 0) -> int:
        """Refuse: a leadership has no longest time."""
        return await self._queue.extend(grant, by_ms=by_ms, to_ms=to_ms)

    def clean_up(self, work: Coroutine[Any, Any, Any], name: str, owner: str) -> asyncio.Task[Any]:
        """Run ``work`` in the background, as ``LockQueue.clean_up``."""
        return self._queue.clean_up(work, name, owner)

    async def pause(self, owner: str, pause_ms: int) -> None:
        """Wait before a clean-up tries again, as ``LockQueue.pause`` does."""
        await self._queue.pause(owner, pause_ms)

    def begin_release(self, owner: str) -> None:
        """Count a release, as ``LockQueue.begin_release`` does."""
        self._queue.begin_release(owner)

    def end_release(self, owner: str) -> None:
        """End the count of this release."""
        self._queue.end_release(owner)

    # --- inside

    async def _entered(
        self,
        request: AcquireRequest,
        wait: CandidacyWait,
        on_position: Callable[[int], object] | None,
    ) -> Acquired:
        """Wait in the queue; enter again if this candidate was passed over."""
        while True:
            try:
                return await self._queue.acquire(request, wait.left_ms(), on_position)
            except LockLostError as error:
                wait.go_on(error.message)

    async def _taken_over(
        self,
        request: AcquireRequest,
        wait: CandidacyWait,
        on_position: Callable[[int], object] | None,
    ) -> Acquired:
        self.resumed = False
        file = self.file
        if file is None:
            return await self._entered(request, wait, on_position)
        file.take()  # a file that cannot be used is said before anything is waited for
        taking: list[asyncio.Task[None]] = []

        def on_queued(position: int) -> object:
            if position and not taking:
                taking.append(asyncio.create_task(self._take_over(file)))
            return None if on_position is None else on_position(position)

        try:
            acquired = await self._entered(request, wait, on_queued)
            if taking:
                try:
                    await asyncio.wait(taking, timeout=_SETTLES_S)
                except BaseException:
                    self._give_up(acquired)
                    raise
            return acquired
        finally:
            for each in taking:
                each.cancel()

    async def _take_over(self, file: LeadershipFile) -> None:
        """Let this candidate succeed the process that wrote the file, when that is dead."""
        core, failures = self._core, 0
        while (left := file.take()) is None and file.fileno() is None:
            await core.wait(_LOOK_MS)  # it is ending, or lives
        if left is None or left.election != self.names[0]:
            return
        while True:
            try:
                choose = of_session((await core.session()).session_id)
                await succeed(
                    core,
                    left.election,
                    left.epoch,
                    choose,
                    session_id=left.session_id,
                    reason="its program was started again",
                )
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await core.wait(core.retry_delay_ms(failures))
            except CoordinatorError:
                return  # it waits for its turn, as every candidate
            else:
                self.resumed = True
                return

    async def _has_ceded(self, acquired: Acquired) -> bool:
        """Whether a heavier candidate waited, and is elected instead."""
        if self.weight is None:
            return False
        core, grant = self._core, acquired.grant
        try:
            choose = heaviest(await weights_of(core, grant.lock), above=self.weight)
            await succeed(core, grant.lock, grant.fencing_token, choose, reason=OUTWEIGHED)
        except (OutcomeUnknownError, NotOwnerError):
            self._give_up(acquired)  # in either case it does not lead on
        except CoordinatorError:
            return False  # none is heavier, or no member answered
        except BaseException:
            self._give_up(acquired)
            raise
        acquired.stop_watching()
        return True

    def _leave_to_successor(self, acquired: Acquired) -> None:
        if self.file is None:
            return
        grant = acquired.grant
        try:
            self.file.write(Left(grant.lock, grant.fencing_token, grant.session_id))
        except OSError as error:  # as of a full disk; raised, because it was asked for
            self._give_up(acquired)
            raise BadArgumentsError(
                f"resume: expected a file that can be written, found: {error.strerror}"
            ) from None
        except BaseException:
            self._give_up(acquired)
            raise

    def _give_up(self, acquired: Acquired) -> None:
        acquired.stop_watching()
        self._core.background.start(self._resigned(acquired), f"give up {acquired.grant.grant_id}")

    async def _resigned(self, acquired: Acquired) -> None:
        failures = 0
        while not acquired.session.is_lost:
            try:
                await self._queue.release(acquired.grant)
                return
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await self._core.wait(self._core.retry_delay_ms(failures))
