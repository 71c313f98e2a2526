"""Heartbeats: from any member, in batches, to the leader, which answers once a quorum agrees.

1. The leader acknowledges a heartbeat only after a quorum confirmed, in a round that began after
   its arrival, that it still leads, and after everything committed by then is applied. So no
   deposed leader keeps a client believing.
2. One round serves all heartbeats that arrived before it began; later ones share the next round. A
   follower has one request to the leader under way and batches the others in the next. A round
   begins ``GATHER_MS`` after one that served many, so that many share it: a lease counts from when
   its heartbeat was sent, however long the answer takes, and a client waits for it 200 ms at
   least. If an answer waits for it, it begins at once.
3. A heartbeat that is not confirmed by its deadline is NoLeaderError. Sending it again is harmless,
   so members retry until the deadline.
4. The same answer carries the remaining time of the session's bounded holds and its lost grants: a
   client that learns that its session is open also learns what it no longer holds.
5. A round, and so a request between members, is bounded in sessions, and an answer in bytes. A
   session that does not fit is left out as a whole, and its member asks for it again.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, to_builtins
from msgspec.json import Decoder

from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    NoLeaderError,
    OutcomeUnknownError,
    SessionExpiredError,
    ThrottledError,
    UnavailableError,
    from_problem,
    to_problem,
)
from coordinator.model.sessions import HEARTBEATS_MAX, LostGrant, SessionLease, safe_ms
from coordinator.service.base.context import MemberContext
from coordinator.service.base.slices import in_slices
from coordinator.service.base.tasks import let_go
from coordinator.service.base.timers import Timers
from coordinator.service.sessions.hold_timers import HoldTimers
from coordinator.service.sessions.leases import Leases
from coordinator.service.sessions.revocations import Revocations
from coordinator.waiting import OneByOne, wake_in_turns

REQUEST_KIND = "heartbeat"

_ROUND_DEADLINE_MS = 2_000
GATHER_MS = 100
"""A quorum is asked no more often for heartbeats alone, where there are many."""
_MANY = 4
_SESSIONS_PER_ROUND_MAX = HEARTBEATS_MAX
_TOLD_MAX = 2_000
"""Holds and lost grants in one answer to several sessions; a single session may have more."""
_WAITING_MAX = 100_000
_MANY_WAITING_MAX = 50_000
"""Beyond it no request of several is taken: a hundred of these must not refuse everybody else's."""
_EXTENDED_AT_ONCE = 1_000
_ACKNOWLEDGED_AT_ONCE = 50
"""Each may have lost a hundred grants."""
_REQUEST_BYTES_MAX = 512 * 1024
_REPLY_BYTES_ENOUGH = 512 * 1024
"""The size of an answer beyond which no session is added; a single session may take more."""
_SESSION_ID_CHARACTERS_MAX = 64
"""Our ids have 16; a longer id was never one of ours."""
_FRAME_OVERHEAD_BYTES = 4_096
"""At most so much of a frame between members surrounds an answer."""


Acks = Mapping[str, SessionLease | None]
"""The answer for each session; None if it has ended. A session whose expiry is under way is left
out: its outcome is not known yet. So is a session that did not fit in a follower's answer."""


class _Rounds:
    """Runs one round at a time; a heartbeat that arrives during a round is part of the next."""

    def __init__(
        self, run: Callable[[list[str]], Awaitable[Acks]], context: MemberContext, name: str
    ) -> None:
        self._run = run
        self._tasks = context.tasks
        self._timers = context.timers
        self._clock = context.clock
        self._name = name
        self._due_ms = 0
        self._served_count = 0
        self._is_due = asyncio.Event()
        self._waiting: deque[tuple[tuple[str, ...], asyncio.Future[Acks]]] = deque()
        self._served: list[asyncio.Future[Acks]] = []
        self._is_running = False
        self._waiting_count = 0

    def close(self, error: CoordinatorError) -> None:
        """Answer all waiters with ``error``; the task that serves them is being stopped."""
        for answer in [*self._served, *[answer for _, answer in self._waiting]]:
            if not answer.done():
                answer.set_exception(error)
        self._waiting.clear()

    async def ask(
        self, session_ids: Iterable[str], waiting_max: int = _WAITING_MAX, *, is_urgent: bool
    ) -> Acks:
        """Return the answers to at least ``session_ids``, from a round that begins after now.

        ``is_urgent``: and at once, when the one under way has ended.

        Raises:
            ThrottledError: with them more than ``waiting_max`` would wait.
        """
        ids = tuple(session_ids)
        if self._waiting_count + len(ids) > waiting_max:
            raise ThrottledError(
                f"expected at most {waiting_max} heartbeats that wait for the leader, found "
                f"{self._waiting_count} and {len(ids)} more; send them again, or to another member"
            )
        answer: asyncio.Future[Acks] = asyncio.get_running_loop().create_future()
        self._waiting.append((ids, answer))
        self._waiting_count += len(ids)
        if is_urgent:
            self._is_due.set()
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._serve(), self._name)
        return await answer

    async def _serve(self) -> None:
        try:
            await asyncio.sleep(0)  # what arrives in this pass of the loop shares the first round
            while self._waiting:
                await self._gather()
                await self._serve_one()
        finally:
            self._is_running = False

    async def _gather(self) -> None:
        """Wait until the next round is due."""
        if self._served_count >= _MANY and self._clock.monotonic_ms() < self._due_ms:
            timer = self._timers.at(self._due_ms, self._is_due.set)
            try:
                await self._is_due.wait()
            finally:
                timer.cancel()
        self._is_due.clear()
        self._due_ms = self._clock.monotonic_ms() + GATHER_MS

    async def _serve_one(self) -> None:
        taken: list[tuple[tuple[str, ...], asyncio.Future[Acks]]] = []
        session_ids: dict[str, None] = {}
        while self._waiting and len(session_ids) < _SESSIONS_PER_ROUND_MAX:
            if taken and len(session_ids) + len(self._waiting[0][0]) > _SESSIONS_PER_ROUND_MAX:
                break
            ids, answer = self._waiting.popleft()
            self._waiting_count -= len(ids)
            if not answer.done():  # a cancelled one is no longer waited for
                taken.append((ids, answer))
                session_ids.update(dict.fromkeys(ids))
        if self._waiting:
            self._is_due.set()  # they did not fit, and have waited once
        if not taken:
            return
        self._served = [answer for _, answer in taken]
        self._served_count = len(taken)
        try:
            acks = await self._run(list(session_ids))
        except CoordinatorError as error:
            failure = error
            wake_in_turns([answer for _, answer in taken], lambda each: each.set_exception(failure))
            return
        wake_in_turns([answer for _, answer in taken], lambda each: each.set_result(acks))


class Heartbeats:
    """Takes the heartbeats of clients and, on the leader, those of the other members."""

    def __init__(
        self, context: MemberContext, leases: Leases, hold_timers: HoldTimers, taken: Revocations
    ) -> None:
        self._reply_bytes_max = context.config.raft.frame_bytes_max - _FRAME_OVERHEAD_BYTES
        self._engine = context.engine
        self._member_id = context.engine.member_id
        self._clock = context.clock
        self._timers = context.timers
        self._leadership = context.leadership
        self._leases = leases
        self._hold_timers = hold_timers
        self._revocations = taken
        self._replica = context.replica
        self._metrics = context.metrics
        self._here = _Rounds(self._confirm, context, "confirm heartbeats")
        self._answers = OneByOne()
        self._there = _Rounds(self._pass_on, context, "pass heartbeats on")
        context.engine.on_request(REQUEST_KIND, self._on_request)

    async def heartbeat(
        self, session_id: str, deadline_ms: int, *, is_urgent: bool = False
    ) -> SessionLease:
        """Extend the lease of ``session_id``; ``is_urgent``: an answer waits for it.

        Raises:
            SessionExpiredError: it has ended, as a leader confirmed.
            NoLeaderError: no leader confirmed it in time; the session may still be open.
        """
        if not _may_be_one(session_id):
            raise SessionExpiredError(
                f"session id: expected one that a member has given out, found {session_id!a:.40}"
            )
        try:
            async with self._timers.deadline(deadline_ms):
                acks = await self._until_confirmed((session_id,), _WAITING_MAX, is_urgent=is_urgent)
        except TimeoutError:
            self._metrics.heartbeats.labels("unconfirmed").inc()
            raise NoLeaderError(
                f"no leader confirmed the heartbeat of session {session_id} in time; send it again,"
                " or to another member"
            ) from None
        ack = acks.get(session_id)
        if ack is None:
            self._metrics.heartbeats.labels("expired").inc()
            raise SessionExpiredError(
                f"session {session_id} has ended or never was", session_id=session_id
            )
        self._metrics.heartbeats.labels("acknowledged").inc()
        return ack

    async def heartbeats(self, session_ids: Iterable[str], deadline_ms: int) -> Acks:
        """Extend the leases of several sessions, in one round; None for those that have ended.

        What one answer has no room for is left out, and a session whose end is under way: nothing
        is known of it, and its client asks again.

        Raises:
            NoLeaderError: no leader confirmed any of them in time.
            ThrottledError: too many wait already.
        """
        ids = dict.fromkeys(session_ids)
        known = tuple([each for each in ids if _may_be_one(each)])
        acks: Acks = {}
        if known:
            try:
                async with self._timers.deadline(deadline_ms):
                    acks = await self._until_confirmed(known, _MANY_WAITING_MAX, is_urgent=False)
            except TimeoutError:
                self._metrics.heartbeats.labels("unconfirmed").inc(len(known))
                raise NoLeaderError(
                    "no leader confirmed the heartbeats in time; send them again"
                ) from None
        room = _TOLD_MAX
        answer: dict[str, SessionLease | None] = {}
        for each in ids:
            if not _may_be_one(each):
                answer[each] = None
            elif each in acks:
                ack = acks[each]
                room -= 0 if ack is None else len(ack.holds) + len(ack.lost)
                if room >= 0 or not answer:
                    answer[each] = ack
        ended = sum([each is None for each in answer.values()])
        self._metrics.heartbeats.labels("expired").inc(ended)
        self._metrics.heartbeats.labels("acknowledged").inc(len(answer) - ended)
        return answer

    def close(self) -> None:
        """Answer all waiters when the member stops."""
        for rounds in (self._here, self._there):
            rounds.close(self._leadership.stopping_error())

    async def _until_confirmed(
        self, session_ids: tuple[str, ...], waiting_max: int, *, is_urgent: bool
    ) -> Acks:
        """Return the answers of the first round that has one for any of these."""
        while True:
            leader_id = await self._leadership.leader()
            rounds = self._here if leader_id == self._member_id else self._there
            try:
                acks = await rounds.ask(session_ids, waiting_max, is_urgent=is_urgent)
                if not acks.keys().isdisjoint(session_ids):
                    return acks
            except ThrottledError:
                raise
            except (UnavailableError, OutcomeUnknownError):
                pass  # there will be another leader, or this one's next round succeeds
            await self._leadership.pause(leader_id)

    async def _confirm(self, session_ids: list[str]) -> Acks:
        """One round on the leader."""
        leases, arrived_ms = self._leases, self._clock.monotonic_ms()
        term = leases.term
        if term is None:
            raise NoLeaderError(f"member {self._engine.member_id} does not lead")
        # Before the round, so that no lease ends while the round runs.
        await in_slices(
            session_ids,
            lambda each: leases.extend(each, arrived_ms),
            _EXTENDED_AT_ONCE,
            is_urgent=True,
        )
        committed_index = self._engine.status().commit_index
        try:
            async with self._timers.deadline(arrived_ms + _ROUND_DEADLINE_MS):
                confirmed_term = await self._engine.confirm_leadership()
                await self._engine.wait_applied(committed_index)
        except TimeoutError:
            raise NoLeaderError("a quorum did not confirm the leader in time") from None
        found = await in_slices(
            session_ids,
            lambda each: self._acknowledged(each, arrived_ms),
            _ACKNOWLEDGED_AT_ONCE,
            is_urgent=True,
        )
        if leases.term != term or confirmed_term != term:
            raise NoLeaderError("the leader changed while it confirmed heartbeats; send them again")
        self._metrics.heartbeat_rounds.inc()
        return {session_id: ack for each in found if each is not None for session_id, ack in each}

    def _acknowledged(
        self, session_id: str, arrived_ms: int
    ) -> tuple[tuple[str, SessionLease | None]] | None:
        """Return the answer for a session now; None if its end is under way."""
        session = self._replica.machine.session(session_id)
        if session is None:
            return ((session_id, None),)
        if not self._leases.is_promised(session_id) or self._knows_too_little():
            return None
        ack = SessionLease(
            session_id,
            session.timeout_ms,
            self._hold_timers.holds_of(session_id, arrived_ms),
            self._revocations.of(session_id),
        )
        return ((session_id, ack),)

    def _knows_too_little(self) -> bool:
        """Whether a hold that ends, or has ended, may not be known here yet."""
        return self._hold_timers.is_starting or self._revocations.is_starting

    async def _pass_on(self, session_ids: list[str]) -> Acks:
        """One request to the leader."""
        leader_id = self._leadership.known_leader()
        if leader_id is None or leader_id == self._member_id:
            raise NoLeaderError(
                "the leader changed before the heartbeats were passed on; send them again"
            )
        deadline_ms = self._clock.monotonic_ms() + _ROUND_DEADLINE_MS
        payload = json.dumps(session_ids).encode()
        try:
            async with self._timers.deadline(deadline_ms):
                reply = await self._engine.request(leader_id, REQUEST_KIND, payload)
        except TimeoutError:
            raise NoLeaderError(f"leader {leader_id} did not answer heartbeats in time") from None
        acks = _decode_reply(reply)
        self._metrics.heartbeat_requests.inc()
        return acks

    async def _on_request(self, _sender: str, payload: bytes) -> bytes:
        try:
            ids = _decode_request(payload)
            self._leadership.refuse_when_stopping()
            acks = await self._here.ask(ids, is_urgent=True)  # gathered there
        except CoordinatorError as error:
            return json.dumps({"problem": to_problem(error)}).encode()
        # Members share a round, and each answer may take milliseconds to write.
        await self._answers.turn()
        return _encode_reply(
            {key: acks[key] for key in ids if key in acks}, self._reply_bytes_max
        )


def _may_be_one(session_id: str) -> bool:
    """Whether a session can have this id. Others are not passed on: as JSON they are up to twelve
    times as long, and would make the question of all too long."""
    return len(session_id) <= _SESSION_ID_CHARACTERS_MAX and session_id.isascii()


def _decode_request(payload: bytes) -> list[str]:
    """Return the session ids that another member asks for.

    Raises:
        BadArgumentsError: it is not a list of ids; it must not break the shared round.
    """
    try:
        ids = json.loads(payload) if len(payload) <= _REQUEST_BYTES_MAX else None
    except (ValueError, RecursionError):
        ids = None
    if (
        type(ids) is not list
        or len(ids) > _SESSIONS_PER_ROUND_MAX
        or any(type(each) is not str for each in ids)
    ):
        raise BadArgumentsError("the heartbeats of another member cannot be read")
    return ids


def _encode_reply(acks: Acks, bytes_max: int) -> bytes:
    """Return the answer to the other member; empty holds and losses are left out.

    A session that does not fit in ``bytes_max`` is left out as well; if more than half is used by
    then, so are all that follow. So are all that follow once the answer is long enough.
    """
    parts: dict[str, list[str]] = {"timeouts": [], "holds": [], "lost": []}
    used = sum(len(name) + 8 for name in parts)
    for session_id, ack in acks.items():
        if used > _REPLY_BYTES_ENOUGH:
            break
        key = json.dumps(session_id)
        texts = {"timeouts": "null" if ack is None else str(ack.timeout_ms)}
        if ack is not None and ack.holds:
            texts["holds"] = json.dumps(dict(ack.holds))
        if ack is not None and ack.lost:
            texts["lost"] = json.dumps(to_builtins(ack.lost))
        size = sum(len(key) + len(each) + 4 for each in texts.values())
        if used + size > bytes_max:
            if 2 * used > bytes_max:
                break
            continue
        used += size
        for name, each in texts.items():
            parts[name].append(f"{key}: {each}")
    fields = [
        f'"{name}": {{{", ".join(each)}}}'
        for name, each in parts.items()
        if each or name == "timeouts"
    ]
    return f"{{{', '.join(fields)}}}".encode("ascii")


class _Answer(Struct):
    """An answer, as it is read: what is of another type ends the reading of it."""

    timeouts: dict[str, Annotated[int, Meta(gt=0)] | None] | None = None
    holds: dict[str, dict[str, int]] = {}
    lost: dict[str, tuple[LostGrant, ...]] = {}
    problem: dict[str, Any] | None = None


_READER = Decoder(_Answer)


def _decode_reply(reply: bytes) -> Acks:
    """Return the answers, or raise the leader's problem; what cannot be read confirms nothing."""
    try:
        answer = _READER.decode(reply)
    except (DecodeError, RecursionError):
        raise NoLeaderError("the leader's answer to heartbeats cannot be read") from None
    if answer.problem is not None:
        raise from_problem(answer.problem)
    if answer.timeouts is None:
        raise NoLeaderError("the leader's answer to heartbeats cannot be read")
    return {
        key: None
        if timeout_ms is None
        else SessionLease(key, timeout_ms, answer.holds.get(key, {}), answer.lost.get(key, ()))
        for key, timeout_ms in answer.timeouts.items()
    }


_DEADLINE_MS = 2_000
"""Later it is not worth much; the client sends a heartbeat, or another request."""
_MOMENT_MS = 10
"""A linearizable read is answered by the same round of the quorum."""


class LeaseRenewal:
    """The renewal beside one request that names its session, under way from now on: a client that
    is busy need not send heartbeats of its own.

    1. It is a heartbeat like any other, begun when the request arrives.
    2. It is acknowledged only while the session has no bounded hold and has lost no grant: a
       heartbeat has more to say then, and its client must hear it as often.
    3. The results of the two are independent: an answer that says nothing of the renewal says
       nothing of the session.
    4. An answer that is ready waits for it for a moment only.
    """

    def __init__(
        self, heartbeats: Heartbeats, timers: Timers, clock: Clock, session_id: str
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        heartbeat = heartbeats.heartbeat(
            session_id, self._began_ms + _DEADLINE_MS, is_urgent=True
        )
        self._task = asyncio.create_task(heartbeat, name=f"renew session {session_id}")

    async def safe_ms(self) -> int | None:
        """Return for how long the session is safe from now on; None if it was not renewed."""
        task = self._task
        if not task.done():
            try:
                async with self._timers.deadline(self._clock.monotonic_ms() + _MOMENT_MS):
                    await asyncio.wait({task})
            except TimeoutError:
                return None
        lease = _acknowledged(task)
        if lease is None or lease.holds or lease.lost:
            return None
        left_ms = self._began_ms + lease.timeout_ms - self._clock.monotonic_ms()
        return safe_ms(lease.timeout_ms, left_ms) or None

    def stop(self) -> None:
        """End it; the request was answered, or its client has gone."""
        self._task.cancel()
        self._task.add_done_callback(let_go)


def _acknowledged(task: asyncio.Task[SessionLease]) -> SessionLease | None:
    try:
        return task.result()
    except (CoordinatorError, asyncio.CancelledError):
        return None
