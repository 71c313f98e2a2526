"""The queues of contenders behind locks and elections: enter, wait for the turn, leave.

A contender is an ephemeral sequential znode below ``<root>/<name>``; the state machine decides who
holds (``state/locks/queues``). The same znodes may be made over the plain tree, in the same queue.
An attempt may enter several queues at once: all or nothing, held once it holds in each of them.

1. One attempt for one request: a repeated request finds its first contenders again.
2. A waiter is woken by the command that grants it, or that ends its contender, and by nothing else;
   it looks and registers in one step of the loop, so none is missed (etcd 17470 is the family).
3. A grant is answered only if, in the applied state it is decided on, the own contenders still
   exist, are owned by the session, and the session is open. This member may have been paused since
   it applied the grant, so a grant after waiting is decided again after a read barrier, unless this
   member certainly led so lately that no lease can have ended without it (``_has_lasted``).
4. A holder goes on until its znode is deleted. So a grant ends only with its znode.
5. An attempt that ends without a grant leaves nothing behind, or says that it may have.
6. A lock that is held by hand (``manual_holds``) is not answered as granted before that has ended.
   Such a hold begins only while its maker holds the lock itself, so none begins after the look.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NoLeaderError,
    NoSpaceError,
    OutcomeUnknownError,
    SessionExpiredError,
    ShuttingDownError,
    StorageError,
    UnavailableError,
)
from coordinator.model.access import Verb
from coordinator.model.events import EventType
from coordinator.model.sessions import safe_ms
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import QUEUES, Interest
from coordinator.service.base.wakes import Wakes
from coordinator.service.locks.attempts import (
    Mine,
    QueueAttempt,
    QueuePosition,
    WaitingRoom,
    abandoning,
    not_in_time,
    releasing,
)
from coordinator.service.locks.contenders import QueuedContender, first_holder, there
from coordinator.service.locks.hold_times import LockClasses
from coordinator.service.locks.manual_holds import hold_path, is_held_by_hand
from coordinator.service.locks.positions import Positions
from coordinator.service.locks.withdrawals import Leave, Leaving
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.service.writes.proposals import Proposer, RequestContext, SubmitOptions
from coordinator.state.commands import (
    EXCLUSIVE,
    Command,
    Enter,
    Kind,
    RequestId,
)
from coordinator.state.outcomes import Created, Entered, Outcome
from coordinator.state.paths import parent_of

_TRY_DEADLINE_MS_MIN: Final = 250
_SEEN_MS_MAX: Final = 250
"""How long a refusal waits to know who holds."""


_KINDS: Final[dict[str, Kind]] = {each.value: each for each in Kind}
_HOLDS: Final = QueuePosition(is_holder=True, position=0)

_Waiter = asyncio.Future[None]  # of an attempt that waits to be granted, or for an end of it


class Queues:
    """All waiting contenders of one member, of every recipe."""

    interest: ClassVar[Interest] = QUEUES

    def __init__(
        self, context: MemberContext, *, proposer: Proposer, reads: Reads, classes: LockClasses
    ) -> None:
        self._proposer = proposer
        self._reads = reads
        self._replica = context.replica
        self._leadership = context.leadership
        self._engine = context.engine
        self._timers = context.timers
        self._clock = context.clock
        self._metrics = context.metrics
        self._grants = context.metrics.grants.labels
        self._wait_seconds = context.metrics.wait_seconds.labels
        self._classes = classes
        self._entropy = context.random
        self._room = WaitingRoom(context, reads)
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._wakes = Wakes()
        self._leaving = Leaving(context, proposer)
        self._positions = Positions(context.replica, context.clock, context.timers)

    async def acquire(self, attempt: QueueAttempt) -> tuple[QueuedContender, ...]:
        """Enter the queues and return the contenders, in canonical order, once all of them hold.

        Raises:
            LockTimeoutError: not granted in time (or at once, for a try); nothing was left behind.
            DeadlockError: the wait could never end; ``cycle`` says why, and nothing was left.
            SessionExpiredError, LockLostError: the contender ended while it waited.
            NoAuthError: the identity of the session may not lock there, or no longer.
            NoLeaderError, ThrottledError, ShuttingDownError: nothing was or will be proposed.
            NoSpaceError: the same, or this member could not see what came of it, and took it back.
            OutcomeUnknownError: a contender may stand in the queue.
        """
        place = await self._room.enter(attempt)
        request = attempt.request or attempt.own_request or self._own_request()
        started_ms = self._clock.monotonic_ms()
        mine: tuple[Mine, ...] = ()
        try:
            mine = await self._enter(attempt, request)
            if attempt.opening is not None:
                attempt.session_id = mine[0].session_id
            won = await self._granted(attempt, mine)
        except asyncio.CancelledError:
            if attempt.leave_on_cancel and not self._leadership.is_stopping:
                known = releasing(attempt, mine[0]) if mine and attempt.request else None
                self._leaving.start(known or abandoning(attempt, request))
            raise
        finally:
            self._room.leave(place)
        waited_s = (self._clock.monotonic_ms() - started_ms) / 1000
        word, lock_class = attempt.recipe.word, self._classes.at(mine[0].path)
        self._grants(word).inc()
        self._wait_seconds(word, lock_class).observe(waited_s)
        return won

    # --- reported by the replica

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Wake those whose contender was granted or deleted by this command."""
        if outcome.is_repeat or not (self._waiting or self._positions.are_observed):
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
        """Any contender may have left: wake all that wait, to look again."""
        for waiter in [each for waiters in self._waiting.values() for each in waiters]:
            self._wake(waiter, is_granted=False)
        self._waiting.clear()
        self._positions.on_restore()

    def close(self) -> None:
        """Wake all that wait, when the member stops; their contenders stay in the queue."""
        self.on_restore()

    # --- the steps of an attempt

    async def _enter(self, attempt: QueueAttempt, request: RequestId) -> tuple[Mine, ...]:
        """Create the contenders, or find those that this request created before."""
        recipe, wanted = attempt.recipe, attempt.wanted
        kind = _KINDS[wanted.kind]
        directories = recipe.directories(attempt.names)
        operation = Enter(
            directories, recipe.prefixes[kind], kind, attempt.session_id, attempt.data,
            wanted.owner, attempt.is_try, wanted.lock_delay_ms, wanted.max_hold_ms, wanted.size,
            attempt.opening,
        )  # fmt: skip
        deadline_ms = attempt.wait_deadline_ms
        if attempt.is_try:
            deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + _TRY_DEADLINE_MS_MIN)
        failed: CoordinatorError | None = None
        try:
            committed = await self._proposer.submit(
                operation,
                RequestContext(request, deadline_ms, attempt.caller, attempt.if_held),
                SubmitOptions(
                    is_long=True,
                    is_patient=not attempt.is_try and self._will_wait(kind, directories),
                ),
            )
        except CoordinatorError as error:
            failed = error
        if failed is not None:
            try:
                raise await self._why_not_entered(attempt, request, failed, deadline_ms)
            finally:
                del failed  # its frames hold it: no cycle is left for the collector
        result = committed.result(Entered)
        attempt.note_entered(result.is_entered)
        if not result.is_entered:
            raise await self._timeout_error(attempt, position=None, is_seen=committed.is_local)
        if not committed.is_local:  # it is queued, but this member cannot see it
            first = result.contenders[0]
            leave, path = releasing(attempt, Mine.of(first)), directories[0]
            if self._clock.monotonic_ms() < deadline_ms:  # cut off, or its disk is full
                raise await self._unseen_error(attempt, leave, path, self._why_unseen())
            raise await self._undone(attempt, leave, position=None) or _queued_error(path)
        return tuple([self._checked(attempt, each) for each in result.contenders])

    async def _why_not_entered(
        self, attempt: QueueAttempt, request: RequestId, error: CoordinatorError, deadline_ms: int
    ) -> CoordinatorError:
        """Return the error of an attempt whose command ended with ``error``."""
        if isinstance(error, OutcomeUnknownError | StorageError):
            is_early = self._clock.monotonic_ms() < deadline_ms
            if attempt.request is not None and is_early and isinstance(error, OutcomeUnknownError):
                return error  # it is repeated at another member
            leave = abandoning(attempt, request)
            return await self._undone(attempt, leave, position=None) or error
        if error.fields.get("is_abandoned"):
            return await self._timeout_error(attempt, position=None)
        attempt.note_entered(False)
        return error

    def _will_wait(self, kind: Kind, directories: tuple[str, ...]) -> bool:
        """Whether others hold now: then the release that grants may well share this one's round."""
        if kind is not EXCLUSIVE:
            return False
        locks = self._replica.machine.locks
        return all(locks.holder_count(each) for each in directories)

    def _checked(self, attempt: QueueAttempt, created: Created) -> Mine:
        mine = Mine.of(created)
        if mine.session_id != attempt.session_id and attempt.opening is None:
            raise BadArgumentsError(
                f"this request number was used before, for {mine.path} of session "
                f"{mine.session_id}; found session {attempt.session_id}"
            )
        return mine

    async def _granted(
        self, attempt: QueueAttempt, mine: tuple[Mine, ...]
    ) -> tuple[QueuedContender, ...]:
        """Wait until every one of ``mine`` holds, by the wait deadline."""
        won, place = self._look(attempt, mine)
        if place.is_holder and not attempt.is_try:
            return won  # without a timer; that of a try is in the traces of the worlds
        position = place.position or None
        # What a try finds waiting is of an earlier request of the same number, which would wait.
        until_ms = self._clock.monotonic_ms() if attempt.is_try else attempt.wait_deadline_ms
        deadline = self._timers.deadline(until_ms)
        try:
            async with deadline:
                self._leadership.stay(deadline)
                if place.is_holder:
                    return won
                return await self._until_holder(attempt, mine, place)
        except ShuttingDownError:
            raise _queued_error(mine[0].path) from None
        except (TimeoutError, UnavailableError) as error:
            failed = error
        finally:
            self._leadership.leave(deadline)
        try:
            raise await self._why_not_granted(attempt, mine, failed, position, until_ms)
        finally:
            del failed  # its frames hold it: no cycle is left for the collector

    async def _why_not_granted(
        self,
        attempt: QueueAttempt,
        mine: tuple[Mine, ...],
        error: TimeoutError | UnavailableError,
        position: int | None,
        until_ms: int,
    ) -> CoordinatorError:
        """Return the error of an attempt whose wait ended with ``error``."""
        leave, path = releasing(attempt, mine[0]), mine[0].path
        if not isinstance(error, TimeoutError | NoLeaderError):  # of the read barrier: a full disk
            return await self._unseen_error(attempt, leave, path, error)
        if self._clock.monotonic_ms() < until_ms:  # cut off
            return await self._unseen_error(attempt, leave, path, self._why_unseen())
        if all(map(self._is_there, mine)):
            position = self._look(attempt, mine)[1].position
        return await self._undone(attempt, leave, position) or _queued_error(path)

    async def _until_holder(
        self, attempt: QueueAttempt, mine: tuple[Mine, ...], place: QueuePosition
    ) -> tuple[QueuedContender, ...]:
        won: tuple[QueuedContender, ...] = ()
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
                    if not self._has_lasted(attempt):
                        await self._reads.fresh(LINEARIZABLE, attempt.wait_deadline_ms)
                    is_confirmed = True
                else:
                    await self._until_woken(mine)
                won, place = self._look(attempt, mine)
        finally:
            if observer is not None:
                self._positions.forget(observer)
        return won

    def _has_lasted(self, attempt: QueueAttempt) -> bool:
        """Whether what is granted here cannot have ended by silence, or by its bound, elsewhere.

        This member led at ``led_ms``; a later leader starts every lease and bounded hold in full.
        What this one ends itself is applied here. People (a forced release) and the session's own
        client end a grant at any time: then an answer on its way is as late as a paused member's.
        """
        session, led_ms = self._replica.machine.session(attempt.session_id), self._engine.led_ms
        if session is None or led_ms is None:
            return False
        least_ms = min(session.timeout_ms, attempt.wanted.max_hold_ms or session.timeout_ms)
        return self._clock.monotonic_ms() - led_ms < safe_ms(least_ms, least_ms)

    async def _until_woken(self, mine: tuple[Mine, ...]) -> None:
        """Return when one of ``mine`` was granted or has gone, or all must look again."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        paths = [each.path for each in mine]
        paths += [hold_path(parent_of(each.path)) for each in mine if self._is_kept_out(each)]
        for path in paths:
            self._waiting.setdefault(path, {})[waiter] = None
        try:
            await waiter
        finally:
            for path in paths:
                waiters = self._waiting.get(path, {})
                waiters.pop(waiter, None)
                if not waiters:
                    self._waiting.pop(path, None)
        if self._leadership.is_stopping:
            raise _queued_error(mine[0].path)

    def _wake(self, waiter: _Waiter, *, is_granted: bool) -> None:
        if not waiter.done():
            self._wakes.wake(waiter)
            if is_granted:
                self._metrics.wakeups.inc()

    def _is_there(self, mine: Mine) -> bool:
        found = self._replica.machine.locks.record(mine.path)
        return found is not None and found.czxid == mine.czxid

    def _is_kept_out(self, mine: Mine) -> bool:
        """Whether it has its turn in a queue whose lock is held by hand."""
        machine = self._replica.machine
        found = machine.locks.record(mine.path)
        return (
            found is not None
            and found.granted_zxid is not None
            and is_held_by_hand(machine, parent_of(mine.path))
        )

    def _look(
        self, attempt: QueueAttempt, mine: tuple[Mine, ...]
    ) -> tuple[tuple[QueuedContender, ...], QueuePosition]:
        """Return the contenders and their place, decided on the state applied here.

        Raises:
            SessionExpiredError, LockLostError, NoAuthError: one is not there any more.
        """
        machine, position = self._replica.machine, 0
        locks, found = machine.locks, []
        for each in mine:
            if machine.session(attempt.session_id) is None:
                raise SessionExpiredError(
                    f"session {attempt.session_id} has ended, and {each.path} with it",
                    session_id=attempt.session_id,
                )
            recorded = locks.record(each.path)
            if recorded is None or recorded.czxid != each.czxid:
                self._check_rights(attempt, mine)
                raise LockLostError(
                    f"{each.path} is not in the queue any more: it was released, abandoned, taken "
                    "out, or left when its time was up",
                    path=each.path,
                )
            if recorded.granted_zxid is None:
                position = max(position, locks.standing(each.path).position)
            elif is_held_by_hand(machine, parent_of(each.path)):
                position = max(position, 1)
            found.append(there(machine, recorded))
        return tuple(found), _HOLDS if not position else QueuePosition(False, position)

    def _check_rights(self, attempt: QueueAttempt, mine: tuple[Mine, ...]) -> None:
        """Raise NoAuth if it was taken out since its identity has lost the right to the lock."""
        machine = self._replica.machine
        session = machine.session(attempt.session_id)
        if session is not None:
            for each in mine:
                machine.access.check(session.caller, Verb.LOCK, parent_of(each.path))

    # --- leaving nothing behind

    async def _undone(
        self, attempt: QueueAttempt, leave: Leave, position: int | None
    ) -> LockTimeoutError | None:
        """Withdraw the attempt; return its error, None if that was not confirmed.

        It goes on in the background then.
        """
        if await self._leaving.is_done(leave):
            return await self._timeout_error(attempt, position)
        return None

    async def _unseen_error(
        self, attempt: QueueAttempt, leave: Leave, path: str, error: UnavailableError
    ) -> CoordinatorError:
        """Return how an attempt ends that this member cannot follow, before its time is up.

        With a request number it can be sent to another member, so it is left in the queue; without
        one it cannot, so it is withdrawn, and ``error`` is true.
        """
        if attempt.request is None and await self._leaving.is_done(leave):
            return error
        queued = _queued_error(path)
        queued.__cause__ = error
        return queued

    def _why_unseen(self) -> UnavailableError:
        """Return why this member does not see what the others have applied."""
        if self._leadership.known_leader() is None:
            return self._leadership.unled_error("acquire at another member")
        return NoSpaceError("the disk of this member is full; acquire at another member")

    def _own_request(self) -> RequestId:
        """Make an attempt without a request number safe to repeat between members all the same."""
        client_id = f"member-{self._entropy.getrandbits(128):032x}"
        return RequestId(client_id, 1, self._replica.machine.applied_index)

    async def present_holder(self, directory: str, deadline_ms: int) -> QueuedContender | None:
        """Return the holder; None if this member may lag behind, rather than a former holder."""
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

    async def _timeout_error(
        self, attempt: QueueAttempt, position: int | None, *, is_seen: bool = False
    ) -> LockTimeoutError:
        """Return the error with the holder; with none, rather than with one that has released.

        ``is_seen``: what came of the attempt is applied here, and so is all that was before it.
        """
        is_seen = is_seen or await self._is_up_to_date()
        return not_in_time(self._replica.machine, attempt, position, is_seen=is_seen)


def _queued_error(path: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"this member can wait no longer, and the attempt may still be queued ({path}): "
        "repeat it with the same request number, at any member, or abandon it",
        path=path,
    )
