"""The queues of contenders behind locks and elections: enter, wait for the turn, leave.

A contender is an ephemeral sequential znode below ``<root>/<name>``; ``recipes.contention`` decides
who holds. The same znodes may be made by clients over the plain tree, in the same queue.

1. One contender for one request: a repeated request finds its first contender again.
2. A contender waits for its predecessor only; a departure wakes at most one. It looks and registers
   in one step of the loop, so no departure is missed (issue etcd 17470 is the family).
3. A grant is answered only if, in the applied state it is decided on, the own contender still
   exists, is owned by the session, and the session is open. A grant after waiting is decided anew
   after a read barrier, because this member may have been paused meanwhile.
4. A contender that was lowest stays lowest until it is deleted: numbers only grow. So a grant ends
   only with its znode.
5. An attempt that ends without a grant leaves nothing behind, or says that it may have.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    LockLostError,
    LockTimeoutError,
    NoLeaderError,
    NotOwnerError,
    OutcomeUnknownError,
    SessionExpiredError,
    ShuttingDownError,
    StorageError,
    ThrottledError,
)
from coordinator.service.contenders import Contender, Recipe, find
from coordinator.service.leadership import Leadership
from coordinator.service.metrics import Metrics
from coordinator.service.order import Order
from coordinator.service.positions import Positions
from coordinator.service.proposals import Proposals
from coordinator.service.reads import LINEARIZABLE, Reads
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.service.timers import Timers
from coordinator.state.commands import (
    Abandon,
    Check,
    Command,
    Create,
    CreateMode,
    Guarded,
    Operation,
    Release,
    RequestId,
)
from coordinator.state.events import EventType
from coordinator.state.outcomes import Created, GuardedDone, Outcome
from coordinator.state.repeats import check_answers
from recipes.contention import Standing

_TRY_DEADLINE_MS_MIN = 1_000
_LEAVE_DEADLINE_MS = 10_000
_LEAVE_WAIT_MS = 1_000
"""How long a caller whose time is up still waits to learn that nothing was left behind."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One wish to hold: who, for which session, with which data, until when."""

    recipe: Recipe
    name: str
    session_id: str
    data: bytes
    request: RequestId | None
    wait_deadline_ms: int
    describe: Callable[[Contender], Mapping[str, Any]]
    """Shows the present holder in a LockTimeoutError."""
    identity: str = ""
    is_try: bool = False
    leave_on_cancel: bool = True
    on_position: Callable[[int], None] | None = None


class _Waiter:
    """One attempt that waits for a znode to go."""

    __slots__ = ("own_path", "woken")

    def __init__(self, own_path: str, woken: asyncio.Future[None]) -> None:
        self.own_path = own_path
        self.woken = woken


class Queues:
    """All waiting contenders of one member, of every recipe."""

    def __init__(
        self,
        *,
        proposals: Proposals,
        reads: Reads,
        replica: MachineReplica,
        leadership: Leadership,
        timers: Timers,
        clock: Clock,
        tasks: Tasks,
        metrics: Metrics,
        entropy: random.Random,
        waiters_max: int,
    ) -> None:
        self._proposals = proposals
        self._reads = reads
        self._replica = replica
        self._leadership = leadership
        self._timers = timers
        self._clock = clock
        self._tasks = tasks
        self._metrics = metrics
        self._entropy = entropy
        self._waiters_max = waiters_max
        self._waiting: dict[str, dict[_Waiter, None]] = {}
        self._attempt_count = 0
        self._order = Order(replica)
        self._positions = Positions(replica)

    async def acquire(self, attempt: Attempt) -> Contender:
        """Enter the queue and return once the contender holds.

        Raises:
            LockTimeoutError: not granted in time (or at once, for a try); nothing was left behind.
            SessionExpiredError, LockLostError: the contender ended while it waited.
            NoLeaderError, ThrottledError, ShuttingDownError: nothing was or will be proposed.
            OutcomeUnknownError: a contender may stand in the queue.
        """
        if self._attempt_count >= self._waiters_max:
            raise ThrottledError(f"{self._attempt_count} contenders wait on this member already")
        request = attempt.request or self._own_request()
        started_ms = self._clock.monotonic_ms()
        self._attempt_count += 1
        self._metrics.contenders_waiting.set(self._attempt_count)
        try:
            contender = await self._enter(attempt, request)
            contender = await self._granted(attempt, contender)
        except asyncio.CancelledError:
            if attempt.leave_on_cancel and not self._leadership.is_stopping:
                leaving = _quietly(self._abandon(request))
                self._tasks.spawn(leaving, f"leave {attempt.recipe.word}")
            raise
        finally:
            self._attempt_count -= 1
            self._metrics.contenders_waiting.set(self._attempt_count)
        waited_ms = self._clock.monotonic_ms() - started_ms
        self._metrics.grants.labels(attempt.recipe.word).inc()
        self._metrics.wait_seconds.labels(attempt.recipe.word).observe(waited_ms / 1000)
        return contender

    # --- told by the replica

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        if outcome.is_repeat:
            return
        self._order.on_outcome(command, outcome)
        for event in outcome.events:
            if event.type is EventType.DELETED:
                for waiter in self._waiting.pop(event.path, ()):
                    self._wake(waiter, is_predecessor=waiter.own_path != event.path)
                self._positions.on_deleted(event.path)

    def on_restore(self) -> None:
        """Anything may have gone: everybody looks again."""
        self._order.on_restore()
        for waiters in list(self._waiting.values()):
            for waiter in waiters:
                self._wake(waiter, is_predecessor=False)
        self._waiting.clear()
        self._positions.on_restore()

    def close(self) -> None:
        """Wake everybody, when the member stops; their contenders stay in the queue."""
        self.on_restore()

    # --- the steps of an attempt

    async def _enter(self, attempt: Attempt, request: RequestId) -> Contender:
        """Create the contender, or find the one that this request created before."""
        directory = attempt.recipe.directory(attempt.name)
        create = Create(
            path=f"{directory}/{attempt.recipe.prefix}",
            data=attempt.data,
            mode=CreateMode.EPHEMERAL_SEQUENTIAL,
            session_id=attempt.session_id,
            parents=CreateMode.CONTAINER,
        )
        operation: Operation = create
        deadline_ms = attempt.wait_deadline_ms
        if attempt.is_try:
            operation = Guarded((Check(directory, has_children=False),), then=(create,))
            deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + _TRY_DEADLINE_MS_MIN)
        try:
            committed = await self._proposals.submit(
                operation, request=request, identity=attempt.identity, deadline_ms=deadline_ms
            )
        except BadArgumentsError as error:
            if error.fields.get("is_abandoned"):
                self._raise_timeout(attempt, position=None)
            raise
        except (OutcomeUnknownError, StorageError):
            await self._undo(attempt, self._abandon(request), position=None)
            raise
        if not committed.is_local:  # it stands, but this member is behind when the time is up
            await self._undo(attempt, self._abandon(request), position=None)
            raise _stands_error(directory)
        result = committed.outcome.unwrap()
        if isinstance(result, GuardedDone):
            if not result.is_then:
                self._raise_timeout(attempt, position=None)
            result = result.results[0] if result.results else result  # type: ignore[assignment]
        if not isinstance(result, Created):  # the number was used for something else
            check_answers(operation, committed.outcome)
        assert isinstance(result, Created), "a create comes to a Created"
        return self._checked(attempt, directory, result)

    def _checked(self, attempt: Attempt, directory: str, created: Created) -> Contender:
        path, stat = created.path, created.stat
        if not path.startswith(directory + "/") or stat.ephemeral_owner != attempt.session_id:
            raise BadArgumentsError(
                f"this request number was used before, for {path} of session "
                f"{stat.ephemeral_owner}; found {directory} of session {attempt.session_id}"
            )
        return Contender.of(path, attempt.data, stat, self._replica.machine.zxid)

    async def _granted(self, attempt: Attempt, mine: Contender) -> Contender:
        """Wait until ``mine`` holds, by the wait deadline."""
        position: int | None = None
        try:
            async with self._timers.deadline(attempt.wait_deadline_ms):
                standing = self._standing(mine)
                if not standing.is_holder:
                    position = standing.position
                    await self._until_holder(attempt, mine, standing)
        except ShuttingDownError:
            raise _stands_error(mine.path) from None
        except (TimeoutError, NoLeaderError):
            if self._is_there(mine):
                position = self._standing(mine).position
            await self._undo(attempt, self._release(mine), position)
            raise _stands_error(mine.path) from None
        return mine.as_of(self._replica.machine.zxid)

    async def _until_holder(self, attempt: Attempt, mine: Contender, standing: Standing) -> None:
        observer = None
        if attempt.on_position is not None:
            observer = self._positions.observe(mine.path, standing.position, attempt.on_position)
        try:
            is_confirmed = False
            while not (standing.is_holder and is_confirmed):
                if standing.is_holder:
                    await self._reads.fresh(LINEARIZABLE, attempt.wait_deadline_ms)
                    is_confirmed = True
                else:
                    await self._until_moved(mine, standing)
                standing = self._standing(mine)
        finally:
            if observer is not None:
                self._positions.forget(observer)

    async def _until_moved(self, mine: Contender, standing: Standing) -> None:
        """Return when the predecessor or the own contender has gone, or all must look again."""
        assert standing.predecessor is not None, "whoever does not hold has a predecessor"
        waiter = _Waiter(mine.path, asyncio.get_running_loop().create_future())
        watched = (f"{mine.directory}/{standing.predecessor}", mine.path)
        for path in watched:
            self._waiting.setdefault(path, {})[waiter] = None
        try:
            await waiter.woken
        finally:
            for path in watched:
                waiters = self._waiting.get(path, {})
                waiters.pop(waiter, None)
                if not waiters:
                    self._waiting.pop(path, None)
        if self._leadership.is_stopping:
            raise _stands_error(mine.path)

    def _wake(self, waiter: _Waiter, *, is_predecessor: bool) -> None:
        if not waiter.woken.done():
            waiter.woken.set_result(None)
            if is_predecessor:
                self._metrics.wakeups.inc()

    def _is_there(self, mine: Contender) -> bool:
        found = self._replica.machine.get(mine.path)
        return found is not None and found[1].czxid == mine.czxid

    def _standing(self, mine: Contender) -> Standing:
        """Decide on the state applied here; raise if the contender is not there any more."""
        machine = self._replica.machine
        if self._is_there(mine):
            # An ephemeral exists only while its session is open: the session is checked with it.
            return self._order.standing(mine.directory, mine.name)
        if machine.session(mine.session_id) is None:
            raise SessionExpiredError(
                f"session {mine.session_id} has ended, and {mine.path} with it",
                session_id=mine.session_id,
            )
        raise LockLostError(
            f"{mine.path} is not in the queue any more: it was released, abandoned, or left when "
            "its time was up",
            path=mine.path,
        )

    # --- leaving nothing behind

    async def _undo(
        self, attempt: Attempt, undoing: Coroutine[Any, Any, None], position: int | None
    ) -> None:
        """Take the attempt back and raise LockTimeoutError; return if nobody confirmed it in time.

        It goes on in the background then, for as long as the member runs.
        """
        task = self._tasks.spawn(_quietly(undoing), f"leave {attempt.recipe.word}")
        try:
            async with self._timers.deadline(self._clock.monotonic_ms() + _LEAVE_WAIT_MS):
                await asyncio.wait({task})
        except TimeoutError:
            return
        if not task.cancelled() and task.result():
            self._raise_timeout(attempt, position)

    async def _abandon(self, request: RequestId) -> None:
        operation = Abandon(request.client_id, request.number, request.floor_index)
        deadline_ms = self._clock.monotonic_ms() + _LEAVE_DEADLINE_MS
        await self._proposals.submit(operation, request=None, deadline_ms=deadline_ms)

    async def _release(self, mine: Contender) -> None:
        deadline_ms = self._clock.monotonic_ms() + _LEAVE_DEADLINE_MS
        try:
            await self._proposals.submit(
                Release(mine.path, mine.czxid), request=None, deadline_ms=deadline_ms
            )
        except NotOwnerError:
            pass  # it had gone before

    def _own_request(self) -> RequestId:
        """Make an attempt without a request number safe to repeat between members all the same."""
        client_id = f"member-{self._entropy.getrandbits(128):032x}"
        return RequestId(client_id, 1, self._replica.machine.applied_index)

    def _raise_timeout(self, attempt: Attempt, position: int | None) -> NoReturn:
        machine = self._replica.machine
        directory = attempt.recipe.directory(attempt.name)
        name = self._order.holder(directory)
        holder = None if name is None else find(machine, directory, name)
        raise LockTimeoutError(
            f"{attempt.recipe.word} {attempt.name!r} was not granted in time",
            lock=attempt.name,
            holder=None if holder is None else attempt.describe(holder),
            position=position,
            zxid=machine.zxid,
        )


async def _quietly(undoing: Coroutine[Any, Any, None]) -> bool:
    """Run ``undoing``; return whether it is certain that it was done."""
    try:
        await undoing
    except CoordinatorError:
        return False  # the end of the session removes what could not be removed now
    return True


def _stands_error(path: str) -> ConnectionLostError:
    return ConnectionLostError(
        f"this member can wait no longer, and the attempt may still stand in the queue ({path}): "
        "repeat it with the same request number, at any member, or abandon it",
        path=path,
    )
