"""What is said about sessions: opened, kept alive, listed, closed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from coordinator.wire.fields import Fields

MARGIN_RATIO = 0.025
MARGIN_MS_MIN = 50
"""How much earlier than the server a holder gives up; ``client/lease`` says why it is so much."""

LABEL_CHARACTERS_MAX = 200
FAILURE_CHARACTERS_MAX = 512


def margin_ms(timeout_ms: int, ratio: float = MARGIN_RATIO) -> int:
    """Return how much earlier than the server the client gives up."""
    return max(MARGIN_MS_MIN, round(timeout_ms * ratio))


def safe_ms(timeout_ms: int, remaining_ms: int) -> int:
    """Return how long a holder is safe of whose lease so much remains."""
    return max(0, remaining_ms - margin_ms(timeout_ms))


@dataclass(frozen=True, slots=True)
class OpenSession:
    """The body of POST /v1/sessions; ``timeout_ms`` None leaves it to the server."""

    timeout_ms: int | None = None
    label: str = ""

    FIELDS: ClassVar[frozenset[str]] = frozenset({"timeout_ms", "label"})

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"label": self.label}
        if self.timeout_ms is not None:
            body["timeout_ms"] = self.timeout_ms
        return body

    @classmethod
    def from_body(cls, body: Any) -> OpenSession:
        fields = Fields(body, "body", cls.FIELDS)
        return cls(
            timeout_ms=fields.integer("timeout_ms", None, minimum=1),
            label=fields.text("label", "", characters_max=LABEL_CHARACTERS_MAX),
        )


LOST_MAX = 100
"""How many lost grants a heartbeat tells; before them there may have been more."""


@dataclass(frozen=True, slots=True)
class LostGrant:
    """A grant of an open session that was taken from it: ``how`` is forced, max_hold, or deleted
    (over the tree). ``by`` and ``reason`` are those of a forced end."""

    path: str
    fencing_token: int
    how: str
    by: str = ""
    reason: str = ""

    def to_body(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "fencing_token": self.fencing_token,
            "how": self.how,
            "by": self.by,
            "reason": self.reason,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> LostGrant:
        fields = Fields(body, where)
        return cls(
            path=fields.text("path"),
            fencing_token=fields.integer("fencing_token"),
            how=fields.text("how"),
            by=fields.text("by", ""),
            reason=fields.text("reason", ""),
        )


@dataclass(frozen=True, slots=True)
class SessionLease:
    """The reply of opening a session, and of each heartbeat.

    ``holds`` says for each bounded hold (``max_hold_ms``) of the session, by the path of its
    contender, how many ms of it are left; like the lease it is counted from when the heartbeat
    was sent. A bounded hold that is missing there has ended. ``lost`` are the grants that were
    taken from the session while it lives, the latest ``LOST_MAX``; each heartbeat says them again.
    ``safe_ms`` is for how long after the answer left whatever the session holds is safe, as far as
    the lease goes; None when the opening was numbered, because it may have been an earlier one.
    """

    session_id: str
    timeout_ms: int
    holds: Mapping[str, int] = field(default_factory=dict)
    lost: tuple[LostGrant, ...] = ()
    safe_ms: int | None = None

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session_id": self.session_id,
            "timeout_ms": self.timeout_ms,
            "safe_ms": self.safe_ms,
        }
        if self.holds:
            body["holds"] = dict(self.holds)
        if self.lost:
            body["lost"] = [each.to_body() for each in self.lost]
        return body

    @classmethod
    def from_body(cls, body: Any) -> SessionLease:
        fields = Fields(body, "body")
        holds = Fields(fields.inner("holds") or {}, "body.holds")
        return cls(
            fields.text("session_id"),
            fields.integer("timeout_ms"),
            {path: holds.integer(path) for path in fields.inner("holds") or ()},
            fields.items("lost", LostGrant.from_body, ()),
            fields.integer("safe_ms", None),
        )


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The reply of DELETE /v1/sessions/{id}; ``was_open`` is False when it had ended before."""

    session_id: str
    was_open: bool

    def to_body(self) -> dict[str, Any]:
        return {"session_id": self.session_id, "was_open": self.was_open}

    @classmethod
    def from_body(cls, body: Any) -> SessionClosed:
        fields = Fields(body, "body")
        return cls(fields.text("session_id"), fields.boolean("was_open"))


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """An open session; ``ephemerals`` (their paths) only when one session was asked for."""

    session_id: str
    timeout_ms: int
    label: str
    opened_ms: int
    ephemeral_count: int
    ephemerals: tuple[str, ...] | None = None

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "session_id": self.session_id,
            "timeout_ms": self.timeout_ms,
            "label": self.label,
            "opened_ms": self.opened_ms,
            "ephemeral_count": self.ephemeral_count,
        }
        if self.ephemerals is not None:
            body["ephemerals"] = list(self.ephemerals)
        return body

    @classmethod
    def from_body(cls, body: Any, where: str = "body") -> SessionInfo:
        fields = Fields(body, where)
        return cls(
            session_id=fields.text("session_id"),
            timeout_ms=fields.integer("timeout_ms"),
            label=fields.text("label", ""),
            opened_ms=fields.integer("opened_ms"),
            ephemeral_count=fields.integer("ephemeral_count"),
            ephemerals=fields.items("ephemerals", lambda item, _: str(item), None),
        )


@dataclass(frozen=True, slots=True)
class SessionList:
    """The reply of GET /v1/sessions; ``next`` is what to pass as ``after`` for the rest."""

    sessions: tuple[SessionInfo, ...]
    next: int | None = None

    def to_body(self) -> dict[str, Any]:
        return {"sessions": [each.to_body() for each in self.sessions], "next": self.next}

    @classmethod
    def from_body(cls, body: Any) -> SessionList:
        fields = Fields(body, "body")
        return cls(fields.items("sessions", SessionInfo.from_body), fields.integer("next", None))
