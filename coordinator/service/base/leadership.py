"""The leader as this member knows it, and the waiters for one.

The engine reports every change of the leader, and this member's own role once it may serve as
leader; that wakes those who wait for a leader. A known leader that could not be used (it is not
ready, it is stopping, the connection is being made) is tried again after ``_TRY_AGAIN_S``.

Who waits here for long (for a lock, for changes) is sent away once no leader has been known for
``LEADER_WITHIN_MS``: this member may be cut off, and another one may know what is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import takewhile
from typing import Protocol

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, NoLeaderError, ShuttingDownError
from coordinator.node.config import ClusterConfig
from coordinator.raft.engine import Engine, Role
from coordinator.service.base.timers import NOT_BEFORE_LONG_MS, NeedBy, never_mind
from coordinator.waiting import in_turns, wake_in_turns

LEADER_WITHIN_MS = 5_000
"""Longer than an election."""
_TRY_AGAIN_S = 0.02


class LongWait(Protocol):
    """A wait that has no end of its own, or one that is far."""

    def cut(self) -> None:
        """End it; called at most once."""


class Leadership:
    """``term`` is that of the leadership of this member, while ``is_leader``."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._member_id = engine.member_id
        self._clock = clock
        self.is_leader = False
        """True while this member leads and is ready to serve as leader."""
        self._term = 0
        # A set would wake them in an order of its own.
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._look: asyncio.TimerHandle | None = None
        self._unled_ms: int | None = clock.monotonic_ms()
        """Since when no leader is known; None while there is one."""
        self._long_waits: dict[LongWait, int] = {}
        """When each began, in this order."""
        self.need_observing_by: NeedBy = never_mind
        self.is_stopping = False
        """Whether this member takes no more requests."""
        self._stopping_reason = f"member {engine.member_id} is stopping"

    @property
    def term(self) -> int:
        """The latest term that the engine has reported."""
        return self._term

    def on_role_change(self, role: Role, term: int) -> None:
        """Note the role of this member, and wake those who wait for a leader."""
        self.is_leader = role is Role.LEADER
        self._term = term
        self._note_whether_led()
        self._wake()

    def on_leader_change(self, _leader_id: str | None, _term: int) -> None:
        """Wake those who wait for a leader."""
        self._note_whether_led()
        self._wake()

    def known_leader(self) -> str | None:
        """Return the member id to send a write to now; None if there is no leader."""
        if self.is_leader:
            return self._member_id
        leader_id = self._engine.leader_id
        # Elected, but the engine has not reported the role: not ready yet.
        return None if leader_id == self._member_id else leader_id

    async def leader(self) -> str:
        """Return the leader's member id once there is a leader. The caller sets the deadline."""
        while True:
            self.refuse_when_stopping()
            leader_id = self.known_leader()
            if leader_id is not None:
                return leader_id
            await self._change()

    async def pause(self, tried: str | None = None) -> None:
        """Wait before trying again: for a leader or, if one is known, a moment.

        ``tried`` is the leader that was tried; if another one is known already, do not wait."""
        self.refuse_when_stopping()
        leader_id = self.known_leader()
        if leader_id is None:
            await self._change()
        elif tried in (None, leader_id):
            if self._look is None:
                loop = asyncio.get_running_loop()
                self._look = loop.call_later(_TRY_AGAIN_S, self._wake)
            await self._change()

    def stay(self, wait: LongWait) -> None:
        """Cut ``wait`` if it lasts until no leader was known for ``LEADER_WITHIN_MS`` of it."""
        self._long_waits[wait] = self._clock.monotonic_ms()

    def leave(self, wait: LongWait) -> None:
        """``wait`` is over, or never began. Idempotent."""
        self._long_waits.pop(wait, None)

    def unled_error(self, then: str) -> NoLeaderError:
        """Return the error for those who are sent away; ``then`` says what became of it."""
        return NoLeaderError(
            f"member {self._engine.member_id} knew no leader for {LEADER_WITHIN_MS} ms; {then}"
        )

    def _note_whether_led(self) -> None:
        if self.known_leader() is not None:
            self._unled_ms = None
        elif self._unled_ms is None:
            self._unled_ms = now_ms = self._clock.monotonic_ms()
            self.need_observing_by(now_ms)

    def _send_away(self, now_ms: int) -> None:
        last_ms = now_ms - LEADER_WITHIN_MS
        if self._unled_ms is None or self._unled_ms > last_ms:
            return
        long = self._long_waits
        due = list(takewhile(lambda each: long[each] <= last_ms, long))
        for each in due:
            del long[each]
        in_turns(due, lambda each: each.cut())

    async def _change(self) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = None
        try:
            await woken
        finally:
            self._waiting.pop(woken, None)

    def observe(self, now_ms: int) -> int | None:
        """Note whether a leader is known; called on every tick while there is none.

        Return when to call it again if there is one."""
        self._note_whether_led()
        self._send_away(now_ms)
        return now_ms + NOT_BEFORE_LONG_MS if self._unled_ms is None else None

    def stop(self, reason: str = "") -> None:
        """Fail all who wait for a leader with ShuttingDownError and the reason."""
        self._stopping_reason = reason or self._stopping_reason
        self.is_stopping = True
        self.is_leader = False
        self._wake()

    def refuse_when_stopping(self) -> None:
        """Raise ShuttingDownError if this member takes no more requests."""
        if self.is_stopping:
            raise self.stopping_error()

    def stopping_error(self) -> CoordinatorError:
        """Return the error that says why this member takes no more requests."""
        return ShuttingDownError(f"{self._stopping_reason}; try another one")

    def _wake(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        wake_in_turns(list(self._waiting), lambda woken: woken.set_result(None))


class LeaderAddress:
    """The address where the leader that this member knows serves clients."""

    def __init__(self, engine: Engine, cluster: ClusterConfig) -> None:
        self._engine = engine
        self._urls = {each.member_id: each.client_url for each in cluster.members}

    def url(self) -> str | None:
        """Return it as the status says it; None when no leader is known, or not its address."""
        leader_id = self._engine.leader_id
        return None if leader_id is None else self._urls.get(leader_id) or None

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have ``listener`` called at each change of the leader, while it is being made."""
        self._engine.on_leader_change(lambda _leader_id, _term: listener())
