"""The wish to hold a lock, several, or an election; the grant; and giving it back.

An election is a lock whose holder is called elected and publishes a value; its epoch is the fencing
token. So both share their shapes; ``is_election`` says which words are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.errors import BadArgumentsError
from coordinator.model.contention import (
    KINDS,
    LOCK_DELAY_MS_MAX,
    MAX_HOLD_MS_MAX,
    NAMES_MAX,
    ON_DISCONNECT,
    OWNER_CHARACTERS_MAX,
    PID_MAX,
    PURPOSES,
    SIZE_MAX,
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    WHEN_UNSURE,
)
from coordinator.model.fields import TEXT_CHARACTERS_MAX
from coordinator.model.sessions import safe_ms as safe_ms
from coordinator.wire.encoding import Encoding, bytes_fields
from coordinator.wire.fields import Fields, read_bytes
from coordinator.wire.messages.if_held import IF_HELD_FIELD
from coordinator.wire.strict_json import found

# --- the value of an election travels as data does, under its own name

VALUE_FIELDS = frozenset({"value", "value_base64"})


def value_fields(value: bytes, encoding: Encoding) -> dict[str, Any]:
    """Return the one field that carries an election's ``value``."""
    return bytes_fields("value", value, encoding)


def read_value(body: Any, where: str = "body") -> bytes:
    """Return the bytes in ``value`` or ``value_base64``, empty when neither is there."""
    return read_bytes(body, "value", where)


@dataclass(frozen=True, slots=True)
class Acquire:
    """The body of POST /v1/locks/{name}, with ``names`` of POST /v1/locks (several at once), and
    with ``value`` of POST /v1/elections/{name}.

    Either ``session_id``, or ``lease_ms``: open a session of its own for this grant.
    ``timeout_ms`` is how long to wait, 0 tries once. ``owner`` tells the owners of one session
    apart for the deadlock detection; "" is an owner of its own. ``size`` is that of a semaphore
    that does not exist yet. ``when_unsure``, ``purpose`` and ``guard`` are only recorded.
    """

    session_id: str | None = None
    lease_ms: int | None = None
    timeout_ms: int = WAIT_MS_DEFAULT
    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""
    on_disconnect: str = "leave"
    value: bytes | None = None
    """What an election publishes when won; None for a lock."""
    kind: str = "exclusive"
    owner: str = ""
    size: int | None = None
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    when_unsure: str = ""
    purpose: str = ""
    guard: str = ""
    names: tuple[str, ...] = ()
    """The locks of a multi-lock; empty for one lock, whose name is in the URL."""

    FIELDS: ClassVar[frozenset[str]] = frozenset(
        {
            "session_id",
            "lease_ms",
            "timeout_ms",
            "label",
            "host",
            "pid",
            "trace_id",
            "on_disconnect",
        }
    )
    LOCK_FIELDS: ClassVar[frozenset[str]] = FIELDS | {
        "kind",
        "owner",
        "size",
        "lock_delay_ms",
        "max_hold_ms",
        "when_unsure",
        "purpose",
        "guard",
        IF_HELD_FIELD,
    }
    MULTI_FIELDS: ClassVar[frozenset[str]] = (LOCK_FIELDS - {"kind", "size"}) | {"names"}
    ELECTION_FIELDS: ClassVar[frozenset[str]] = FIELDS | VALUE_FIELDS | {IF_HELD_FIELD}

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        body: dict[str, Any] = {
            "timeout_ms": self.timeout_ms,
            "label": self.label,
            "host": self.host,
            "trace_id": self.trace_id,
            "on_disconnect": self.on_disconnect,
        }
        for name in ("session_id", "lease_ms", "pid", "size"):
            value = getattr(self, name)
            if value is not None:
                body[name] = value
        for name in ("owner", "lock_delay_ms", "max_hold_ms", "when_unsure", "purpose", "guard"):
            if getattr(self, name):
                body[name] = getattr(self, name)
        if self.kind != "exclusive":
            body["kind"] = self.kind
        if self.names:
            body["names"] = list(self.names)
        if self.value is not None:
            body.update(value_fields(self.value, encoding))
        return body

    @classmethod
    def from_body(cls, body: Any, *, is_election: bool = False, is_multi: bool = False) -> Acquire:
        known = cls.MULTI_FIELDS if is_multi else cls.LOCK_FIELDS
        fields = Fields(body, "body", cls.ELECTION_FIELDS if is_election else known)
        session_id = fields.text("session_id", None)
        lease_ms = fields.integer("lease_ms", None, minimum=1)
        if (session_id is None) == (lease_ms is None):
            found = "neither" if session_id is None else "both"
            raise BadArgumentsError(
                f"body: expected session_id (an open session) or lease_ms (open one for this "
                f"grant), found {found}; nothing is held without a lease"
            )
        return cls(
            session_id=session_id,
            lease_ms=lease_ms,
            timeout_ms=fields.integer(
                "timeout_ms", WAIT_MS_DEFAULT, minimum=0, maximum=WAIT_MS_MAX
            ),
            label=fields.text("label", "", characters_max=TEXT_CHARACTERS_MAX),
            host=fields.text("host", "", characters_max=TEXT_CHARACTERS_MAX),
            pid=fields.integer("pid", None, minimum=0, maximum=PID_MAX),
            trace_id=fields.text("trace_id", "", characters_max=TEXT_CHARACTERS_MAX),
            on_disconnect=fields.choice("on_disconnect", ON_DISCONNECT, "leave"),
            value=read_value(body) if is_election else None,
            kind=fields.choice("kind", KINDS, "exclusive"),
            owner=fields.text("owner", "", characters_max=OWNER_CHARACTERS_MAX),
            size=fields.integer("size", None, minimum=1, maximum=SIZE_MAX),
            lock_delay_ms=fields.integer("lock_delay_ms", 0, minimum=0, maximum=LOCK_DELAY_MS_MAX),
            max_hold_ms=fields.integer("max_hold_ms", 0, minimum=0, maximum=MAX_HOLD_MS_MAX),
            when_unsure=fields.choice("when_unsure", WHEN_UNSURE, ""),
            purpose=fields.choice("purpose", PURPOSES, ""),
            guard=fields.text("guard", "", characters_max=TEXT_CHARACTERS_MAX),
            names=_names(fields) if is_multi else (),
        )


def _names(fields: Fields) -> tuple[str, ...]:
    names: tuple[str, ...] = fields.items("names", _name)
    if not 1 <= len(names) <= NAMES_MAX:
        raise BadArgumentsError(f"body.names: expected 1 to {NAMES_MAX} locks, found {len(names)}")
    return names


def _name(item: Any, where: str) -> str:
    if not isinstance(item, str):
        raise BadArgumentsError(f"{where}: expected the name of a lock, found {found(item)}")
    if item in ("", ".", ".."):  # as in a URL, by which it is given back
        raise BadArgumentsError(f"{where}: expected a name, found {item!r}")
    return item
