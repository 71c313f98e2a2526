"""The ends of sessions that own many znodes: in commands that others can wait for.

1. The command that ends a session deletes about ``ENDED_AT_ONCE`` of its ephemerals; the leader
   proposes the rest, one command after the other, whoever proposed the first.
2. A new leader goes on where the one before stopped: what is left is in the state.
"""

from __future__ import annotations

import asyncio

from coordinator.clock import Clock
from coordinator.raft.engine import Engine
from coordinator.service.pieces import Pieces
from coordinator.service.replica import MachineReplica
from coordinator.service.tasks import Tasks
from coordinator.state.commands import Command, FinishSession
from coordinator.state.outcomes import Outcome, SessionEnded, SessionFinished

ENDED_AT_ONCE = 100
"""Ephemerals; each costs its share of locks, watches and waiters some 50 microseconds."""


class SessionEnds:
    """Goes on with the ends of sessions while this member leads; tells when one is through."""

    def __init__(self, engine: Engine, clock: Clock, replica: MachineReplica, tasks: Tasks) -> None:
        self._replica = replica
        self._pieces = Pieces(engine, clock, tasks, "end sessions", self._next)
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self.start = self._pieces.start
        self.stop = self._pieces.stop

    def look(self, _now_ms: int) -> None:
        """Go on, if an attempt to do so failed; called from time to time."""
        self._pieces.go_on()

    async def finished(self, session_id: str) -> None:
        """Return when nothing of an ended session is left here. The caller cancels."""
        if session_id not in self._replica.machine.leaving_sessions():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(session_id, []).append(waiter)
        await waiter

    def on_outcome(self, _command: Command, outcome: Outcome) -> None:
        result = outcome.result
        if type(result) is SessionFinished:
            if not result.left:
                self._wake(result.session_id)
        elif type(result) is SessionEnded and result.was_open:
            self._pieces.go_on()

    def on_restore(self) -> None:
        """Whoever waits looks again, and finds a state in which it is through, or is not."""
        for session_id in list(self._waiting):
            if session_id not in self._replica.machine.leaving_sessions():
                self._wake(session_id)

    def close(self) -> None:
        """Let nobody wait, when the member stops."""
        self._pieces.stop()
        for session_id in list(self._waiting):
            self._wake(session_id)

    def _wake(self, session_id: str) -> None:
        for waiter in self._waiting.pop(session_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    def _next(self) -> FinishSession | None:
        leaving = self._replica.machine.leaving_sessions()
        return FinishSession(leaving[0], ENDED_AT_ONCE) if leaving else None
