"""What is said about a grant while it is held: its note, its kind, its semaphore's size, its forced
end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.model.contention import (
    SIZE_MAX,
)
from coordinator.model.fields import TEXT_CHARACTERS_MAX
from coordinator.model.history import GrantRecord
from coordinator.wire.codec import from_body, to_body
from coordinator.wire.encoding import Encoding, bytes_fields
from coordinator.wire.fields import Fields, read_bytes
from coordinator.wire.messages.acquire import (
    Grant,
)
from coordinator.wire.messages.if_held import IF_HELD_FIELD

NOTE_BYTES_MAX = 1_024


def note_body(note: bytes, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
    """Return the body of PUT /v1/locks/{name}/grants/{grant_id}/note."""
    return bytes_fields("note", note, encoding)


def read_note(body: Any) -> bytes:
    """Return the note in the body of PUT /v1/locks/{name}/grants/{grant_id}/note."""
    Fields(body, "body", {"note", "note_base64", IF_HELD_FIELD})
    note = read_bytes(body, "note", "body", is_required=True)
    if len(note) > NOTE_BYTES_MAX:
        raise BadArgumentsError(
            f"body.note: expected at most {NOTE_BYTES_MAX} bytes, found {len(note)}"
        )
    return note


@dataclass(frozen=True, slots=True)
class NoteReply:
    """The note of a grant was replaced, at ``zxid`` or before."""

    grant_id: str
    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"grant_id": self.grant_id, "zxid": self.zxid}

    @classmethod
    def from_body(cls, body: Any) -> NoteReply:
        fields = Fields(body, "body")
        return cls(fields.text("grant_id"), fields.integer("zxid"))


@dataclass(frozen=True, slots=True)
class Resize:
    """The body of PUT /v1/locks/{name}/size; nobody's slot is taken by a smaller one."""

    size: int

    def to_body(self) -> dict[str, Any]:
        return {"size": self.size}

    @classmethod
    def from_body(cls, body: Any) -> Resize:
        fields = Fields(body, "body", {"size", IF_HELD_FIELD})
        return cls(fields.integer("size", minimum=1, maximum=SIZE_MAX))


@dataclass(frozen=True, slots=True)
class SizeReply:
    """The size of a semaphore, as of ``zxid``."""

    lock: str
    size: int
    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"lock": self.lock, "size": self.size, "zxid": self.zxid}

    @classmethod
    def from_body(cls, body: Any) -> SizeReply:
        fields = Fields(body, "body")
        return cls(fields.text("lock"), fields.integer("size"), fields.integer("zxid"))


@dataclass(frozen=True, slots=True)
class Revoke:
    """The body of POST /v1/locks/{name}/revoke: end a grant against its holder's will.

    ``grant_id`` may be left out when exactly one grant holds. ``by`` and ``reason`` go into the
    history and the log: a forced release without them is refused.
    """

    by: str
    reason: str
    grant_id: str | None = None

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"by": self.by, "reason": self.reason}
        if self.grant_id is not None:
            body["grant_id"] = self.grant_id
        return body

    @classmethod
    def from_body(cls, body: Any) -> Revoke:
        fields = Fields(body, "body", {"by", "reason", "grant_id", IF_HELD_FIELD})
        by, reason = (
            fields.text(name, characters_max=TEXT_CHARACTERS_MAX) for name in ("by", "reason")
        )
        if not by.strip() or not reason.strip():
            raise BadArgumentsError("body: expected by and reason to say something, found blanks")
        return cls(by, reason, fields.text("grant_id", None))


@dataclass(frozen=True, slots=True)
class RevokeReply:
    """What was ended. Raise every guard to ``fencing_token_min``: the former holder may not know
    of its loss before its next heartbeat, and only the guards keep it out until then."""

    grant: GrantRecord
    fencing_token_min: int

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {
            "grant": to_body(self.grant, encoding),
            "fencing_token_min": self.fencing_token_min,
        }

    @classmethod
    def from_body(cls, body: Any) -> RevokeReply:
        fields = Fields(body, "body")
        return cls(
            from_body(GrantRecord, fields.inner("grant"), fields.of("grant")),
            fields.integer("fencing_token_min"),
        )


def downgrade_reply_body(grant: Grant) -> dict[str, Any]:
    """Return the reply of POST /v1/locks/{name}/grants/{grant_id}/downgrade: the shared grant."""
    return {"grant": grant.to_body()}
