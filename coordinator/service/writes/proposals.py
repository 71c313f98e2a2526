"""Writes: from any member to the leader and into the log, never applied twice.

1. A command without a request number is sent at most once. If it may have been proposed and no
   answer came, the error is indefinite.
2. A command with a request number, or an idempotent one, is sent again until the deadline, across
   changes of leader: the state machine answers a repeat with the first outcome.
3. Once an attempt may have been proposed, a later attempt's definite error is not reported: it
   would say that nothing happened, and that is not known. So it is with a right that was taken from
   the caller between the two, unless the request has a number: then the state machine knows.
4. A repeat whose number belongs to another operation is refused: it would be answered with the
   outcome of that one (``state/repeats``).
5. ``need_local``: the reply waits until the outcome is applied here too, so that the next read on
   this member sees it. If the deadline passes first the outcome is still returned, because it
   is known; ``is_local`` is then False.
6. The wall time of a command is that of the leader which proposes it, whichever member was asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from coordinator.errors import (
    AuthFailedError,
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    LeaderChangedError,
    NoAuthError,
    NoLeaderError,
    NoSpaceError,
    OutcomeUnknownError,
    ProposalTimeoutError,
    ShuttingDownError,
    ThrottledError,
    UnavailableError,
    from_problem,
    to_problem,
)
from coordinator.model.access import NOBODY, Caller
from coordinator.service.base.context import MemberContext
from coordinator.service.base.places import SharedPlaces
from coordinator.service.base.turns import KEY, FirstFew, cost_of
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.service.writes.slow_writes import SlowWrites
from coordinator.state.codec import decode_command, encode_command, level_of
from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Command,
    HeldCondition,
    Operation,
    Release,
    RequestId,
)
from coordinator.state.outcome_codec import decode_outcome, encode_outcome
from coordinator.state.outcomes import Outcome, SessionEnded
from coordinator.state.packing import check_in_pieces, stamped
from coordinator.state.repeats import check_answers

REQUEST_KIND: Final = "propose"

T = TypeVar("T")

CheckRepeat = Callable[[Operation, Outcome], None]

# These are idempotent, with or without a request number.
_IDEMPOTENT: Final = (Release, Abandon, CloseSession, Check)

# These are small and make room: if a full queue refused them, it would stay full.
_UNDOING: Final = (Release, Abandon, CloseSession)

_STAMP_MS_MAX: Final = 10
"""How old the wall time in a command may be when it is proposed by the member that was asked."""
_IS_OUTCOME: Final = b"\x00"
_IS_PROBLEM: Final = b"\x01"
_NUMBER_BYTES: Final = 8
_KEY_BYTES_MAX: Final = 255
_PROBLEM_BYTES_MAX: Final = 128 * 1024
"""The size of an error of this member's leader; those that name a path are the longest."""
_REMAINING_MS_MAX: Final = 24 * 3_600_000
_TURN_PERCENT: Final = 90
"""So much of the remaining time another member's request waits for its turn."""


class Committed(Struct, frozen=True):
    """An outcome in the log at ``index``; ``is_local``: it is applied on this member."""

    outcome: Outcome
    index: int
    is_local: bool

    def result(self, kind: type[T]) -> T:
        """Return the result, of the kind that the operation has."""
        result = self.outcome.result
        assert isinstance(result, kind), f"expected {kind.__name__}, found {result!r}"
        return result


class _Attempts:
    """The attempts to send one command."""

    __slots__ = (
        "committed", "is_patient", "is_repeatable", "is_under_way", "may_have_happened",
        "ordered_ms", "proposed_ms", "stamp_ms",
    )  # fmt: skip

    def __init__(self, is_repeatable: bool, is_patient: bool, stamp_ms: int) -> None:
        self.stamp_ms = stamp_ms
        """The wall time in the command."""
        self.is_repeatable = is_repeatable
        self.is_patient = is_patient
        self.is_under_way = False
        self.may_have_happened = False
        self.committed: Committed | None = None
        self.proposed_ms = 0
        """When it was first sent to a leader that was known; 0 before."""
        self.ordered_ms = 0
        """When its outcome was known; 0 before."""


PROPOSED_MAX: Final = 16
"""Such writes of a client that are proposed, in a second."""


class EarlyAnswers:
    """Answers at the door to writes that would change nothing: refused for want of a right, or the
    end of a session that is not there.

    Any client may send those, and each would be an entry of the log. So of each client only the
    first few in a second are proposed; the others are answered from a fresh state, as by apply.

    1. ``apply`` judges all that is proposed. What is answered here was not proposed.
    2. A request that came before is proposed, whatever it is now: its first outcome is its answer.
    3. What is not there may be under way. The log alone orders the two, so the first few are
       proposed: no client ends more sessions in a second whose opening it has not seen.
    """

    def __init__(self, context: MemberContext, reads: Reads) -> None:
        self._replica = context.replica
        self._reads = reads
        self._few = FirstFew(context.clock.monotonic_ms)

    async def answer(self, command: Command, deadline_ms: int) -> Outcome | None:
        """Return the outcome of a write that changes nothing, None if it has to be proposed.

        Raises:
            AuthFailedError, NoAuthError, NotOwnerError: its caller may not do it.
            NoLeaderError, ShuttingDownError: whether it changes something is not known.
        """
        if not self._is_idle(command) or self._few.count(KEY.get()) <= PROPOSED_MAX:
            return None
        await self._reads.fresh(LINEARIZABLE, deadline_ms)
        machine, operation = self._replica.machine, command.operation
        if self._came_before(command.request):
            return None
        try:
            machine.check_rights(command)
        except CoordinatorError as error:
            error.fields["zxid"] = machine.zxid  # as that of an outcome
            raise
        if type(operation) is CloseSession and not command.if_held and self._is_idle(command):
            return Outcome(machine.zxid, SessionEnded(operation.session_id, was_open=False))
        return None

    def _is_idle(self, command: Command) -> bool:
        """Whether it would change nothing, as this member sees it."""
        machine, operation = self._replica.machine, command.operation
        if type(operation) is CloseSession and not machine.is_session_kept(operation.session_id):
            return True
        try:
            machine.check_rights(command)
        except CoordinatorError:
            return True
        return False

    def _came_before(self, request: RequestId | None) -> bool:
        return request is not None and self._replica.machine.has_seen(request)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Whose request a write belongs to, and under which conditions it is done.

    ``request`` is its number, if it has one; ``deadline_ms`` a time on the member's clock;
    ``if_held`` the grants it depends on: if one has ended, it is refused with LockLostError.
    """

    request: RequestId | None
    deadline_ms: int
    caller: Caller = NOBODY
    if_held: tuple[HeldCondition, ...] = ()


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """How the answer to a write is waited for, and which is taken.

    Args:
        check: refuses the outcome of another operation.
        need_local: wait until it is applied on this member, too.
        is_long: the deadline may be far, so it is a long wait (``Leadership``): it ends when no
            leader was known for long, with the same errors, or on a member that lags.
        is_patient: it need not be fast, so it may share a round with a later command.
    """

    check: CheckRepeat = check_answers
    need_local: bool = True
    is_long: bool = False
    is_patient: bool = False


_USUAL: Final = SubmitOptions()


class Proposer:
    """Proposes commands, on whichever member the leader is."""

    def __init__(self, context: MemberContext, reads: Reads) -> None:
        self._engine = context.engine
        self._clock = context.clock
        self._timers = context.timers
        self._leadership = context.leadership
        self._metrics = context.metrics
        self._count_result = context.metrics.proposals.labels
        self._replica = context.replica
        self._turns = context.turns
        self._early = EarlyAnswers(context, reads)
        self._slow = SlowWrites(context.clock, context.config.log.slow_ms)
        raft = context.config.raft
        self._count = SharedPlaces(
            raft.proposals_in_flight_max,
            "proposals under way at one member",
            "raft.proposals_in_flight_max",
        )
        self._bytes = SharedPlaces(
            raft.proposals_bytes_max,
            "bytes of proposals under way at one member",
            "raft.proposals_bytes_max",
            context.config.http.body_bytes_max,
        )
        """Each until it is answered, with those that other members have sent to this one."""
        context.engine.on_request(REQUEST_KIND, self._on_request)

    async def submit(
        self,
        operation: Operation,
        context: RequestContext,
        options: SubmitOptions = _USUAL,
    ) -> Committed:
        """Propose ``operation``; return its result, or raise its refusal as its error.

        Raises:
            BadArgumentsError: the request number was used for another operation.
            NoLeaderError, NoSpaceError, ThrottledError, ShuttingDownError: nothing was or will be
                proposed.
            ProposalTimeoutError, LeaderChangedError, ConnectionLostError: the outcome is unknown.
        """
        request, deadline_ms, if_held = context.request, context.deadline_ms, context.if_held
        if self._leadership.is_stopping:
            raise self._leadership.stopping_error()
        self._refuse_later_level(operation)
        stamp_ms = self._clock.wall_ms()
        whole = Command(operation, stamp_ms, request, context.caller, if_held)
        early = await self._early.answer(whole, deadline_ms)
        if early is not None:
            return Committed(early, self._replica.machine.applied_index, is_local=True)
        command = encode_command(whole)
        # With a condition a repeat may be refused although the first attempt succeeded.
        is_repeatable = request is not None or (type(operation) in _IDEMPOTENT and not if_held)
        attempts = _Attempts(is_repeatable, options.is_patient, stamp_ms)
        started_ms = self._clock.monotonic_ms()
        key = KEY.get()
        self._begin(key, len(command), is_undoing=_is_undoing(whole))
        deadline = self._timers.deadline(deadline_ms)
        if options.is_long:
            self._leadership.stay(deadline)
        try:
            async with deadline:
                await self._until_known(command, attempts, deadline_ms)
                attempts.ordered_ms = self._clock.monotonic_ms()
                committed = attempts.committed
                assert committed is not None, "the loop ends with an outcome"
                if options.need_local and not committed.is_local:
                    await self._engine.wait_applied(committed.index)
                    attempts.committed = replace(committed, is_local=True)
        except TimeoutError:
            if attempts.committed is None:
                self._count_result("unanswered").inc()
                raise self._timeout_error(attempts, started_ms, deadline_ms) from None
        except CoordinatorError:
            if attempts.committed is None:
                self._count_result("unanswered").inc()
                raise
        finally:
            if options.is_long:
                self._leadership.leave(deadline)
            self._end(key, len(command))
            end_ms = self._clock.monotonic_ms()
            self._slow.look(whole, started_ms, attempts.proposed_ms, attempts.ordered_ms, end_ms)
        committed = attempts.committed
        assert committed is not None, "an unknown outcome was raised"
        self._metrics.proposal_seconds.observe((end_ms - started_ms) / 1000)
        if committed.outcome.refusal is not None:
            self._count_result("refused").inc()
            raise _refusal(committed.outcome, attempts, is_numbered=request is not None)
        self._count_result("done").inc()
        options.check(operation, committed.outcome)
        return committed

    def _begin(self, key: str, size: int, *, is_undoing: bool) -> None:
        """Count what waits here for its outcome: in the log, on its way, or for a leader.

        Raises:
            ThrottledError: it is too much; nothing is counted."""
        if not is_undoing:
            try:
                self._count.check(key)
                if self._bytes.total:  # one alone is never too large
                    self._bytes.check(key, size)
            except ThrottledError:
                self._count_result("unanswered").inc()
                raise
        self._count.count(key)
        self._bytes.count(key, size)

    def _end(self, key: str, size: int) -> None:
        self._count.give_back(key)
        self._bytes.give_back(key, size)

    def _refuse_later_level(self, operation: Operation) -> None:
        needed, level = level_of(operation), self._replica.machine.level
        if needed > level:
            raise BadArgumentsError(
                f"this needs level {needed}, and the cluster is at level {level}: finish the"
                " upgrade first (coordinator upgrade finish)"
            )

    async def _until_known(self, command: bytes, attempts: _Attempts, deadline_ms: int) -> None:
        me = self._engine.member_id
        while True:
            leader_id = None
            try:
                leader_id = await self._leadership.leader()
                attempts.is_under_way = True
                attempts.proposed_ms = attempts.proposed_ms or self._clock.monotonic_ms()
                if leader_id == me:
                    now_ms = self._clock.wall_ms()
                    if abs(now_ms - attempts.stamp_ms) > _STAMP_MS_MAX:  # no leader until now
                        command, attempts.stamp_ms = stamped(command, now_ms), now_ms
                    applied = await self._engine.propose(command, is_patient=attempts.is_patient)
                    attempts.committed = Committed(applied.result, applied.index, is_local=True)
                else:
                    attempts.committed = await self._forward(leader_id, command, deadline_ms)
                return
            except OutcomeUnknownError:
                if not attempts.is_repeatable:
                    raise
                attempts.may_have_happened = True
            except UnavailableError as error:
                self._maybe_raise_definite(error, attempts)
            attempts.is_under_way = False
            await self._pause(attempts, leader_id)

    def _timeout_error(
        self, attempts: _Attempts, started_ms: int, deadline_ms: int
    ) -> CoordinatorError:
        is_open = attempts.may_have_happened or attempts.is_under_way
        if self._clock.monotonic_ms() < deadline_ms:  # a long wait that was cut
            if not is_open:
                return self._leadership.unled_error("nothing was proposed; ask another member")
            unled = self._leadership.unled_error("it may be under way; ask another member")
            return ConnectionLostError(unled.message)
        waited_ms = deadline_ms - started_ms
        if is_open:
            return ProposalTimeoutError(
                f"the deadline passed after {waited_ms} ms with the proposal under way; it may"
                " still be done: repeat it with the same request number"
            )
        return NoLeaderError(
            f"no leader was known within {waited_ms} ms; nothing was proposed, try again, or at"
            " another member"
        )

    def _maybe_raise_definite(self, error: UnavailableError, attempts: _Attempts) -> None:
        if attempts.may_have_happened:
            if self._leadership.is_stopping:
                raise LeaderChangedError(
                    "this member is stopping while the proposal may be under way: repeat it with"
                    " the same request number, at another member"
                ) from error
            return
        if isinstance(error, (ThrottledError, NoSpaceError)) or self._leadership.is_stopping:
            raise error
        # NoLeader, or a leader that is shutting down: wait for the next one.

    async def _pause(self, attempts: _Attempts, tried: str | None) -> None:
        try:
            await self._leadership.pause(tried)
        except ShuttingDownError as error:
            self._maybe_raise_definite(error, attempts)

    async def _forward(self, leader_id: str, command: bytes, deadline_ms: int) -> Committed:
        remaining_ms = max(1, deadline_ms - self._clock.monotonic_ms())
        key = KEY.get().encode()[:_KEY_BYTES_MAX]
        head = remaining_ms.to_bytes(_NUMBER_BYTES, "big") + bytes((len(key),)) + key
        payload = head + command
        return await _read_reply(await self._engine.request(leader_id, REQUEST_KIND, payload))

    async def _on_request(self, _sender: str, payload: bytes) -> bytes:
        """Answer another member: propose here if this member leads; never forward it again.

        Its client takes turns with those that ask here: it may be one of many thousand requests."""
        remaining_ms = min(int.from_bytes(payload[:_NUMBER_BYTES], "big"), _REMAINING_MS_MAX)
        deadline_ms = self._clock.monotonic_ms() + remaining_ms
        key, command = _split(payload)
        mark, cost, is_counted = 0, cost_of(len(command)), False
        try:
            self._leadership.refuse_when_stopping()
            if key:
                mark = await self._turn(key, cost, remaining_ms)
            self._begin(key, len(command), is_undoing=_is_undoing(await _decoded(command)))
            is_counted = True
            if not self._leadership.is_leader:
                raise NoLeaderError(f"member {self._engine.member_id} does not lead")
            async with self._timers.deadline(deadline_ms):
                # Times in the tree are the leader's: the clocks of all members would mix in them.
                applied = await self._engine.propose(stamped(command, self._clock.wall_ms()))
        except TimeoutError:
            return _encode_problem(ProposalTimeoutError("the deadline passed on the leader"))
        except CoordinatorError as error:
            return _encode_problem(error)
        finally:
            if mark:
                self._turns.end(key, mark, cost)
            if is_counted:
                self._end(key, len(command))
        outcome: Outcome = applied.result
        if outcome.events or outcome.granted:
            # The other member gets events and grants through its own log.
            outcome = replace(outcome, events=(), granted=())
        index = applied.index.to_bytes(_NUMBER_BYTES, "big")
        return _IS_OUTCOME + index + encode_outcome(outcome)


    async def _turn(self, key: str, cost: int, remaining_ms: int) -> int:
        """Wait for the turn of another member's client, and return its mark.

        Raises:
            ThrottledError: there was none, early enough for that member to say so: at its deadline
                it knows no more than that its request was under way."""
        wait_ms = remaining_ms * _TURN_PERCENT // 100
        mark = 0
        with suppress(TimeoutError):
            async with self._timers.deadline(self._clock.monotonic_ms() + wait_ms):
                mark = await self._turns.turn(key, wait_ms / 1_000, cost)
        if not mark:
            raise ThrottledError(
                f"other requests of client {key} took all its turns at the leader for {wait_ms} ms;"
                " nothing was proposed, try again with fewer at once"
            )
        return mark


def _is_undoing(command: Command) -> bool:
    return not command.if_held and type(command.operation) in _UNDOING


def _encode_problem(error: CoordinatorError) -> bytes:
    return _IS_PROBLEM + json.dumps(to_problem(error)).encode()


def _split(payload: bytes) -> tuple[str, bytes]:
    """Return the key of the client and the command of another member's request."""
    at = _NUMBER_BYTES + 1
    end = at + int.from_bytes(payload[_NUMBER_BYTES:at], "big")
    return payload[at:end].decode(errors="replace"), payload[end:]


def _refusal(outcome: Outcome, attempts: _Attempts, *, is_numbered: bool) -> CoordinatorError:
    """Return the error of a refused command, with its zxid: a watch from there misses nothing."""
    assert outcome.refusal is not None, "it was refused"
    error = outcome.refusal.to_error()
    is_about_rights = isinstance(error, (AuthFailedError, NoAuthError))
    if attempts.may_have_happened and is_about_rights and not is_numbered:
        error = LeaderChangedError(f"it may have been done before: {error.message}")
    error.fields["zxid"] = outcome.zxid
    return error


async def _decoded(command: bytes) -> Command:
    """Return a command; refuse what apply could not decode: in the log it would stop every member
    at each start."""
    try:
        for _ in check_in_pieces(command):
            await asyncio.sleep(0)
        return decode_command(command)
    except ValueError as error:
        raise BadArgumentsError(f"the command of another member cannot be read: {error}") from None


async def _read_reply(reply: bytes) -> Committed:
    """Return the leader's answer; if it cannot be decoded, the outcome is unknown."""
    if reply[:1] != _IS_PROBLEM:
        try:
            for _ in check_in_pieces(reply[1 + _NUMBER_BYTES :]):
                await asyncio.sleep(0)
        except ValueError:
            raise ConnectionLostError("the leader's answer cannot be read") from None
    return _decode_reply(reply)


def _decode_reply(reply: bytes) -> Committed:
    """As ``_read_reply``, in one step."""
    try:
        if reply[:1] == _IS_PROBLEM:
            if len(reply) > _PROBLEM_BYTES_MAX:
                raise ValueError("a problem is short")
            error = from_problem(json.loads(reply[1:]))
        else:
            index = int.from_bytes(reply[1 : 1 + _NUMBER_BYTES], "big")
            outcome = decode_outcome(reply[1 + _NUMBER_BYTES :])
            return Committed(outcome, index, is_local=False)
    except (ValueError, RecursionError):
        raise ConnectionLostError("the leader's answer cannot be read") from None
    raise error
