"""The queues of contenders behind locks and elections: enter, wait for the turn, leave.

A contender is an ephemeral sequential znode below ``<root>/<name>``; the state machine decides who
holds (``state/locks/queues``). The same znodes may be made over the plain tree, in the same queue.
An attempt may enter several queues at once: all or nothing, held once it holds in each of them.

1. One attempt for one request: a repeated request finds its first contenders again.
2. A waiter is woken by the command that grants it, or that ends its contender, and by nothing else;
   it looks and registers in one step of the loop, so none is missed (etcd 17470 is the family).
3. A grant is answered only if, in the applied state it is decided on, the own contenders still
   exist, are owned by the session, and the session is open. A grant after waiting is decided anew
   after a read barrier, because this member may have been paused meanwhile.
4. Whoever holds goes on holding until its znode is deleted. So a grant ends only with its znode.
5. An attempt that ends without a grant leaves nothing behind, or says that it may have.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, NoReturn

from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    LockLostError,
    LockTimeoutError,
    NoLeaderError,
    NoSpaceError,
    OutcomeUnknownError,
    SessionExpiredError,
    ShuttingDownError,
    StorageError,
    ThrottledError,
    UnavailableError,
)
from coordinator.model.acquire import AcquireRequest
from coordinator.model.events import EventType
from coordinator.service.leadership import Leadership
from coordinator.service.locks.contenders import QueuedContender, Recipe, find, first_holder
from coordinator.service.locks.hold_times import LockClasses
from coordinator.service.locks.holder_info import named
from coordinator.service.locks.positions import Positions
from coordinator.service.locks.withdrawals import Leave, Leaving
from coordinator.service.metrics import Metrics
from coordinator.service.proposals import Proposer
from coordinator.service.reads import LINEARIZABLE, Reads
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.service.timers import Timers
from coordinator.service.wakes import Wakes
from coordinator.state.commands import (
    Abandon,
    Command,
    Enter,
    HeldCondition,
    Kind,
    OpenSession,
    Release,
    RequestId,
)
from coordinator.state.outcomes import Created, Entered, Outcome
from coordinator.state.repeats import check_answers

_TRY_DEADLINE_MS_MIN = 250
_SEEN_MS_MAX = 250
"""How long a refusal waits to know who holds."""


class QueueAttempt(NamedTuple):
    """One request to hold: what (several names: all at once), for which session, until when.

    With ``opening`` the same command opens the session; of a repeated request, the first one did.
    """

    recipe: Recipe
    names: tuple[str, ...]
    session_id: str
    data: bytes
    request: RequestId | None
    wait_deadline_ms: int
    describe: Callable[[QueuedContender], Mapping[str, Any]]
    """Shows the present holder in a LockTimeoutError."""
    asked: AcquireRequest = AcquireRequest()
    if_held: tuple[HeldCondition, ...] = ()
    identity: str = ""
    is_try: bool = False
    leave_on_cancel: bool = True
    opening: OpenSession | None = None
    on_queued: Callable[[str, int], None] | None = None
    """Called once, with the session and the position, if it has to wait."""
    on_position: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class _Mine:
    """One znode of an attempt."""

    path: str
    czxid: int
    session_id: str

    @classmethod
    def of(cls, created: Created) -> _Mine:
        return cls(created.path, created.stat.czxid, created.stat.ephemeral_owner or "")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an attempt stands: ``position`` is the greatest of its queues."""

    is_holder: bool
    position: int


_Waiter = asyncio.Future[None]
"""One attempt that waits to be granted, or for its contenders to go."""


class Queues:
    """All waiting contenders of one member, of every recipe."""

    def __init__(
        self,
        *,
        proposer: Proposer,
        reads: Reads,
        replica: MachineReplica,
        leadership: Leadership,
        timers: Timers,
        clock: Clock,
        tasks: Tasks,
        metrics: Metrics,
        classes: LockClasses,
        entropy: random.Random,
        waiters_max: int,
    ) -> None:
        self._proposer = proposer
        self._reads = reads
        self._replica = replica
        self._leadership = leadership
        self._timers = timers
        self._clock = clock
        self._metrics = metrics
        self._grants = cache(metrics.grants.labels)
        self._wait_seconds = cache(metrics.wait_seconds.labels)
        self._classes = classes
        self._entropy = entropy
        self._waiters_max = waiters_max
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._wakes = Wakes()
        self._attempt_count = 0
        self._leaving = Leaving(
            proposer=proposer,
            replica=replica,
            leadership=leadership,
            timers=timers,
            clock=clock,
            tasks=tasks,
            count_max=waiters_max,
        )
        self._positions = Positions(replica, clock, timers)

    async def acquire(self, attempt: QueueAttempt) -> tuple[QueuedContender, ...]:
        """Enter the queues and return the contenders, in canonical order, once all of them hold.

        Raises:
            LockTimeoutError: not granted in time (or at once, for a try); nothing was left behind.
            DeadlockError: the wait could never end; ``cycle`` says why, and nothing was left.
            SessionExpiredError, LockLostError: the contender ended while it waited.
            NoLeaderError, ThrottledError, ShuttingDownError: nothing was or will be proposed.
            NoSpaceError: the same, or this member could not see what came of it, and took it back.
            OutcomeUnknownError: a contender may stand in the queue.
        """
        if self._attempt_count >= self._waiters_max:
            raise ThrottledError(f"{self._attempt_count} contenders wait on this member already")
        request = attempt.request or self._own_request()
        started_ms = self._clock.monotonic_ms()
        self._attempt_count += 1
        self._metrics.contenders_waiting.set(self._attempt_count)
        mine: tuple[_Mine, ...] = ()
        try:
            mine = await self._enter(attempt, request)
            if attempt.opening is not None:
                attempt = attempt._replace(session_id=mine[0].session_id)
            won = await self._granted(attempt, mine)
        except asyncio.CancelledError:
            if attempt.leave_on_cancel and not self._leadership.is_stopping:
                known = _releasing(attempt, mine[0]) if mine and attempt.request else None
                self._leaving.start(known or _abandoning(attempt, request))
            raise
        finally:
            self._attempt_count -= 1
            self._metrics.contenders_waiting.set(self._attempt_count)
        waited_s = (self._clock.monotonic_ms() - started_ms) / 1000
        word, lock_class = attempt.recipe.word, self._classes.at(mine[0].path)
        self._grants(word).inc()
        self._wait_seconds(word, lock_class).observe(waited_s)
        return won

    # --- told by the replica

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Wake those whose contender was granted or deleted by this command."""
        if outcome.is_repeat:
            return
        for path in outcome.granted:
            for waiter in self._waiting.pop(path, ()):
                self._wake(waiter, is_granted=True)
        for event in outcome.events:
            if event.type is EventType.DELETED:
                for waiter in self._waiting.pop(event.path, ()):
                    self._wake(waiter, is_granted=False)
                self._positions.on_deleted(event.path)

    def on_restore(self) -> None:
        """Anything may have gone: everybody looks again."""
        for waiter in [each for waiters in self._waiting.values() for each in waiters]:
            self._wake(waiter, is_granted=False)
        self._waiting.clear()
        self._positions.on_restore()

    def close(self) -> None:
        """Wake everybody, when the member stops; their contenders stay in the queue."""
        self.on_restore()

    # --- the steps of an attempt

    async def _enter(self, attempt: QueueAttempt, request: RequestId) -> tuple[_Mine, ...]:
        """Create the contenders, or find those that this request created before."""
        recipe, asked = attempt.recipe, attempt.asked
        kind = Kind(asked.kind)
        directories = recipe.directories(attempt.names)
        operation = Enter(
            directories=directories,
            prefix=recipe.prefixes[kind],
            kind=kind,
            session_id=attempt.session_id,
            data=attempt.data,
            owner=asked.owner,
            is_try=attempt.is_try,
            lock_delay_ms=asked.lock_delay_ms,
            max_hold_ms=asked.max_hold_ms,
            size=asked.size,
            opening=attempt.opening,
        )
        deadline_ms = attempt.wait_deadline_ms
        if attempt.is_try:
            deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + _TRY_DEADLINE_MS_MIN)
        try:
            committed = await self._proposer.submit(
                operation,
                request=request,
                identity=attempt.identity,
                deadline_ms=deadline_ms,
                if_held=attempt.if_held,
            )
        except BadArgumentsError as error:
            if error.fields.get("is_abandoned"):
                await self._raise_timeout(attempt, position=None)
            raise
        except (OutcomeUnknownError, StorageError):
            await self._undo(attempt, _abandoning(attempt, request), position=None)
            raise
        check_answers(operation, committed.outcome)  # the number may have had another use
        result = committed.outcome.unwrap()
        assert isinstance(result, Entered), "an enter comes to an Entered"
        if not result.is_entered:
            await self._raise_timeout(attempt, position=None, is_seen=committed.is_local)
        if not committed.is_local:  # it stands, but this member cannot see it
            first = result.contenders[0]
            leave, path = _releasing(attempt, _Mine.of(first)), directories[0]
            if self._clock.monotonic_ms() < deadline_ms:  # and never will: its disk is full
                no_room = NoSpaceError("the disk of this member is full; acquire at another member")
                await self._raise_unseen(attempt, leave, path, no_room)
            await self._undo(attempt, leave, position=None)
            raise _stands_error(path)
        return tuple([self._checked(attempt, each) for each in result.contenders])

    def _checked(self, attempt: QueueAttempt, created: Created) -> _Mine:
        mine = _Mine.of(created)
        if mine.session_id != attempt.session_id and attempt.opening is None:
            raise BadArgumentsError(
                f"this request number was used before, for {mine.path} of session "
                f"{mine.session_id}; found session {attempt.session_id}"
            )
        return mine

    async def _granted(
        self, attempt: QueueAttempt, mine: tuple[_Mine, ...]
    ) -> tuple[QueuedContender, ...]:
        """Wait until every one of ``mine`` holds, by the wait deadline."""
        position: int | None = None
        # What a try finds waiting is of an earlier request of the same number, which would wait.
        until_ms = self._clock.monotonic_ms() if attempt.is_try else attempt.wait_deadline_ms
        try:
            async with self._timers.deadline(until_ms):
                place = self._place(attempt, mine)
                if not place.is_holder:
                    position = place.position
                    await self._until_holder(attempt, mine, place)
                return self._held(mine)
        except ShuttingDownError:
            raise _stands_error(mine[0].path) from None
        except (TimeoutError, NoLeaderError):
            if all(map(self._is_there, mine)):
                position = self._place(attempt, mine).position
            await self._undo(attempt, _releasing(attempt, mine[0]), position)
            raise _stands_error(mine[0].path) from None
        except UnavailableError as error:  # of the read barrier: its disk is full
            leave = _releasing(attempt, mine[0])
            await self._raise_unseen(attempt, leave, mine[0].path, error)

    async def _until_holder(
        self, attempt: QueueAttempt, mine: tuple[_Mine, ...], place: _Place
    ) -> None:
        observer = None
        if attempt.on_queued is not None:
            attempt.on_queued(attempt.session_id, place.position)
        if attempt.on_position is not None:
            paths = tuple([each.path for each in mine])
            observer = self._positions.observe(paths, place.position, attempt.on_position)
        try:
            is_confirmed = False
            while not (place.is_holder and is_confirmed):
                if place.is_holder:
                    await self._reads.fresh(LINEARIZABLE, attempt.wait_deadline_ms)
                    is_confirmed = True
                else:
                    await self._until_told(mine)
                place = self._place(attempt, mine)
        finally:
            if observer is not None:
                self._positions.forget(observer)

    async def _until_told(self, mine: tuple[_Mine, ...]) -> None:
        """Return when one of ``mine`` was granted or has gone, or all must look again."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        for each in mine:
            self._waiting.setdefault(each.path, {})[waiter] = None
        try:
            await waiter
        finally:
            for each in mine:
                waiters = self._waiting.get(each.path, {})
                waiters.pop(waiter, None)
                if not waiters:
                    self._waiting.pop(each.path, None)
        if self._leadership.is_stopping:
            raise _stands_error(mine[0].path)

    def _wake(self, waiter: _Waiter, *, is_granted: bool) -> None:
        if not waiter.done():
            self._wakes.wake(waiter)
            if is_granted:
                self._metrics.wakeups.inc()

    def _is_there(self, mine: _Mine) -> bool:
        found = self._replica.machine.locks.record(mine.path)
        return found is not None and found.czxid == mine.czxid

    def _place(self, attempt: QueueAttempt, mine: tuple[_Mine, ...]) -> _Place:
        """Decide on the state applied here; raise if a contender is not there any more."""
        machine = self._replica.machine
        for each in mine:
            is_open = machine.session(attempt.session_id) is not None
            if is_open and self._is_there(each):
                continue
            if not is_open:
                raise SessionExpiredError(
                    f"session {attempt.session_id} has ended, and {each.path} with it",
                    session_id=attempt.session_id,
                )
            raise LockLostError(
                f"{each.path} is not in the queue any more: it was released, abandoned, taken out, "
                "or left when its time was up",
                path=each.path,
            )
        standings = [machine.locks.standing(each.path) for each in mine]
        return _Place(
            is_holder=all(each.is_holder for each in standings),
            position=max(each.position for each in standings),
        )

    def _held(self, mine: tuple[_Mine, ...]) -> tuple[QueuedContender, ...]:
        """Return the contenders that were just seen to hold, in the same step."""
        machine = self._replica.machine
        won = [find(machine, each.path) for each in mine]
        return tuple([each for each in won if each is not None])

    # --- leaving nothing behind

    async def _undo(self, attempt: QueueAttempt, leave: Leave, position: int | None) -> None:
        """Take the attempt back and raise LockTimeoutError; return if nobody confirmed it in time.

        It goes on in the background then.
        """
        if await self._leaving.is_done(leave):
            await self._raise_timeout(attempt, position)

    async def _raise_unseen(
        self, attempt: QueueAttempt, leave: Leave, path: str, error: UnavailableError
    ) -> NoReturn:
        """End an attempt that this member cannot follow, before its time is up.

        With a request number it is had at another member, so it is left standing; without one
        nobody can repeat it, so it is taken back, and ``error`` is true.
        """
        if attempt.request is None and await self._leaving.is_done(leave):
            raise error
        raise _stands_error(path) from error

    def _own_request(self) -> RequestId:
        """Make an attempt without a request number safe to repeat between members all the same."""
        client_id = f"member-{self._entropy.getrandbits(128):032x}"
        return RequestId(client_id, 1, self._replica.machine.applied_index)

    async def present_holder(self, directory: str, deadline_ms: int) -> QueuedContender | None:
        """Return who holds; nobody if this member may lag behind, rather than who held before."""
        if not await self._is_up_to_date(deadline_ms):
            return None
        return first_holder(self._replica.machine, directory)

    async def _is_up_to_date(self, deadline_ms: int | None = None) -> bool:
        """Whether this member has seen, within a moment, all that was answered before."""
        seen_ms = self._clock.monotonic_ms() + _SEEN_MS_MAX
        deadline_ms = seen_ms if deadline_ms is None else min(seen_ms, deadline_ms)
        try:
            async with self._timers.deadline(deadline_ms):
                await self._reads.fresh(LINEARIZABLE, deadline_ms)
        except (TimeoutError, UnavailableError, OutcomeUnknownError):
            return False
        return True

    async def _raise_timeout(
        self, attempt: QueueAttempt, position: int | None, *, is_seen: bool = False
    ) -> NoReturn:
        """Raise with who holds; with nobody, rather than with one who has given it back.

        ``is_seen``: what came of the attempt is applied here, and so is all that was before it.
        """
        is_seen = is_seen or await self._is_up_to_date()
        machine, recipe = self._replica.machine, attempt.recipe
        directories = recipe.directories(attempt.names)
        holders = [first_holder(machine, each) for each in directories]
        closings = [machine.locks.closed(each) for each in directories]
        in_the_way = [at for at, each in enumerate(holders) if each or closings[at]]
        at = in_the_way[0] if in_the_way else 0
        holder, name = holders[at], recipe.name_at(directories[at])
        delayed = "; it is closed for a while, after a holder was lost" if closings[at] else ""
        described = attempt.describe(holder) if holder is not None and is_seen else None
        held_by = "" if described is None else f"; held by {named(described)}"
        raise LockTimeoutError(
            f"{recipe.word} {name!r} was not granted in time{delayed}{held_by}",
            lock=name,
            holder=described,
            position=position,
            zxid=machine.zxid,
        )


def _abandoning(attempt: QueueAttempt, request: RequestId) -> Leave:
    """Return what takes back an attempt of which it may not be known where it stands."""
    has_number = attempt.request is not None
    operation = Abandon(*request, spares_holder=has_number)
    return Leave(operation, attempt.session_id, attempt.recipe.word, has_number)


def _releasing(attempt: QueueAttempt, mine: _Mine) -> Leave:
    """Return what takes back an attempt whose own request was seen in the log."""
    has_number = attempt.request is not None
    operation = Release(mine.path, mine.czxid, spares_repeated=has_number)
    return Leave(operation, attempt.session_id, attempt.recipe.word, has_number)


def _stands_error(path: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"this member can wait no longer, and the attempt may still be queued ({path}): "
        "repeat it with the same request number, at any member, or abandon it",
        path=path,
    )
