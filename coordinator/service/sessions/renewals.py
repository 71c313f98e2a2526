"""Renewals beside requests: a request that names its session is a heartbeat of it, too.

A client that is busy need not send heartbeats of its own.

1. It is a heartbeat like any other (``heartbeats``), begun when the request arrives: the leader
   counts the lease from then or later, and a quorum confirms that it leads. So nothing is renewed
   that has ended or whose end is under way, and a new leader has started the lease again in full.
2. It is acknowledged only while the session has no bounded hold and has lost no grant: a heartbeat
   has more to say then, and its client must hear it as often.
3. What it comes to is no part of what the request comes to: each may succeed without the other. An
   answer that says nothing of it says nothing of the session.
4. An answer that is ready waits for it for a moment only.
"""

from __future__ import annotations

import asyncio

from coordinator.clock import Clock
from coordinator.errors import CoordinatorError
from coordinator.model.sessions import SessionLease, safe_ms
from coordinator.service.base.tasks import let_go
from coordinator.service.base.timers import Timers
from coordinator.service.sessions.heartbeats import Heartbeats

_DEADLINE_MS = 2_000
"""Later it is not worth much; the client sends a heartbeat, or another request."""
_MOMENT_MS = 10
"""A linearizable read is answered by the same round of the quorum."""


class LeaseRenewal:
    """The renewal beside one request, under way from now on."""

    def __init__(
        self, heartbeats: Heartbeats, timers: Timers, clock: Clock, session_id: str
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        heartbeat = heartbeats.heartbeat(
            session_id, self._began_ms + _DEADLINE_MS, is_urgent=True
        )
        self._task = asyncio.create_task(heartbeat, name=f"renew session {session_id}")

    async def safe_ms(self) -> int | None:
        """Return for how long the session is safe from now on; None if it was not renewed."""
        task = self._task
        if not task.done():
            try:
                async with self._timers.deadline(self._clock.monotonic_ms() + _MOMENT_MS):
                    await asyncio.wait({task})
            except TimeoutError:
                return None
        lease = _acknowledged(task)
        if lease is None or lease.holds or lease.lost:
            return None
        left_ms = self._began_ms + lease.timeout_ms - self._clock.monotonic_ms()
        return safe_ms(lease.timeout_ms, left_ms) or None

    def stop(self) -> None:
        """End it; the request was answered, or its client has gone."""
        self._task.cancel()
        self._task.add_done_callback(let_go)


def _acknowledged(task: asyncio.Task[SessionLease]) -> SessionLease | None:
    try:
        return task.result()
    except (CoordinatorError, asyncio.CancelledError):
        return None
