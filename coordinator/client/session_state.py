"""The states of a session; ``coordinator.client.session`` draws the ways between them."""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    """The state of a session as its client knows it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"
