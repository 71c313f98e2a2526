"""Who leads, as this member knows it: waiting for a leader, and when there was last contact.

The engine tells of every change of the leader, and of this member's own role once it may serve as
leader; whoever waits for a leader is woken by that. A known leader that could not be used (it is
not ready, it is stopping, the connection is being made) is tried again after ``_TRY_AGAIN_S``.
"""

from __future__ import annotations

import asyncio

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, ShuttingDownError
from coordinator.raft.engine import Engine, Role
from coordinator.waiting import wake_in_turns

_TRY_AGAIN_S = 0.02


class Leadership:
    """``term`` is that of the leadership of this member, while ``is_leader``."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._role = Role.FOLLOWER
        self._term = 0
        # In the order in which they came: a set would wake them in an order of its own.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._contact_ms: int | None = None
        self._is_stopping = False
        self._stopping_reason = f"member {engine.member_id} is stopping"

    @property
    def is_leader(self) -> bool:
        """True while this member leads and is ready to serve as leader."""
        return self._role is Role.LEADER

    @property
    def term(self) -> int:
        return self._term

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    def on_role_change(self, role: Role, term: int) -> None:
        self._role = role
        self._term = term
        self._wake()

    def on_leader_change(self, _leader_id: str | None, _term: int) -> None:
        self._wake()

    def known_leader(self) -> str | None:
        """Return whom to send a write to now; None when there is nobody."""
        if self.is_leader:
            return self._engine.member_id
        leader_id = self._engine.status().leader_id
        # Named leader but not told so by the engine: not ready yet.
        return None if leader_id == self._engine.member_id else leader_id

    async def leader(self) -> str:
        """Return the leader's member id, once there is one. The caller sets the deadline."""
        while True:
            self.refuse_when_stopping()
            leader_id = self.known_leader()
            if leader_id is not None:
                return leader_id
            await self._change()

    async def pause(self, tried: str | None = None) -> None:
        """Wait before trying again: for a leader, or, if one is known, a moment.

        ``tried`` is the leader that was tried; another one, known already, is not waited for."""
        self.refuse_when_stopping()
        leader_id = self.known_leader()
        if leader_id is None:
            await self._change()
        elif tried in (None, leader_id):
            if self._look is None:
                loop = asyncio.get_running_loop()
                self._look = loop.call_later(_TRY_AGAIN_S, self._wake)
            await self._change()

    async def _change(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            await woken
        finally:
            self._waiting.pop(woken, None)

    def note_contact(self) -> None:
        """A leader or a quorum has just been heard from."""
        self._contact_ms = self._clock.monotonic_ms()

    def observe(self, _now_ms: int) -> None:
        """Take what the engine knows of the leader as contact; called on every tick."""
        status = self._engine.status()
        leader_id = status.leader_id
        if leader_id is None:
            return
        if leader_id == status.member_id:
            heard = sum(status.is_reachable.values()) + 1
            if 2 * heard > len(status.is_reachable) + 1:
                self.note_contact()
        elif status.is_reachable.get(leader_id, False):
            self.note_contact()

    def contact_age_ms(self) -> int | None:
        """Return how long ago there was contact, None if there never was."""
        if self._contact_ms is None:
            return None
        return self._clock.monotonic_ms() - self._contact_ms

    def stop(self, reason: str = "") -> None:
        """Everybody who waits for a leader gets ShuttingDownError, and is told the reason."""
        self._stopping_reason = reason or self._stopping_reason
        self._is_stopping = True
        self._role = Role.FOLLOWER
        self._wake()

    def refuse_when_stopping(self) -> None:
        if self._is_stopping:
            raise self.stopping_error()

    def stopping_error(self) -> CoordinatorError:
        return ShuttingDownError(f"{self._stopping_reason}; try another one")

    def _wake(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        wake_in_turns(list(self._waiting), lambda woken: woken.set_result(None))
