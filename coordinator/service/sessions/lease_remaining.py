"""The time that is left of leases and of bounded holds, as the leader knows it, at any member.

For people and programs that look ("safe for so long"); no decision of the service rests on it.

1. The leader answers only after a quorum confirmed, in a round that began after the question came,
   that it leads: a deposed one may have extended leases that a later one never knew of.
2. Nobody waits long for it: what is not known in time is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

from msgspec import DecodeError, Meta, Struct
from msgspec.json import Decoder, encode

from coordinator.errors import BadArgumentsError, CoordinatorError, NoLeaderError, to_problem
from coordinator.service.base.context import MemberContext
from coordinator.service.sessions.hold_timers import HoldTimers
from coordinator.service.sessions.leases import Leases
from coordinator.waiting import OneByOne

REQUEST_KIND = "remaining_times"

_DEADLINE_MS = 1_000
_NAMES_MAX = 100
_QUESTION_BYTES_MAX = 512 * 1024


_Names = Annotated[list[str], Meta(max_length=_NAMES_MAX)]
_LeftMs = Annotated[int, Meta(ge=0)]


class _Question(Struct, frozen=True):
    sessions: _Names
    paths: _Names


class Remaining(Struct, frozen=True):
    """The remaining ms of sessions' leases, and of bounded holds and delays by path."""

    leases: dict[str, _LeftMs] = {}
    bounds: dict[str, _LeftMs] = {}

    def after(self, passed_ms: int) -> Remaining:
        """Return what is left when so much more time has passed."""
        leases = {key: max(0, each - passed_ms) for key, each in self.leases.items()}
        return Remaining(
            leases, {key: max(0, each - passed_ms) for key, each in self.bounds.items()}
        )


NOTHING_KNOWN = Remaining()
_QUESTION: Final = Decoder(_Question)
_REPLY: Final = Decoder(Remaining)


class RemainingTimes:
    """Asks the leader, and answers as the leader."""

    def __init__(self, context: MemberContext, leases: Leases, hold_timers: HoldTimers) -> None:
        self._engine = context.engine
        self._clock = context.clock
        self._timers = context.timers
        self._leadership = context.leadership
        self._leases = leases
        self._hold_timers = hold_timers
        self._answers = OneByOne()
        context.engine.on_request(REQUEST_KIND, self._on_request)

    async def ask(
        self, session_ids: Iterable[str], paths: Iterable[str], deadline_ms: int
    ) -> Remaining:
        """Return the times of the first hundred of each, now and at least; nothing if the leader
        is not in time."""
        question = _Question(list(session_ids)[:_NAMES_MAX], list(paths)[:_NAMES_MAX])
        if not question.sessions and not question.paths:
            return NOTHING_KNOWN
        sent_ms = self._clock.monotonic_ms()
        deadline_ms = min(deadline_ms, sent_ms + _DEADLINE_MS)
        leader_id = self._leadership.known_leader()
        if leader_id is None:
            return NOTHING_KNOWN
        try:
            async with self._timers.deadline(deadline_ms):
                if leader_id == self._engine.member_id:
                    return await self._remaining(question)
                reply = await self._engine.request(leader_id, REQUEST_KIND, encode(question))
                answer = _decoded(reply)
                return answer.after(self._clock.monotonic_ms() - sent_ms)
        except (TimeoutError, CoordinatorError):
            return NOTHING_KNOWN

    async def remaining_ms(
        self, session_id: str, bounded_paths: Sequence[str], deadline_ms: int
    ) -> int | None:
        """Return what is left, now and at least, of a lease and of these bounded holds; None if
        the leader does not know all of it, or does not say so in time."""
        remaining = await self.ask([session_id], bounded_paths, deadline_ms)
        left_ms = [remaining.leases.get(session_id), *map(remaining.bounds.get, bounded_paths)]
        known_ms = [each for each in left_ms if each is not None]
        if len(known_ms) < len(left_ms):
            return None
        return min(known_ms)

    async def _remaining(self, question: _Question) -> Remaining:
        term = self._leases.term
        if term is None or await self._engine.confirm_leadership() != term:
            raise NoLeaderError(f"member {self._engine.member_id} does not lead")
        if self._leases.term != term:
            raise NoLeaderError(f"member {self._engine.member_id} does not lead any more")
        leases = {each: self._leases.remaining_ms(each) for each in question.sessions}
        bounds = {each: self._hold_timers.remaining_ms(each) for each in question.paths}
        return Remaining(
            {key: value for key, value in leases.items() if value is not None},
            {key: value for key, value in bounds.items() if value is not None},
        )

    async def _on_request(self, _sender: str, payload: bytes) -> bytes:
        try:
            question = _decoded_question(payload)
            async with self._timers.deadline(self._clock.monotonic_ms() + _DEADLINE_MS):
                remaining = await self._remaining(question)
                await self._answers.turn()  # many may have waited for the same round
        except TimeoutError:
            return encode({"problem": to_problem(NoLeaderError("not confirmed"))})
        except CoordinatorError as error:
            return encode({"problem": to_problem(error)})
        return encode(remaining)


def _decoded_question(payload: bytes) -> _Question:
    """Return the sessions and paths that another member asks about; raises BadArgumentsError."""
    try:
        if len(payload) <= _QUESTION_BYTES_MAX:
            return _QUESTION.decode(payload)
    except (DecodeError, RecursionError):
        pass
    raise BadArgumentsError("the question of another member cannot be read")


def _decoded(reply: bytes) -> Remaining:
    """Return the leader's answer; one that cannot be decoded says nothing."""
    try:
        return _REPLY.decode(reply)
    except (DecodeError, RecursionError):
        return NOTHING_KNOWN
