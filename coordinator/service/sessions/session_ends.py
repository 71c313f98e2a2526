"""The ends of sessions that own many znodes, split into short commands.

1. The command that ends a session deletes about ``ENDED_AT_ONCE`` of its ephemerals. The leader
   proposes the deletion of the rest, one command after another, whichever member proposed the end.
2. Sessions whose credential was revoked count as ended at once; the leader ends some at a time.
3. A new leader continues where the former one stopped: the state holds what is left.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import ACCESS_CHANGES, SESSION_ENDS, Interest
from coordinator.service.writes.pieces import Pieces
from coordinator.state.commands import CloseSession, Command, FinishSession
from coordinator.state.outcomes import AccessChanged, Outcome, SessionEnded, SessionFinished

ENDED_AT_ONCE = 100
"""Ephemerals in one command."""
_REVOKED_AT_ONCE = 20
"""Sessions that are ended in one round."""


class SessionEnds:
    """Completes the ends of sessions while this member leads, and wakes those who wait for it."""

    interest: ClassVar[Interest] = ACCESS_CHANGES | SESSION_ENDS | {FinishSession}

    def __init__(self, context: MemberContext) -> None:
        self._replica = context.replica
        self._pieces = Pieces(context, "end sessions", self._next)
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.start = self._pieces.start
        self.stop = self._pieces.stop

    async def finished(self, session_id: str) -> None:
        """Return once an ended session owns nothing any more here. The caller cancels."""
        if session_id not in self._replica.machine.leaving_sessions():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session_id, []).append(waiter)
        await waiter

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        """Go on with the ends that come in pieces, and wake who waits for one that is done."""
        result = outcome.result
        if type(result) is SessionFinished:
            if not result.left:
                self._wake(result.session_id)
        elif type(result) is AccessChanged or (type(result) is SessionEnded and result.was_open):
            self._pieces.go_on()

    def on_restore(self) -> None:
        """Wake all waiters; each checks the restored state."""
        for session_id in list(self._waiting):
            if session_id not in self._replica.machine.leaving_sessions():
                self._wake(session_id)

    def close(self) -> None:
        """Wake all waiters when the member stops."""
        self._pieces.stop()
        for session_id in list(self._waiting):
            self._wake(session_id)

    def _wake(self, session_id: str) -> None:
        for waiter in self._waiting.pop(session_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _next(self) -> tuple[FinishSession | CloseSession, ...]:
        machine = self._replica.machine
        leaving = machine.leaving_sessions()
        if leaving:
            return (FinishSession(leaving[0], ENDED_AT_ONCE),)
        revoked = machine.revoked_sessions(_REVOKED_AT_ONCE)
        return tuple([CloseSession(each, at_once=ENDED_AT_ONCE) for each in revoked])
