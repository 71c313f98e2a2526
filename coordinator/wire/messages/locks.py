"""What is said about locks and elections: the wish to hold, the grant, the queue.

An election is a lock whose holder is called elected and publishes a value; its epoch is the fencing
token. So both share their shapes, and ``Place`` says which words are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.errors import BadArgumentsError, from_problem
from coordinator.wire.encoding import Encoding, data_fields
from coordinator.wire.fields import Fields
from coordinator.wire.messages.watches import StreamError

WAIT_MS_DEFAULT = 10_000
WAIT_MS_MAX = 3_600_000
TEXT_CHARACTERS_MAX = 200
PID_MAX = 2**32 - 1
ON_DISCONNECT = ("leave", "stay")


@dataclass(frozen=True, slots=True)
class Acquire:
    """The body of POST /v1/locks/{name}, and with ``value`` of POST /v1/elections/{name}.

    Either ``session_id``, or ``lease_ms``: open a session of its own for this grant.
    ``timeout_ms`` is how long to wait, 0 tries once.
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

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        body: dict[str, Any] = {
            "timeout_ms": self.timeout_ms,
            "label": self.label,
            "host": self.host,
            "trace_id": self.trace_id,
            "on_disconnect": self.on_disconnect,
        }
        for name in ("session_id", "lease_ms", "pid"):
            value = getattr(self, name)
            if value is not None:
                body[name] = value
        if self.value is not None:
            body.update(value_fields(self.value, encoding))
        return body

    @classmethod
    def from_body(cls, body: Any, *, is_election: bool = False) -> Acquire:
        known = cls.FIELDS | VALUE_FIELDS if is_election else cls.FIELDS
        fields = Fields(body, "body", known)
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
        )


@dataclass(frozen=True, slots=True)
class Grant:
    """One acquisition: its name, its number, and the znode that stands for it.

    ``lock`` is the lock's name; for an election it is the election's, and the fencing token is
    called ``epoch`` as well.
    """

    grant_id: str
    lock: str
    fencing_token: int
    session_id: str
    path: str
    zxid: int

    def to_body(self, *, is_election: bool = False) -> dict[str, Any]:
        body: dict[str, Any] = {"grant_id": self.grant_id}
        if is_election:
            body["election"] = self.lock
            body["epoch"] = self.fencing_token
        else:
            body["lock"] = self.lock
        body["fencing_token"] = self.fencing_token
        body["session_id"] = self.session_id
        body["path"] = self.path
        body["zxid"] = self.zxid
        return body

    @classmethod
    def from_body(cls, body: Any, where: str = "grant") -> Grant:
        fields = Fields(body, where)
        return cls(
            grant_id=fields.text("grant_id"),
            lock=fields.text("election") if "election" in fields else fields.text("lock"),
            fencing_token=fields.integer("fencing_token"),
            session_id=fields.text("session_id"),
            path=fields.text("path"),
            zxid=fields.integer("zxid"),
        )


def grant_reply_body(grant: Grant, *, is_election: bool = False) -> dict[str, Any]:
    """Return the reply of a granted acquire."""
    return {"grant": grant.to_body(is_election=is_election)}


def read_grant_reply(body: Any) -> Grant:
    """Return the grant in the reply of an acquire or a campaign."""
    return Grant.from_body(Fields(body, "body").inner("grant"))


@dataclass(frozen=True, slots=True)
class Queued:
    """A line of a streamed acquire: how many stand before this contender."""

    position: int

    def to_body(self) -> dict[str, Any]:
        return {"type": "queued", "position": self.position}


@dataclass(frozen=True, slots=True)
class Granted:
    """The last line of a streamed acquire that was granted."""

    grant: Grant

    def to_body(self, *, is_election: bool = False) -> dict[str, Any]:
        return {"type": "granted", "grant": self.grant.to_body(is_election=is_election)}


AcquireLine = Queued | Granted | StreamError


def read_acquire_line(body: Any) -> AcquireLine:
    """Return what one line of a streamed acquire says."""
    fields = Fields(body, "line")
    kind = fields.text("type")
    match kind:
        case "queued":
            return Queued(fields.integer("position"))
        case "granted":
            return Granted(Grant.from_body(fields.inner("grant")))
        case "error":
            return StreamError(from_problem(fields.inner("problem") or {}))
    raise BadArgumentsError(f"line.type: expected queued, granted or error, found {kind!r}")


@dataclass(frozen=True, slots=True)
class Contender:
    """Who holds (position 0), or stands in the queue since the wall time ``since_ms``.

    ``value`` only in elections; ``host``, ``pid`` and ``trace_id`` only in locks.
    """

    grant_id: str
    fencing_token: int
    session_id: str
    path: str
    position: int = 0
    since_ms: int = 0
    label: str = ""
    host: str = ""
    pid: int | None = None
    trace_id: str = ""
    value: bytes | None = None

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        body: dict[str, Any] = {
            "grant_id": self.grant_id,
            "fencing_token": self.fencing_token,
            "session_id": self.session_id,
            "path": self.path,
            "position": self.position,
            "since_ms": self.since_ms,
            "label": self.label,
        }
        if self.value is None:
            body.update(host=self.host, pid=self.pid, trace_id=self.trace_id)
        else:
            body["epoch"] = self.fencing_token
            body.update(value_fields(self.value, encoding))
        return body

    @classmethod
    def from_body(cls, body: Any, where: str = "holder") -> Contender:
        fields = Fields(body, where)
        has_value = "value" in fields or "value_base64" in fields
        return cls(
            grant_id=fields.text("grant_id"),
            fencing_token=fields.integer("fencing_token"),
            session_id=fields.text("session_id", ""),
            path=fields.text("path", ""),
            position=fields.integer("position", 0),
            since_ms=fields.integer("since_ms", 0),
            label=fields.text("label", ""),
            host=fields.text("host", ""),
            pid=fields.integer("pid", None),
            trace_id=fields.text("trace_id", ""),
            value=read_value(body, where) if has_value else None,
        )


@dataclass(frozen=True, slots=True)
class LockView:
    """The reply of GET /v1/locks/{name}; ``is_current`` only when a token was asked about."""

    lock: str
    holder: Contender | None
    queue: tuple[Contender, ...]
    zxid: int
    is_current: bool | None = None

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "lock": self.lock,
            "holder": None if self.holder is None else self.holder.to_body(),
            "queue": [each.to_body() for each in self.queue],
            "zxid": self.zxid,
        }
        if self.is_current is not None:
            body["is_current"] = self.is_current
        return body

    @classmethod
    def from_body(cls, body: Any) -> LockView:
        fields = Fields(body, "body")
        return cls(
            lock=fields.text("lock"),
            holder=maybe_contender(fields, "holder"),
            queue=fields.items("queue", Contender.from_body),
            zxid=fields.integer("zxid"),
            is_current=fields.boolean("is_current", None),
        )


@dataclass(frozen=True, slots=True)
class LockSummary:
    """One lock in a list; ``queue_length`` counts those who wait.

    ``held_ms``: how long the member has seen the holder hold, never overstated.
    """

    lock: str
    holder: Contender | None
    queue_length: int
    held_ms: int

    def to_body(self) -> dict[str, Any]:
        return {
            "lock": self.lock,
            "holder": None if self.holder is None else self.holder.to_body(),
            "queue_length": self.queue_length,
            "held_ms": self.held_ms,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> LockSummary:
        fields = Fields(body, where)
        return cls(
            lock=fields.text("lock"),
            holder=maybe_contender(fields, "holder"),
            queue_length=fields.integer("queue_length"),
            held_ms=fields.integer("held_ms"),
        )


@dataclass(frozen=True, slots=True)
class LockList:
    """The reply of GET /v1/locks; ``next`` is what to pass as ``after`` for the rest."""

    locks: tuple[LockSummary, ...]
    next: str | None = None

    def to_body(self) -> dict[str, Any]:
        return {"locks": [each.to_body() for each in self.locks], "next": self.next}

    @classmethod
    def from_body(cls, body: Any) -> LockList:
        fields = Fields(body, "body")
        return cls(fields.items("locks", LockSummary.from_body), fields.text("next", None))


@dataclass(frozen=True, slots=True)
class ReleaseReply:
    """The reply of a release or a resignation."""

    grant_id: str
    released: bool = True

    def to_body(self) -> dict[str, Any]:
        return {"grant_id": self.grant_id, "released": self.released}

    @classmethod
    def from_body(cls, body: Any) -> ReleaseReply:
        fields = Fields(body, "body")
        return cls(fields.text("grant_id"), fields.boolean("released"))


@dataclass(frozen=True, slots=True)
class AbandonReply:
    """The reply of abandoning an attempt; ``deleted_path`` is None when it had left nothing."""

    deleted_path: str | None

    def to_body(self) -> dict[str, Any]:
        return {"deleted_path": self.deleted_path}

    @classmethod
    def from_body(cls, body: Any) -> AbandonReply:
        return cls(Fields(body, "body").text("deleted_path", None))


# --- the value of an election travels as data does, under its own name

VALUE_FIELDS = frozenset({"value", "value_base64"})


def value_fields(value: bytes, encoding: Encoding) -> dict[str, Any]:
    """Return the one field that carries an election's ``value``."""
    fields = data_fields(value, encoding)
    return {name.replace("data", "value"): each for name, each in fields.items()}


def read_value(body: Any, where: str = "body") -> bytes:
    """Return the bytes in ``value`` or ``value_base64``, empty when neither is there."""
    given = {name: body[name] for name in VALUE_FIELDS if name in body}
    renamed = {name.replace("value", "data"): each for name, each in given.items()}
    return Fields(renamed, where).data()


def maybe_contender(fields: Fields, name: str) -> Contender | None:
    """Return the contender in the field ``name``, None when it is null."""
    body = fields.inner(name)
    return None if body is None else Contender.from_body(body, fields.of(name))
