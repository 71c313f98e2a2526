"""Leases: the leader's promise to keep each session until a deadline, on its monotonic clock.

1. Only a ready leader has leases. On becoming leader it starts the lease of every session in full;
   on stepping down it drops them all.
2. A session is never expired before ``timeout_ms`` have passed since the arrival of its last
   acknowledged heartbeat. Its end is proposed at the next tick, at most ``_EXPIRING_AT_ONCE_MAX``
   in one tick.
3. Expiry is a command that carries the leader's term; the log decides a race. While its outcome is
   unknown, no heartbeat of that session is acknowledged: until the expiry was certainly not
   proposed, or an outcome is known, which in one term also decides those proposed before it. A
   session has one expiry under way at a time.
4. A leader that did not tick for ``_STALL_MS`` beyond its interval starts all leases again in full:
   heartbeats that arrived in this time may still be unread (etcd issue 15247 shows what happens
   otherwise).
5. A tick costs O(leases that end or were extended since the last look), not O(all leases).
6. All leases start in slices, and the loop does other work in between. A session whose lease has
   not started gets no promise yet, and no lease ends before all have started.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import ClassVar

from coordinator.errors import OutcomeUnknownError, UnavailableError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import SESSION_ENDS, Interest
from coordinator.service.base.timers import NOT_BEFORE_LONG_MS, NeedBy, never_mind
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.state.commands import Command, Enter, ExpireSession, OpenSession
from coordinator.state.outcomes import Outcome, SessionEnded
from coordinator.state.session_operations import opened_by

logger = logging.getLogger("coordinator.service")

_STALL_MS = 1_000
_LOOK_EVERY_MS = _STALL_MS // 2
"""How often it is looked for stalls while there are leases, if none of them is due."""
_EXPIRING_AT_ONCE_MAX = 500
_STARTED_AT_ONCE = 2_000


class Leases:
    """The lease of every open session, while this member leads."""

    interest: ClassVar[Interest] = SESSION_ENDS | {OpenSession, Enter}

    def __init__(self, context: MemberContext) -> None:
        self._propose = context.propose
        self._clock = context.clock
        self._replica = context.replica
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._deadlines: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        """One entry per lease, except those whose expiry is being proposed."""
        self._expiring: set[str] = set()
        self._undecided: set[str] = set()
        self._stall_ms = _STALL_MS + context.config.sessions.tick_ms
        self._last_tick_ms = 0
        self.need_tick_by: NeedBy = never_mind
        self._starting: object | None = None
        """Identifies the start of all leases that is under way."""
        self._must_restart = False
        """The leader stalled during the start: all leases start again."""
        self.term: int | None = None
        """The term of the leadership these leases belong to; None while there are none."""

    def start(self, term: int) -> None:
        """This member leads and is ready: every session gets its lease in full."""
        self.stop()
        self.term = term
        self._last_tick_ms = self._clock.monotonic_ms()
        self._start_all()

    def stop(self) -> None:
        """This member no longer leads: drop all promises."""
        self.term = self._starting = None
        self._must_restart = False
        self._deadlines.clear()
        self._heap.clear()
        self._expiring.clear()
        self._undecided.clear()
        self._metrics.leases.set(0)

    def deadline_ms(self, session_id: str) -> int | None:
        """Return when the lease ends unless it is extended; None if there is none here."""
        return self._deadlines.get(session_id)

    def extend(self, session_id: str, arrived_ms: int) -> None:
        """Extend by the session's timeout, counted from the arrival of a heartbeat."""
        session = self._replica.machine.session(session_id)
        if session is not None and session_id in self._deadlines:
            # The heap keeps the older time and is corrected when that time comes.
            self._deadlines[session_id] = max(
                self._deadlines[session_id], arrived_ms + session.timeout_ms
            )

    def remaining_ms(self, session_id: str) -> int | None:
        """Return the least time left of a lease; None if nothing is promised here."""
        if not self.is_promised(session_id):
            return None
        return max(0, self._deadlines[session_id] - self._clock.monotonic_ms())

    def is_promised(self, session_id: str) -> bool:
        """Return whether the session's lease may be acknowledged: there is one, and no expiry of it
        is under way."""
        return session_id in self._deadlines and session_id not in self._undecided

    def tick(self, now_ms: int) -> int:
        """Propose the end of every session whose lease has run out; return when to look again."""
        if not self._deadlines and self._starting is None:
            return now_ms + NOT_BEFORE_LONG_MS
        self._look(now_ms, self.term)
        return min(now_ms + _LOOK_EVERY_MS, self._heap[0][0] if self._heap else now_ms)

    def _look(self, now_ms: int, term: int | None) -> None:
        assert term is not None, "without a leadership there are no leases"
        stalled_ms, self._last_tick_ms = now_ms - self._last_tick_ms, now_ms
        if stalled_ms > self._stall_ms:
            self._metrics.lease_restarts.inc()
            logger.warning("no tick for %d ms: all leases start again in full", stalled_ms)
            self._must_restart = True
            if self._starting is None:
                self._start_all()
        if self._is_starting():
            return
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms:
            if len(due) + len(self._expiring) >= _EXPIRING_AT_ONCE_MAX:
                break  # the others at the next tick
            _, session_id = heapq.heappop(self._heap)
            self._metrics.leases_looked_at.inc()
            deadline_ms = self._deadlines.get(session_id)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                heapq.heappush(self._heap, (deadline_ms, session_id))
            else:
                due.append(session_id)
        for session_id in due:
            is_first = session_id not in self._undecided
            self._undecided.add(session_id)
            self._expiring.add(session_id)
            expiring = self._expire(session_id, term, is_first=is_first)
            self._tasks.spawn(expiring, f"expire {session_id}")

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Start the lease of a session that was opened, and end that of one that was closed."""
        if self.term is None:
            return
        result = outcome.result
        if isinstance(result, SessionEnded):
            self._maybe_drop(result.session_id)
            return
        opened = opened_by(command.operation, result)
        if opened is not None and opened not in self._deadlines:
            session = self._replica.machine.session(opened)
            if session is not None:
                self._start_one(opened, session.timeout_ms, self._clock.monotonic_ms())

    def on_restore(self) -> None:
        """A leader is never sent a snapshot, so a member that gets one has no leases."""
        self.stop()

    def _is_starting(self) -> bool:
        return self._starting is not None

    def _start_all(self) -> None:
        self._must_restart = False
        self._heap.clear()
        self._starting = mark = object()
        ids = [session.session_id for session in self._replica.machine.sessions()]
        if len(ids) <= _STARTED_AT_ONCE:
            self._start_some(ids)
            self._end_start()
        else:
            self._tasks.spawn(self._start_in_slices(mark, ids), "start all leases")

    async def _start_in_slices(self, mark: object, ids: list[str]) -> None:
        for start in range(0, len(ids), _STARTED_AT_ONCE):
            if self._starting is not mark:
                return  # it leads no more, or again
            self._start_some(ids[start : start + _STARTED_AT_ONCE])
            await asyncio.sleep(0)
        if self._starting is mark:
            self._end_start()

    def _start_some(self, session_ids: list[str]) -> None:
        now_ms = self._clock.monotonic_ms()
        for session_id in session_ids:
            session = self._replica.machine.session(session_id)
            if session is None:
                continue
            deadline_ms = now_ms + session.timeout_ms
            self._deadlines[session_id] = max(self._deadlines.get(session_id, 0), deadline_ms)
            if session_id not in self._expiring:  # its expiry pushes it again
                heapq.heappush(self._heap, (deadline_ms, session_id))

    def _end_start(self) -> None:
        self._starting = None
        self._metrics.leases.set(len(self._deadlines))
        if self._heap:
            self.need_tick_by(self._heap[0][0])
        if self._must_restart:
            self._start_all()

    def _start_one(self, session_id: str, timeout_ms: int, now_ms: int) -> None:
        if not self._deadlines:
            self._last_tick_ms = now_ms  # not looked at since the last lease ended
        self._deadlines[session_id] = now_ms + timeout_ms
        heapq.heappush(self._heap, (now_ms + timeout_ms, session_id))
        self.need_tick_by(now_ms + min(timeout_ms, _LOOK_EVERY_MS))
        self._metrics.leases.set(len(self._deadlines))

    def _maybe_drop(self, session_id: str) -> None:
        # An expiry of a former term ends nothing, so check the state, not the outcome.
        if self._replica.machine.session(session_id) is None:
            self._deadlines.pop(session_id, None)
            self._undecided.discard(session_id)
            self._metrics.leases.set(len(self._deadlines))

    def _silent_ms(self, session_id: str) -> int:
        """Return the time since the last heartbeat of a session in this leadership."""
        session = self._replica.machine.session(session_id)
        deadline_ms = self._deadlines.get(session_id)
        if session is None or deadline_ms is None:
            return 0
        return max(0, self._clock.monotonic_ms() - deadline_ms + session.timeout_ms)

    async def _expire(self, session_id: str, term: int, *, is_first: bool) -> None:
        operation = ExpireSession(session_id, term, self._silent_ms(session_id), ENDED_AT_ONCE)
        is_decided = True
        try:
            await self._propose(operation)
        except UnavailableError:
            # Certainly not proposed: try again at the next tick; a heartbeat may come first. This
            # does not decide an earlier expiry whose outcome is unknown.
            is_decided = is_first
        except OutcomeUnknownError:
            is_decided = False  # proposed again at the next tick; no promise until then
        if self.term != term:
            return  # all leases were dropped, and with them this expiry
        self._expiring.discard(session_id)
        if session_id in self._deadlines:
            heapq.heappush(self._heap, (self._deadlines[session_id], session_id))
            self.need_tick_by(self._deadlines[session_id])
        else:
            self._metrics.sessions_expired.inc()
            logger.info("session %s expired in term %d: no heartbeat in time", session_id, term)
        if is_decided:
            self._undecided.discard(session_id)
