"""The time that is left of leases and of bounded holds, as the leader knows it, at any member.

For people and programs that look ("safe for so long"); no decision of the service rests on it.

1. The leader answers only after a quorum confirmed, in a round that began after the question came,
   that it leads: a deposed one may have extended leases that a later one never knew of.
2. Nobody waits long for it: what is not known in time is not known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from coordinator.errors import BadArgumentsError, CoordinatorError, NoLeaderError, to_problem
from coordinator.service.base.context import MemberContext
from coordinator.service.sessions.hold_timers import HoldTimers
from coordinator.service.sessions.leases import Leases
from coordinator.waiting import OneByOne

REQUEST_KIND = "remaining_times"

_DEADLINE_MS = 1_000
_NAMES_MAX = 100
_QUESTION_BYTES_MAX = 512 * 1024


@dataclass(frozen=True, slots=True)
class Remaining:
    """The remaining ms of sessions' leases, and of bounded holds and delays by path."""

    leases: Mapping[str, int] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)

    def after(self, passed_ms: int) -> Remaining:
        """Return what is left when so much more time has passed."""
        leases = {key: max(0, each - passed_ms) for key, each in self.leases.items()}
        return Remaining(
            leases, {key: max(0, each - passed_ms) for key, each in self.bounds.items()}
        )


NOTHING_KNOWN = Remaining()


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
        question = {
            "sessions": list(session_ids)[:_NAMES_MAX],
            "paths": list(paths)[:_NAMES_MAX],
        }
        if not question["sessions"] and not question["paths"]:
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
                payload = json.dumps(question).encode()
                answer = _decoded(await self._engine.request(leader_id, REQUEST_KIND, payload))
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

    async def _remaining(self, question: Mapping[str, list[str]]) -> Remaining:
        term = self._leases.term
        if term is None or await self._engine.confirm_leadership() != term:
            raise NoLeaderError(f"member {self._engine.member_id} does not lead")
        if self._leases.term != term:
            raise NoLeaderError(f"member {self._engine.member_id} does not lead any more")
        leases = {each: self._leases.remaining_ms(each) for each in question["sessions"]}
        bounds = {each: self._hold_timers.remaining_ms(each) for each in question["paths"]}
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
            return json.dumps({"problem": to_problem(NoLeaderError("not confirmed"))}).encode()
        except CoordinatorError as error:
            return json.dumps({"problem": to_problem(error)}).encode()
        return json.dumps(
            {"leases": dict(remaining.leases), "bounds": dict(remaining.bounds)}
        ).encode()


def _decoded_question(payload: bytes) -> dict[str, list[str]]:
    """Return the sessions and paths that another member asks about; raises BadArgumentsError."""
    try:
        question = json.loads(payload) if len(payload) <= _QUESTION_BYTES_MAX else None
    except (ValueError, RecursionError):
        question = None
    if isinstance(question, dict):
        named = {key: question.get(key) for key in ("sessions", "paths")}
        if all(
            isinstance(each, list)
            and len(each) <= _NAMES_MAX
            and all(type(name) is str for name in each)
            for each in named.values()
        ):
            return {key: list(each or ()) for key, each in named.items()}
    raise BadArgumentsError("the question of another member cannot be read")


class _Reply(Struct):
    """An answer, as it is read; what is of another type ends the reading of it."""

    leases: dict[str, int] = {}
    bounds: dict[str, int] = {}


_READER = Decoder(_Reply)


def _decoded(reply: bytes) -> Remaining:
    """Return the leader's answer; one that cannot be decoded says nothing."""
    try:
        answer = _READER.decode(reply)
    except (DecodeError, RecursionError):
        return NOTHING_KNOWN
    return Remaining(_plausible(answer.leases), _plausible(answer.bounds))


def _plausible(times: dict[str, int]) -> dict[str, int]:
    return {key: each for key, each in times.items() if each >= 0}
