"""How long each lock has been held, and which are held suspiciously long.

1. A hold is counted on the monotonic clock from when this member first saw its holder hold, so it
   is never overstated; after a restart, or a snapshot from another member, it begins anew.
2. Work is done for what changed: a lock whose queue changed is looked at once at the next look, and
   a hold once more when it becomes long. Locks at rest cost nothing.
3. The leader says in its log, once for each, that a hold has become long; every member counts them
   in a gauge and lists them (S050). Elections are meant to be held long and are left out.
"""

from __future__ import annotations

import heapq
import logging
from dataclasses import dataclass

from coordinator.clock import Clock
from coordinator.service.contenders import LOCKS, lowest_of
from coordinator.service.leadership import Leadership
from coordinator.service.metrics import Metrics
from coordinator.service.replica import MachineReplica
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome

logger = logging.getLogger(__name__)

LOOK_EVERY_MS = 1_000
_PREFIX = LOCKS.root + "/"


@dataclass(slots=True)
class _Hold:
    """One holder of a lock: the znode's ``czxid``, and since when it was seen to hold."""

    czxid: int
    since_ms: int
    is_long: bool = False


class LongHolds:
    """The holds of all locks, as this member sees them."""

    def __init__(
        self,
        clock: Clock,
        replica: MachineReplica,
        leadership: Leadership,
        metrics: Metrics,
        long_hold_ms: int,
    ) -> None:
        self._clock = clock
        self._replica = replica
        self._leadership = leadership
        self._metrics = metrics
        self._long_hold_ms = long_hold_ms
        self._holds: dict[str, _Hold] = {}
        self._changed: dict[str, None] = {}
        self._becoming_long: list[tuple[int, str, int]] = []
        self._long_count = 0

    def held_ms(self, directory: str) -> int:
        """Return for how long the present holder has been seen to hold, 0 when nobody does."""
        if directory in self._changed:
            self._look_at(directory, self._clock.monotonic_ms())
        hold = self._holds.get(directory)
        return 0 if hold is None else self._clock.monotonic_ms() - hold.since_ms

    def look(self, now_ms: int) -> None:
        """Look at the queues that changed, and at the holds that have become long."""
        for directory in list(self._changed):
            self._look_at(directory, now_ms)
        while self._becoming_long and self._becoming_long[0][0] <= now_ms:
            _, directory, czxid = heapq.heappop(self._becoming_long)
            hold = self._holds.get(directory)
            if hold is not None and hold.czxid == czxid and not hold.is_long:
                hold.is_long = True
                self._long_count += 1
                self._say(directory, now_ms - hold.since_ms)
        self._metrics.long_holds.set(self._long_count)

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        for event in outcome.events:
            path = event.path
            if path.startswith(_PREFIX):
                directory, _, _ = path.rpartition("/")
                if directory != LOCKS.root:
                    self._changed[directory] = None

    def on_restore(self) -> None:
        """Everything may be different: nothing is known of how long it has been so."""
        self._holds.clear()
        self._becoming_long.clear()
        self._long_count = 0
        segments = self._replica.machine.children(LOCKS.root) or ()
        self._changed = {_PREFIX + segment: None for segment in segments}

    def _look_at(self, directory: str, now_ms: int) -> None:
        self._changed.pop(directory, None)
        holder = lowest_of(self._replica.machine, directory)
        known = self._holds.get(directory)
        if known is not None and holder is not None and known.czxid == holder.czxid:
            return
        if known is not None:
            self._long_count -= known.is_long
            del self._holds[directory]
        if holder is not None:
            self._holds[directory] = _Hold(holder.czxid, now_ms)
            due_ms = now_ms + self._long_hold_ms
            heapq.heappush(self._becoming_long, (due_ms, directory, holder.czxid))
        if len(self._becoming_long) > 2 * len(self._holds) + 1_000:
            # Holds that ended before they became long leave their entry behind.
            self._becoming_long = [
                (hold.since_ms + self._long_hold_ms, each, hold.czxid)
                for each, hold in self._holds.items()
                if not hold.is_long
            ]
            heapq.heapify(self._becoming_long)

    def _say(self, directory: str, held_ms: int) -> None:
        if not self._leadership.is_leader:
            return
        holder = lowest_of(self._replica.machine, directory)
        assert holder is not None, "a hold that was not seen to end has a holder"
        logger.warning(
            "lock %r has been held for %d s by session %s (grant %s)",
            LOCKS.name_of(directory[len(_PREFIX) :]),
            held_ms // 1000,
            holder.session_id,
            holder.grant_id,
        )
