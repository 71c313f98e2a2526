"""The reaper: the leader deletes idle containers, and ttl znodes that nobody changed in time.

1. Only a ready leader reaps, and no wall clock takes part: a ttl counts from when this leader first
   saw the znode at its present ``mzxid`` and ``pzxid``. So a change of leader can make one live
   longer, never shorter.
2. A container goes when it was empty and unchanged at two looks in a row: a queue that is used
   again at once keeps its container.
3. The command names what was seen; a change that comes before it in the log makes it void.
"""

from __future__ import annotations

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError
from coordinator.raft.engine import Engine
from coordinator.service.leadership import Leadership
from coordinator.service.metrics import Metrics
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Reap
from coordinator.state.outcomes import Outcome, Reaped

_REAP_AT_ONCE_MAX = 1_000


class Reaper:
    """What this leader has seen idle, and since when."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        replica: MachineReplica,
        leadership: Leadership,
        tasks: Tasks,
        metrics: Metrics,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._replica = replica
        self._leadership = leadership
        self._tasks = tasks
        self._metrics = metrics
        self._seen_ms: dict[tuple[str, int, int], int] = {}
        self._term: int | None = None
        self._is_reaping = False

    def look(self, now_ms: int) -> None:
        """Note what is idle, and reap what has been for long enough."""
        if not self._leadership.is_leader or self._leadership.term != self._term:
            self._seen_ms = {}  # another leadership: everything is seen anew
            self._term = self._leadership.term if self._leadership.is_leader else None
        if self._term is None or self._is_reaping:
            return
        seen_ms: dict[tuple[str, int, int], int] = {}
        due: list[Reap] = []
        for znode in self._replica.machine.idle_candidates():
            key = (znode.path, znode.mzxid, znode.pzxid)
            first_ms = self._seen_ms.get(key)
            seen_ms[key] = now_ms if first_ms is None else first_ms
            is_due = first_ms is not None and now_ms - first_ms >= (znode.ttl_ms or 0)
            if is_due and len(due) < _REAP_AT_ONCE_MAX:
                due.append(Reap(znode.path, znode.mzxid, znode.pzxid, self._term))
        self._seen_ms = seen_ms
        if due:
            self._is_reaping = True
            self._tasks.spawn(self._reap(due), "reap")

    async def _reap(self, due: list[Reap]) -> None:
        try:
            for operation in due:
                command = Command(operation, self._clock.wall_ms())
                applied = await self._engine.propose(encode_command(command))
                outcome: Outcome = applied.result
                if isinstance(outcome.result, Reaped) and outcome.result.was_deleted:
                    self._metrics.reaped.inc()
        except CoordinatorError:
            pass  # looked at again next time, by whoever leads then
        finally:
            self._is_reaping = False
