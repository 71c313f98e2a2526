"""The renewal of the session that a request names, and the header that says so."""

from __future__ import annotations

from typing import Final

from coordinator.service.sessions.heartbeats import LeaseRenewal
from coordinator.wire import messages
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.door import Door

SESSION_ID: Final = messages.SESSION_ID_HEADER.lower()
_NOT_KEPT: Final = {"Cache-Control": "no-store"}
"""A cache on the way would say it again, of a session that nobody has renewed."""


def begin_renewal(door: Door, request: IncomingRequest) -> LeaseRenewal | None:
    """Renew the session that the request names (``SESSION_ID``); who calls stops that in the end.
    None: it cannot be renewed by this caller."""
    session_id = request.headers.get(SESSION_ID)
    if session_id is None:
        return None
    return door.member.kept_sessions.renewal(session_id, request.caller)


async def say_renewed(answered: Answered, renewal: LeaseRenewal) -> None:
    """Let an answer say for how long the session is safe, if it was renewed."""
    if isinstance(answered, Answer):
        safe_ms = await renewal.safe_ms()
        if safe_ms is not None:
            said = {messages.SAFE_HEADER: str(safe_ms), **_NOT_KEPT}
            answered.headers = {**(answered.headers or {}), **said}
