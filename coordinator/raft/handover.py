"""The orderly end of a leadership: the next leader is chosen, made level and asked to stand.

In this order, each step taken in a pass of the loop, and all of it bounded by the caller:

1. nothing new is proposed; what is under way is committed and answered;
2. the connected follower that has most is sent the rest;
3. it is told to stand at once (Raft thesis, 3.10). Its vote requests say so, and whoever gets one
   does not count on the leader it hears;
4. it leads: this member has stepped down and follows it.

A follower that does not stand (it is on probation, it has lost sight of this member) is asked
again, and then the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.raft.messages import StandNow

DRAIN_MS_MAX = 1_000
"""How long proposals under way are waited for before the leadership is given away all the same."""
HANDOVER_MS_MAX = 2_000
"""For all of it."""
ASK_AGAIN_MS = 150


class Handover:
    """One leader's, while it stops. ``done`` ends when there is nothing left to wait for."""

    def __init__(self, now_ms: Callable[[], int], is_connected: Callable[[str], bool]) -> None:
        self._now_ms = now_ms
        self._is_connected = is_connected
        self._began_ms = now_ms()
        self._asked_ms: int | None = None
        self._asked: list[str] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def step(self, consensus: Consensus, in_flight: int) -> None:
        """Do what can be done now; called in every pass."""
        if self.done.done():
            return
        if consensus.core.role is not Role.LEADER:
            if consensus.leader_id is not None:
                self.done.set_result(None)
            return
        now_ms = self._now_ms()
        if in_flight and now_ms - self._began_ms < DRAIN_MS_MAX:
            return
        target = self._target(consensus)
        if target is None:
            if not in_flight:
                self.done.set_result(None)
            return
        if consensus.replication.followers[target].match_index < consensus.last_index:
            return  # the rest is on its way
        if self._asked_ms is None or now_ms - self._asked_ms >= ASK_AGAIN_MS:
            self._asked_ms = now_ms
            self._asked.append(target)
            consensus.send_now(target, StandNow(consensus.core.term))

    def _target(self, consensus: Consensus) -> str | None:
        """Return who is to lead: of those asked least often the one that has most."""
        followers = consensus.replication.followers
        connected = [member_id for member_id in followers if self._is_connected(member_id)]
        return max(
            connected,
            key=lambda member_id: (
                -(self._asked.count(member_id) // 2),
                followers[member_id].match_index,
            ),
            default=None,
        )
