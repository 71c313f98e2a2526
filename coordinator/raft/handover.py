"""The handover of a leadership: the next leader is chosen, brought up to date and asked to stand.

A leader hands over when it stops, when its disk keeps its followers waiting, and when it is asked
to. The steps, each in a pass of the loop and all of them bounded:

1. nothing new is proposed; what is under way is committed and answered (if it waits for this
   leader's disk, the next leader commits it);
2. the connected follower with the most entries is sent the rest;
3. it is asked to stand at once (Raft thesis, 3.10). Its vote requests say so, and members grant
   them although they hear a leader;
4. it leads: this member has stepped down and follows it.

A follower that does not stand (it is recovering, its own disk is no better, it has lost contact
with this member) is asked again, and then the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coordinator.errors import NoLeaderError, ShuttingDownError, UnavailableError
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.raft.network.messages import StandNow

DRAIN_MS_MAX = 1_000
"""How long proposals under way are waited for; then the leadership is handed over anyway."""
HANDOVER_MS_MAX = 2_000
"""The limit for all steps together."""
ASK_AGAIN_MS = 150
TRY_AGAIN_MS = 15_000
"""The pause after no follower took the leadership from a leader with a bad disk."""


class Handover:
    """One leader's. ``done`` ends when there is nothing left to wait for."""

    def __init__(self, now_ms: Callable[[], int], is_connected: Callable[[str], bool]) -> None:
        self._now_ms = now_ms
        self._is_connected = is_connected
        self._began_ms = now_ms()
        self._asked_ms: int | None = None
        self._asked: list[str] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        """Whether the handover has ended, or has taken its longest time."""
        return self.done.done() or self._now_ms() - self._began_ms > HANDOVER_MS_MAX

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
        """Return the next leader: of the followers asked least often, the one with most entries."""
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


class Handovers:
    """When a member hands over: when it stops, and while its disk delays the followers."""

    def __init__(
        self,
        others: tuple[str, ...],
        now_ms: Callable[[], int],
        is_connected: Callable[[str], bool],
    ) -> None:
        self._others = others
        self._now_ms = now_ms
        self._is_connected = is_connected
        self.current: Handover | None = None
        """While there is one new proposals are refused: another member is about to lead."""
        self._next_ms = 0
        self.is_stopping = False

    def refuse_unless_leading(self, consensus: Consensus) -> None:
        """Raise NoLeaderError or ShuttingDownError if this member takes no proposals."""
        me = consensus.member_id
        if consensus.core.role is not Role.LEADER:
            raise NoLeaderError(f"member {me} does not lead", leader_id=consensus.leader_id)
        if self.is_stopping:
            raise ShuttingDownError(f"member {me} is stopping; try another one")
        if self.current is not None:
            raise NoLeaderError(f"member {me} hands its leadership over; try again")

    def step(self, consensus: Consensus, in_flight: int, *, is_overtaken: bool) -> None:
        """Do what is due; called in every pass."""
        is_leader = consensus.core.role is Role.LEADER
        if is_overtaken and is_leader and self.current is None and self._now_ms() >= self._next_ms:
            self.current = Handover(self._now_ms, self._is_connected)
        if self.current is None:
            return
        self.current.step(consensus, in_flight if self.is_stopping else 0)
        if self.current.is_over and not self.is_stopping:
            self.current = None
            self._next_ms = self._now_ms() + TRY_AGAIN_MS

    async def stop(self, consensus: Consensus | None, wake: Callable[[], None]) -> None:
        """Hand over for good, to any follower that can be reached."""
        self.is_stopping = True
        connected = [other for other in self._others if self._is_connected(other)]
        has_quorum = len(connected) >= (len(self._others) + 1) // 2
        if consensus is None or consensus.core.role is not Role.LEADER or not has_quorum:
            return
        self.current = Handover(self._now_ms, self._is_connected)
        wake()
        await asyncio.wait((self.current.done,), timeout=HANDOVER_MS_MAX / 1000)

    async def hand_over(self, consensus: Consensus, wake: Callable[[], None]) -> None:
        """Hand over now, and go on as a follower.

        Raises:
            NoLeaderError, ShuttingDownError: this member does not lead, or hands over already.
            UnavailableError: no follower took the leadership; this member still leads.
        """
        self.refuse_unless_leading(consensus)
        current = self.current = Handover(self._now_ms, self._is_connected)
        wake()
        await asyncio.wait((current.done,), timeout=HANDOVER_MS_MAX / 1000)
        if consensus.core.role is Role.LEADER:
            raise UnavailableError(
                f"no other member took the leadership within {HANDOVER_MS_MAX} ms; member "
                f"{consensus.member_id} still leads"
            )

    def give_up(self) -> None:
        """End a hand-over: this member has failed."""
        if self.current is not None and not self.current.done.done():
            self.current.done.set_result(None)
