"""Somebody else's session, ended for them: what an operator does, on record."""

from __future__ import annotations

from coordinator.client.async_client import AsyncClient
from coordinator.client.calls import Call, queried, target_of
from coordinator.model.sessions import SessionClosed
from coordinator.wire.codec import reader


async def end_session(client: AsyncClient, session_id: str, *, by: str, reason: str) -> bool:
    """End a session and all it owns; return whether it was open. Its grants end as lost."""
    target = target_of("sessions", session_id)
    query = queried([("by", by), ("failure", f"ended by {by}: {reason}")])
    closed = await client._write(Call("DELETE", target + query), reader(SessionClosed))
    return closed.was_open
