"""What is said of grants that were: the history, and the story of one of them.

Kept in the replicated state, bounded; the oldest grants are forgotten first. Times in ``_ms`` are
wall times of whoever proposed the change: labels for people, no measure of safety.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.wire.encoding import Encoding, bytes_fields
from coordinator.wire.fields import Fields, read_bytes

ENDS = ("released", "closed", "expired", "failed", "abandoned", "deleted", "forced", "max_hold")
"""How a grant ended: given back; with its session (closed, expired by silence, or ended by a client
that found itself unwell); abandoned as an attempt; deleted over the tree; forced by a person; ended
by its own ``max_hold_ms``."""


@dataclass(frozen=True, slots=True)
class Previous:
    """How the grant before this one ended, and the note its holder left: where to go on."""

    grant_id: str
    fencing_token: int
    how: str
    note: bytes
    ended_zxid: int

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {
            "grant_id": self.grant_id,
            "fencing_token": self.fencing_token,
            "how": self.how,
            **bytes_fields("note", self.note, encoding),
            "ended_zxid": self.ended_zxid,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> Previous:
        fields = Fields(body, where)
        return cls(
            grant_id=fields.text("grant_id"),
            fencing_token=fields.integer("fencing_token"),
            how=fields.text("how"),
            note=read_bytes(body, "note", where),
            ended_zxid=fields.integer("ended_zxid"),
        )


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """One grant, held (``how`` is "" and nothing has ended) or over.

    ``silent_ms``: how long the leader had heard nothing of the session when it expired. ``term``:
    the leader's whose decision ended it (0: no leader's). ``by`` and ``reason`` of a forced end,
    ``reason`` of a failed one.
    ``next_token`` is that of the next grant of the lock; ``group`` are the paths of a multi-lock.
    """

    lock: str
    grant_id: str
    path: str
    fencing_token: int
    kind: str
    session_id: str
    entered_zxid: int
    entered_ms: int
    granted_zxid: int
    granted_ms: int
    owner: str = ""
    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""
    when_unsure: str = ""
    purpose: str = ""
    guard: str = ""
    ended_zxid: int | None = None
    ended_ms: int | None = None
    how: str = ""
    by: str = ""
    reason: str = ""
    silent_ms: int = 0
    term: int = 0
    next_token: int | None = None
    note: bytes = b""
    group: tuple[str, ...] = ()
    is_election: bool = False

    @property
    def is_held(self) -> bool:
        return not self.how

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        body: dict[str, Any] = {("election" if self.is_election else "lock"): self.lock}
        body.update({name: getattr(self, name) for name in _TEXTS + _INTEGERS + _MAYBE_INTEGERS})
        body.update(bytes_fields("note", self.note, encoding))
        body["group"] = list(self.group)
        return body

    @classmethod
    def from_body(cls, body: Any, where: str = "grant") -> GrantRecord:
        fields = Fields(body, where)
        is_election = "election" in fields
        named: dict[str, Any] = {name: fields.text(name, "") for name in _TEXTS}
        named.update({name: fields.integer(name, 0) for name in _INTEGERS})
        named.update({name: fields.integer(name, None) for name in _MAYBE_INTEGERS})
        return cls(
            **named,
            lock=fields.text("election" if is_election else "lock"),
            note=read_bytes(body, "note", where),
            group=fields.items("group", lambda item, _: str(item), ()),
            is_election=is_election,
        )


_TEXTS = (
    "grant_id", "path", "kind", "session_id", "owner", "label", "host", "trace_id", "when_unsure",
    "purpose", "guard", "how", "by", "reason",
)  # fmt: skip
_INTEGERS = (
    "fencing_token", "entered_zxid", "entered_ms", "granted_zxid", "granted_ms", "silent_ms",
    "term",
)  # fmt: skip
_MAYBE_INTEGERS = ("pid", "ended_zxid", "ended_ms", "next_token")


def grant_line(record: GrantRecord) -> dict[str, Any]:
    """Return a grant as one line of an export."""
    return {"type": "grant", **record.to_body()}


@dataclass(frozen=True, slots=True)
class GrantPage:
    """The reply of GET /v1/grants, the oldest first; ``next`` is what to pass as ``after``."""

    grants: tuple[GrantRecord, ...]
    next: int | None = None

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {"grants": [each.to_body(encoding) for each in self.grants], "next": self.next}

    @classmethod
    def from_body(cls, body: Any) -> GrantPage:
        fields = Fields(body, "body")
        return cls(fields.items("grants", GrantRecord.from_body), fields.integer("next", None))


@dataclass(frozen=True, slots=True)
class GrantStory:
    """The reply of GET /v1/grants/{lock}/{grant_id}: what became of one grant, and who was next.

    ``summary`` says it in a sentence.
    """

    grant: GrantRecord
    next: GrantRecord | None
    summary: str

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {
            "grant": self.grant.to_body(encoding),
            "next": None if self.next is None else self.next.to_body(encoding),
            "summary": self.summary,
        }

    @classmethod
    def from_body(cls, body: Any) -> GrantStory:
        fields = Fields(body, "body")
        following = fields.inner("next")
        return cls(
            grant=GrantRecord.from_body(fields.inner("grant"), fields.of("grant")),
            next=None if following is None else GrantRecord.from_body(following, "body.next"),
            summary=fields.text("summary", ""),
        )
