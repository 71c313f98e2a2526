"""Sessions of others, ended for them: what an operator does, on record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from coordinator.client.async_client import AsyncClient
from coordinator.client.calling.calls import Call, queried, target_of
from coordinator.model.sessions import SessionClosed
from coordinator.wire.codec import reader

_AT_ONCE = 16


async def end_session(client: AsyncClient, session_id: str, *, by: str, reason: str) -> bool:
    """End a session and all it owns; return whether it was open. Its grants end as lost."""
    target = target_of("sessions", session_id)
    query = queried([("by", by), ("failure", f"ended by {by}: {reason}")])
    closed = await client._write(Call("DELETE", target + query), reader(SessionClosed))
    return closed.was_open


async def end_sessions(
    client: AsyncClient, session_ids: Iterable[str], *, by: str, reason: str
) -> list[str]:
    """End these sessions, some at once; return which of them were open, in their order."""
    waiting = iter(session_ids)
    was_open: dict[str, bool] = {}

    async def work() -> None:
        for session_id in waiting:
            was_open[session_id] = False
            was_open[session_id] = await end_session(client, session_id, by=by, reason=reason)

    workers = [asyncio.create_task(work()) for _ in range(_AT_ONCE)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [session_id for session_id, found in was_open.items() if found]
