"""The comparison of states between members: a member that differs from a quorum stops answering.

The leader names a slice of the state and an index, the last one of its log. It asks every other
member for the digest of that slice at that index and takes its own. So the whole state is compared
again and again, also while nothing is written.

1. Only digests of one slice at one index are compared: all members have applied the same entries
   there, so no digest may differ.
2. A member whose digest is not that of a quorum stops answering, even the leader. The leader sends
   the digests to the others, and each judges by the digest in its own memory.
3. If no quorum agrees, and repeated questions to the missing members for ``DOUBT_MS`` have not
   changed that, it is unknown which member is right: every member that is asked stops answering.
4. A leader asks a member that does not answer for at most ``UNANSWERED_MAX`` slices.
5. A cluster of one compares nothing.
6. What it costs is bounded, whatever the size of the state: one slice in ``SLICE_EVERY_MS``, and
   what a stop of half a second has left. So a round of a large state takes this for each slice.
7. While nothing is written, one question is for as many slices as are due in ``_PAUSE_MS``, or for
   two: asking costs as much as a slice. Each member takes them in passes of their own.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from coordinator.errors import BadArgumentsError, CoordinatorError, NoLeaderError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.timers import NeedBy, never_mind
from coordinator.service.comparing.digest_messages import (
    SLICES_AT_ONCE_MAX,
    DigestQuestion,
    DigestVerdict,
    SlicePlace,
    decode_digests,
    decode_question,
    decode_verdict,
    encode_digests,
)
from coordinator.service.comparing.state_slices import StateSlices
from coordinator.state.slice_room import Cursor
from coordinator.state.slices import Slice

logger = logging.getLogger("coordinator.service")

DIGEST_KIND = "digest"
VERDICT_KIND = "differs"

SLICE_EVERY_MS = 50
"""Slices do not follow each other more quickly."""
ROUND_MS_MIN = 1_000
"""A small state is compared once in this time, not more often."""
_CALM_ROUND_MS = 5_000
"""Nor more often than this if nothing was written since it began, and for a second after that."""
_ROUND_MS = 7_000
"""How long a round of a larger one takes, up to 140 slices: the state may have grown when it
ends."""
_MADE_UP_MS = 500
"""What was not compared in this time, since a member was busy, is compared at the next look; what
was due before makes the round longer."""
_AT_ONE_LOOK_MAX = 4
_PAUSE_MS = 400
"""How far apart questions for several slices are; the counters are in each slice."""
_PAIR_MS = 900
"""Questions for two may be so far apart."""
_SMALL = 4
"""So many slices follow each other as soon as they may."""
ANSWER_MS = 2_000
"""How long the answers to one slice are waited for."""
VERDICT_MS = 500
DOUBT_MS = 2_000
UNANSWERED_MAX = 4
MISSED_AGAIN_MAX = 3
"""How often in a row a slice is asked again because a member was past the index."""
KNOWN_MAX = 64


class Comparison(StrEnum):
    """The result of comparing the digests of one slice."""

    AGREED = "agreed"
    """All known digests are equal."""
    DIFFERENT = "different"
    """A quorum is equal; others differ."""
    NO_QUORUM = "no quorum"
    """No quorum is equal, whatever the missing answers are."""
    UNDECIDED = "undecided"
    """They are not all equal, and the missing answers decide which are right."""


def judge(digests: Mapping[str, bytes], member_count: int) -> tuple[Comparison, bytes]:
    """Return the comparison, and the digest that most members have.

    Args:
        digests: of the members that answered, at least one.
        member_count: of the whole cluster.
    """
    (common, count), *others = Counter(digests.values()).most_common()
    if not others:
        return Comparison.AGREED, common
    quorum = member_count // 2 + 1
    if count >= quorum:
        return Comparison.DIFFERENT, common
    if count + member_count - len(digests) < quorum:
        return Comparison.NO_QUORUM, common
    return Comparison.UNDECIDED, common


def _count_at_once(interval_ms: int) -> int:
    """Return for how many slices a question is that are due in this time, each."""
    if 2 * interval_ms > _PAUSE_MS:
        return 2 if 2 * interval_ms <= _PAIR_MS else 1
    return min(_PAUSE_MS // interval_ms, SLICES_AT_ONCE_MAX)


def _is_different(member_id: str, others: str, where: str) -> str:
    return (
        f"member {member_id} has stopped answering: its state differs from that of members {others}"
        f" ({where}); stop it, replace its data directory by an empty one, and start it again"
    )


class Difference(NamedTuple):
    """Why this member stops answering. ``is_own``: it is this one that differs from a quorum."""

    is_own: bool
    sentence: str


class Divergence:
    """One member's part in the comparison.

    Args:
        on_difference: called once, when this member must stop answering.
    """

    def __init__(self, context: MemberContext, on_difference: Callable[[Difference], None]) -> None:
        self._engine = context.engine
        self._clock = context.clock
        self._timers = context.timers
        self._tasks = context.tasks
        self._leadership = context.leadership
        self._replica = context.replica
        self._slices = StateSlices(context.engine, context.timers, self._replica)
        self._replica.add_listener(self._slices)
        self._metrics = context.metrics
        self._on_difference = on_difference
        self.sentence = ""
        """Why this running member does not answer; empty while it answers."""
        self.different: dict[str, str] = {}
        """The other members that were found to differ from a quorum, and why they do not answer."""
        self._known: OrderedDict[SlicePlace, Slice] = OrderedDict()
        """The last slices taken here."""
        self._unanswered: Counter[str] = Counter()
        self._term: int | None = None
        self._cursor = Cursor()
        """Where the next slice of this round begins."""
        self._again: OrderedDict[Cursor, None] = OrderedDict()
        """Slices that are compared again before the round goes on."""
        self._is_taking = False
        self._due_ms = 0
        """When the next slice is due."""
        self._left_count = 0
        """Slices that still follow the one that is being taken, before the next look."""
        self._missed_count = 0
        self._asked_index = 0
        """The index of the last question."""
        self._round_began_ms = 0
        self._round_began_at = 0
        """The index at which this round began, or the one before it."""
        self._round_ended_ms = 0
        """When the last whole round ended; 0: none has, in this term."""
        self._taken_count = self._expected_count = 0
        """Slices of this round by now, and of the whole of the last one; 0: not known yet."""
        self._estimated_count = 0
        """How many slices the state said it has when the last round ended."""
        self._doubts: dict[Cursor, int] = {}
        """Since when the comparison of a slice has been undecided."""
        self.need_look_by: NeedBy = never_mind
        context.engine.on_request(DIGEST_KIND, self._on_digest_request, is_alone=True)
        context.engine.on_request(VERDICT_KIND, self._on_verdict_request)
        context.engine.on_role_change(lambda _role, _term: self._note_round(0))

    # --- the leader

    def look(self, now_ms: int) -> int | None:
        """Compare the next slice, if this member leads and it is time; called regularly.

        Return when the next slice is due, if that is known."""
        leadership = self._leadership
        if not leadership.is_leader or leadership.is_stopping:
            return None
        if self._term != leadership.term:
            self._begin(leadership.term)
        if self._is_taking:
            return None
        self._due_ms = max(self._due_ms, now_ms - _MADE_UP_MS)
        if now_ms < self._due_ms and not self._again:
            return self._due_ms
        late_count = (now_ms - self._due_ms) // self._interval_ms()
        self._left_count = min(max(late_count, 0), _AT_ONE_LOOK_MAX - 1)
        return self._begin_slice(leadership.term, now_ms)

    def _begin_slice(self, term: int, now_ms: int, *, is_next: bool = False) -> int | None:
        is_again = bool(self._again)
        cursor = self._again.popitem(last=False)[0] if is_again else self._cursor
        last_index = self._engine.status().last_index
        if not is_again and cursor == Cursor():
            if now_ms - self._round_began_ms < ROUND_MS_MIN:
                return self._round_began_ms + ROUND_MS_MIN
            calm_until_ms = self._round_began_ms + _CALM_ROUND_MS
            if last_index == self._round_began_at and now_ms < calm_until_ms:
                return calm_until_ms
            self._round_began_ms, self._round_began_at = now_ms, last_index
            self._due_ms, self._left_count = now_ms, 0
        others = tuple(self._engine.status().is_reachable)
        if not others:
            return None
        self._is_taking = True
        interval_ms = self._interval_ms()
        is_calm = not is_again and not is_next and last_index == self._asked_index
        count = _count_at_once(interval_ms) if is_calm else 1
        # One that is asked again makes a round longer only if that costs as much as it may already.
        if not is_again or interval_ms == SLICE_EVERY_MS:
            self._due_ms += count * interval_ms
        self._asked_index = last_index
        question = DigestQuestion(term, SlicePlace(last_index, cursor), count)
        comparing = self._compare(question, others, is_again=is_again)
        self._tasks.spawn(comparing, "compare states")
        return self._due_ms

    def _interval_ms(self) -> int:
        """Return how long after one slice the next one is due.

        The slices of a round are spread over it. The first round of a term, and what a state has
        grown by since the last one, is as quick as may be."""
        if self._expected_count <= _SMALL or self._taken_count >= self._expected_count:
            return SLICE_EVERY_MS
        return max(_ROUND_MS // self._slice_count(), SLICE_EVERY_MS)

    def _slice_count(self) -> int:
        """Return how many slices a round has: as many as the last one, and what the state has grown
        by since then, about."""
        grown_by = self._replica.machine.slice_count - self._estimated_count
        return self._expected_count + max(grown_by, 0)

    def _begin(self, term: int) -> None:
        self._term = term
        self._cursor = Cursor()
        self._is_taking = False
        self._missed_count = 0
        self._due_ms = now_ms = self._clock.monotonic_ms()
        self._round_began_ms, self._round_began_at = now_ms - ROUND_MS_MIN, 0
        self._taken_count = self._expected_count = self._estimated_count = 0
        self._again.clear()
        self._doubts.clear()
        self._unanswered.clear()

    async def _compare(
        self, question: DigestQuestion, others: tuple[str, ...], *, is_again: bool
    ) -> None:
        """Compare some slices; the next ones begin when this member has taken its own."""
        term = question.term
        members = [each for each in others if self._unanswered[each] < UNANSWERED_MAX]
        taking = self._take_own(question, is_again=is_again)
        asking = asyncio.gather(*[self._ask(each, question) for each in members])
        both: list[Awaitable[Any]] = [taking, asking]
        own, answers = await asyncio.gather(*both)
        place = question.place
        for at, taken in enumerate(own):
            if self._term != term or not self._leadership.is_leader:
                return
            self._metrics.slices_compared.inc()
            known = [each for each in answers if each is not None]
            self._note_missed(place, sum([len(each) <= at for each in known]), is_first=at == 0)
            digests = {
                who: answer[at]
                for who, answer in zip(members, answers, strict=True)
                if answer is not None and len(answer) > at
            }
            digests[self._engine.member_id] = taken.digest
            await self._act(DigestVerdict(place, digests), len(others) + 1)
            place = place.behind(taken)
        if own and self._term == term and self._leadership.is_leader and not self._again:
            self._maybe_go_on_at_once(term)

    async def _take_own(self, question: DigestQuestion, *, is_again: bool) -> list[Slice]:
        own = await self._take(question)
        if self._term == question.term:
            self._is_taking = False
            if own and not is_again:
                fewer = question.count - len(own)
                if fewer:
                    self._due_ms -= fewer * self._interval_ms()
                    self.need_look_by(self._due_ms)
                for each in own:
                    self._go_on(each)
        return own

    def _maybe_go_on_at_once(self, term: int) -> None:
        """Begin the next slice of this look: all that were asked have answered."""
        now_ms = self._clock.monotonic_ms()
        if self._left_count <= 0 or self._is_taking or self._leadership.is_stopping:
            return
        self._left_count -= 1
        if self._due_ms <= now_ms:  # what was asked together has not caught up already
            self._begin_slice(term, now_ms, is_next=True)

    def _go_on(self, own: Slice) -> None:
        self._taken_count += 1
        if own.following is None:
            self._expected_count, self._taken_count = self._taken_count, 0
            self._estimated_count = self._replica.machine.slice_count
            self._cursor = Cursor()
            self._metrics.state_rounds.inc()
            self._note_round(self._clock.monotonic_ms())
        else:
            self._cursor = own.following

    def _note_round(self, ended_ms: int) -> None:
        """Note the end of a round; 0: this member compares nothing, or begins again."""
        former_ms, self._round_ended_ms = self._round_ended_ms, ended_ms
        if former_ms:
            took_ms = ended_ms - former_ms if ended_ms else 0
            self._metrics.state_round_seconds.set(took_ms / 1000)

    def _compare_again(self, cursor: Cursor) -> None:
        self._again[cursor] = None
        self.need_look_by(self._clock.monotonic_ms())

    def _note_missed(self, place: SlicePlace, missed_count: int, *, is_first: bool) -> None:
        """Ask again for a slice whose index some members had passed.

        Those behind the first of a question had no turn yet, and do not count."""
        if missed_count:
            self._metrics.slices_missed.inc(missed_count)
        if missed_count and not is_first:
            self._compare_again(place.cursor)
        elif missed_count and self._missed_count < MISSED_AGAIN_MAX:
            self._missed_count += 1
            self._compare_again(place.cursor)
        elif is_first:
            self._missed_count = 0

    async def _ask(self, member_id: str, question: DigestQuestion) -> tuple[bytes, ...] | None:
        """Return a member's digests, none if it was past the index; None: it did not answer."""
        self._unanswered[member_id] += 1
        try:
            async with self._timers.deadline(self._clock.monotonic_ms() + ANSWER_MS):
                answer = await self._engine.request(member_id, DIGEST_KIND, question.payload)
        except (TimeoutError, CoordinatorError):
            return None
        finally:
            if self._term == question.term:
                self._unanswered[member_id] -= 1
        return decode_digests(answer)

    async def _act(self, verdict: DigestVerdict, member_count: int) -> None:
        comparison, common = judge(verdict.digests, member_count)
        cursor = verdict.place.cursor
        if comparison is Comparison.AGREED:
            self._doubts.pop(cursor, None)
            return
        self._metrics.slices_different.inc()
        if comparison is Comparison.UNDECIDED:
            now_ms = self._clock.monotonic_ms()
            since_ms = self._doubts.setdefault(cursor, now_ms)
            if 2 * len(verdict.digests) <= member_count or now_ms - since_ms < DOUBT_MS:
                self._compare_again(cursor)  # others may answer then
                return
        own = verdict.digests[self._engine.member_id]
        if comparison is not Comparison.DIFFERENT or own == common:
            await self._send_verdict(verdict)
        self._stop_if_different(verdict, member_count)

    async def _send_verdict(self, verdict: DigestVerdict) -> None:
        """Send the others what was found; a member that cannot be reached is compared again."""
        payload = verdict.payload

        async def send(member_id: str) -> None:
            try:
                async with self._timers.deadline(self._clock.monotonic_ms() + VERDICT_MS):
                    await self._engine.request(member_id, VERDICT_KIND, payload)
            except (TimeoutError, CoordinatorError):
                pass

        others = [each for each in verdict.digests if each != self._engine.member_id]
        await asyncio.gather(*[send(each) for each in others])

    # --- every member

    async def _take(self, question: DigestQuestion) -> list[Slice]:
        place = question.place
        found = await self._slices.at(
            place.at_index, place.cursor, self._clock.monotonic_ms() + ANSWER_MS, question.count
        )
        for each in found:
            self._known[place] = each
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)
            place = place.behind(each)
        return found

    def _stop_if_different(self, verdict: DigestVerdict, member_count: int) -> None:
        """Judge by the digest taken here, whatever the verdict says of it."""
        member_id = self._engine.member_id
        known = self._known.get(verdict.place)
        if known is None or verdict.digests.get(member_id) != known.digest:
            return
        comparison, common = judge(verdict.digests, member_count)
        if comparison is Comparison.AGREED:
            return
        at = f"at index {verdict.place.at_index}"
        if comparison is Comparison.DIFFERENT:
            agreeing = [each for each, digest in verdict.digests.items() if digest == common]
            others = f"{', '.join(sorted(agreeing))} {at}"
            if known.digest == common:
                for each in verdict.digests.keys() - agreeing:
                    where = known.differing(verdict.digests[each])
                    self.different[each] = _is_different(each, others, where)
                return
            sentence = _is_different(member_id, others, known.differing(common))
        else:
            other = next(each for each in verdict.digests.values() if each != known.digest)
            sentence = (
                f"member {member_id} has stopped answering: the states of members "
                f"{', '.join(sorted(verdict.digests))} differ {at} ({known.differing(other)}) and "
                "no quorum agrees; start all members again, so that the one that differs can be "
                "found"
            )
        self._stop(Difference(comparison is Comparison.DIFFERENT, sentence))

    def _stop(self, difference: Difference) -> None:
        if not self.sentence:
            self.sentence = difference.sentence
            self._metrics.has_diverged.set(1)
            logger.critical("%s", difference.sentence)
            self._on_difference(difference)

    async def _on_digest_request(self, sender: str, payload: bytes) -> bytes:
        question = decode_question(payload)
        status = self._engine.status()
        if sender != status.leader_id or question.term != status.term:
            raise NoLeaderError(f"member {sender} does not lead in term {status.term}")
        self._leadership.refuse_when_stopping()
        try:
            found = await self._take(question)
        except ValueError as error:
            raise BadArgumentsError(str(error)) from None
        return encode_digests(found)

    async def _on_verdict_request(self, sender: str, payload: bytes) -> bytes:
        verdict = decode_verdict(payload)
        status = self._engine.status()
        if sender == status.leader_id:
            # Answered first: the leader waits for that before it stops, too.
            asyncio.get_running_loop().call_soon(
                self._stop_if_different, verdict, len(status.is_reachable) + 1
            )
        return b""
