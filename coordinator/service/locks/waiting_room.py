"""The room for attempts that wait to hold, on one member: in all, and for one client.

1. An attempt takes a place before it is queued. A try needs none.
2. Where there is no room, a free lock can be acquired all the same: an attempt that would hold, as
   this member sees it, goes on as a try, which is queued only if it holds. So the waiters of one
   client keep nobody from what is free.
3. An attempt that would wait is refused after a look at a fresh state, with nothing proposed.
"""

from __future__ import annotations

from coordinator.errors import ThrottledError
from coordinator.service.base.context import MemberContext
from coordinator.service.base.places import SharedPlaces, takes_the_last
from coordinator.service.base.turns import KEY
from coordinator.service.locks.attempts import QueueAttempt
from coordinator.service.locks.manual_holds import is_held_by_hand
from coordinator.service.reads.reads import LINEARIZABLE, Reads
from coordinator.state.commands import Kind


class WaitingRoom:
    """The attempts that have a place, by client."""

    def __init__(self, context: MemberContext, reads: Reads) -> None:
        self._replica = context.replica
        self._reads = reads
        self._metrics = context.metrics
        self._places = SharedPlaces(
            context.config.limits.lock_waiters_max,
            "attempts that wait to hold at one member",
            "limits.lock_waiters_max",
        )

    async def enter(self, attempt: QueueAttempt) -> str | None:
        """Take a place; return the client whose it is, None if the attempt needs none.

        Raises:
            ThrottledError: there is none for this client, and it would have to wait.
            NoLeaderError, ShuttingDownError: whether it would have to is not known.
        """
        if attempt.is_try:
            return None
        client = KEY.get()
        is_last = takes_the_last(self._replica.machine.access, attempt.caller)
        try:
            self._places.take(client, takes_the_last=is_last)
        except ThrottledError:
            if not self._would_hold(attempt):
                await self._reads.fresh(LINEARIZABLE, attempt.wait_deadline_ms)
                if not self._would_hold(attempt):
                    raise
            attempt.is_try = True
            return None
        self._metrics.contenders_waiting.set(self._places.total)
        return client

    def leave(self, client: str | None) -> None:
        """Give back what ``enter`` took."""
        if client is not None:
            self._places.give_back(client)
            self._metrics.contenders_waiting.set(self._places.total)

    def _would_hold(self, attempt: QueueAttempt) -> bool:
        machine, wanted = self._replica.machine, attempt.wanted
        kind = Kind(wanted.kind)
        return all(
            machine.locks.would_hold(each, kind, wanted.size) and not is_held_by_hand(machine, each)
            for each in attempt.recipe.directories(attempt.names)
        )
