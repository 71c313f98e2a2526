"""The reaper: the leader deletes idle containers and ttl znodes that were not changed in time.

1. Only a ready leader reaps, and no wall clock takes part: a ttl counts from when this leader first
   saw the znode at its present ``mzxid`` and ``pzxid``. So a change of leader can make a znode live
   longer, never shorter.
2. A ttl znode is due ``ttl_ms`` after that. A container is due when it was empty and unchanged for
   ``reap_interval_ms``, so a queue that is used again soon keeps its container. What is due is
   deleted at the next look, at most ``LOOK_EVERY_MS`` later, ``_REAP_AT_ONCE_MAX`` at a time.
3. The command names the state that was seen; a change before it in the log makes it do nothing.
4. A look costs O(znodes that are due or changed since the last look), not O(all idle znodes).
"""

from __future__ import annotations

import asyncio
import heapq
from typing import ClassVar, Final, NamedTuple

from coordinator.errors import CoordinatorError
from coordinator.model.events import EventType
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import ALL_OUTCOMES, Interest
from coordinator.service.base.timers import NOT_BEFORE_LONG_MS, NeedBy, never_mind
from coordinator.state.commands import Command, Enter, Reap
from coordinator.state.large_map import LargeMap
from coordinator.state.outcomes import Outcome, Reaped, Refusal
from coordinator.state.paths import parent_of
from coordinator.waiting import let_go

LOOK_EVERY_MS: Final = 250
_REAP_AT_ONCE_MAX: Final = 1_000
_REAP_TOGETHER: Final = 50
_SEEN_AT_ONCE: Final = 2_000


class _Seen(NamedTuple):
    """An idle znode as this leader saw it, and when it is due."""

    due_ms: int
    mzxid: int
    pzxid: int


class Reaper:
    """The idle znodes that this leader has seen, and when they are due."""

    interest: ClassVar[Interest] = ALL_OUTCOMES - {Enter, Refusal}
    """What an Enter creates is a contender, or has one."""

    def __init__(self, context: MemberContext) -> None:
        self._propose = context.propose
        self._clock = context.clock
        self._replica = context.replica
        self._leadership = context.leadership
        self._tasks = context.tasks
        self._metrics = context.metrics
        self._container_ms = context.config.limits.reap_interval_ms
        self._seen = LargeMap[str, _Seen]()
        self._heap: list[tuple[int, str]] = []
        """One entry per znode, at its due time or earlier; corrected when that time comes."""
        self._term: int | None = None
        self._is_reaping = False
        self.need_look_by: NeedBy = never_mind

    def stop(self) -> None:
        """Forget what was seen: this member leads no more, and is not asked to look."""
        self._begin(None)

    def look(self, now_ms: int) -> int:
        """Reap what is due; return when something is."""
        self._look(now_ms)
        return self._heap[0][0] if self._heap else now_ms + NOT_BEFORE_LONG_MS

    def _look(self, now_ms: int) -> None:
        term = self._leadership.term if self._leadership.is_leader else None
        if term != self._term:
            self._begin(term)
        if term is None or self._is_reaping:
            return
        due: list[Reap] = []
        while self._heap and self._heap[0][0] <= now_ms and len(due) < _REAP_AT_ONCE_MAX:
            _, path = heapq.heappop(self._heap)
            seen = self._seen.get(path)
            if seen is None:
                continue
            if seen.due_ms > now_ms:
                heapq.heappush(self._heap, (seen.due_ms, path))
                continue
            self._seen.pop(path)
            if self._is_as_seen(path, seen):
                due.append(Reap(path, seen.mzxid, seen.pzxid, term))
        if due:
            self._is_reaping = True
            self._tasks.spawn(self._reap(due), "reap")

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Note the containers and ttl znodes that this command touched."""
        if self._term is None:
            return
        parent = ""
        for event in outcome.events:
            if event.type is not EventType.DELETED:
                self._note(event.path)
            elif (above := parent_of(event.path)) != parent:
                parent = above  # of many siblings it is looked at once
                self._note(parent)

    def on_restore(self) -> None:
        """A leader is never sent a snapshot, so a member that gets one reaps nothing."""
        self._begin(None)

    def _begin(self, term: int | None) -> None:
        """A new leadership: every znode is seen for the first time."""
        heap, self._heap = self._heap, []
        let_go(heap)
        for part in self._seen.given_up():
            let_go(part)
        self._term = term
        if term is not None:
            self._tasks.spawn(self._see_all(term), "see what is idle")

    async def _see_all(self, term: int) -> None:
        paths = self._replica.machine.idle_paths()
        for start in range(0, len(paths), _SEEN_AT_ONCE):
            if self._term != term:
                return
            for path in paths[start : start + _SEEN_AT_ONCE]:
                self._note(path)
            await asyncio.sleep(0)

    def _note(self, path: str) -> None:
        """Look at a znode that may be idle; keep its due time if it is unchanged."""
        idle = self._replica.machine.idle(path)
        if idle is None:
            return  # what is in the heap of it is skipped when its time comes
        seen = self._seen.get(path)
        if seen is not None and seen.mzxid == idle.mzxid and seen.pzxid == idle.pzxid:
            return
        wait_ms = self._container_ms if idle.ttl_ms is None else idle.ttl_ms
        due_ms = self._clock.monotonic_ms() + wait_ms
        self._seen[path] = _Seen(due_ms, idle.mzxid, idle.pzxid)
        if seen is None or due_ms < seen.due_ms:  # else its entry comes at the older time
            heapq.heappush(self._heap, (due_ms, path))
            self.need_look_by(due_ms)

    def _is_as_seen(self, path: str, seen: _Seen) -> bool:
        idle = self._replica.machine.idle(path)
        return idle is not None and (idle.mzxid, idle.pzxid) == (seen.mzxid, seen.pzxid)

    async def _reap(self, due: list[Reap]) -> None:
        try:
            for start in range(0, len(due), _REAP_TOGETHER):
                some = due[start : start + _REAP_TOGETHER]
                await asyncio.gather(*[self._reap_one(each) for each in some])
        finally:
            self._is_reaping = False

    async def _reap_one(self, operation: Reap) -> None:
        try:
            applied = await self._propose(operation)
        except CoordinatorError:
            if self._term == operation.term:  # tried again at the next look
                seen = _Seen(self._clock.monotonic_ms(), operation.mzxid, operation.pzxid)
                self._seen.setdefault(operation.path, seen)
                heapq.heappush(self._heap, (seen.due_ms, operation.path))
                self.need_look_by(seen.due_ms)
            return
        outcome: Outcome = applied.result
        if isinstance(outcome.result, Reaped) and outcome.result.was_deleted:
            self._metrics.reaped.inc()
