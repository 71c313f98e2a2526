"""What is said of locks when one looks: who holds, who waits, for how long, and what is left.

An election is looked at in the same shapes, with a value for each contender.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from coordinator.wire.encoding import Encoding, bytes_fields
from coordinator.wire.fields import Fields, read_bytes
from coordinator.wire.messages.acquire import read_value, value_fields

HOLD_LINE = (
    "client.lock(name) tells who holds a lock; to hold it: "
    "`with Lock(client, name, timeout=10) as grant:` (from coordinator import Lock)"
)


@dataclass(frozen=True, slots=True)
class Contender:
    """Who holds, or stands in the queue since the wall time ``since_ms``.

    ``position`` counts those before it; several may hold a shared lock or a semaphore, so
    ``is_holder`` says who does. ``granted_ms`` is the wall time of the grant. ``lease_ms`` is how
    long its lease is, ``safe_ms`` what was left of it and of ``max_hold_ms`` when the leader was
    asked: so long nobody else is granted, unless it gives back or is forced to. None: not known.
    ``value`` only in elections; all from ``host`` to ``safe_ms`` only in locks.
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
    is_holder: bool = False
    kind: str = "exclusive"
    owner: str = ""
    granted_ms: int | None = None
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    when_unsure: str = ""
    purpose: str = ""
    guard: str = ""
    note: bytes = b""
    lease_ms: int | None = None
    safe_ms: int | None = None

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
            body.update({name: getattr(self, name) for name in _LOCK_ONLY})
            body.update(bytes_fields("note", self.note, encoding))
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
            is_holder=fields.boolean("is_holder", False),
            kind=fields.text("kind", "exclusive"),
            owner=fields.text("owner", ""),
            granted_ms=fields.integer("granted_ms", None),
            lock_delay_ms=fields.integer("lock_delay_ms", 0),
            max_hold_ms=fields.integer("max_hold_ms", 0),
            when_unsure=fields.text("when_unsure", ""),
            purpose=fields.text("purpose", ""),
            guard=fields.text("guard", ""),
            note=read_bytes(body, "note", where),
            lease_ms=fields.integer("lease_ms", None),
            safe_ms=fields.integer("safe_ms", None),
        )


@dataclass(frozen=True, slots=True)
class Closed:
    """A queue that is closed after an unclean loss (its lock-delay). ``remaining_ms`` is how long
    still, as the leader counts; None when it was not asked, or did not say."""

    delay_ms: int
    remaining_ms: int | None = None

    def to_body(self) -> dict[str, Any]:
        return {"delay_ms": self.delay_ms, "remaining_ms": self.remaining_ms}

    @classmethod
    def from_body(cls, body: Any, where: str) -> Closed:
        fields = Fields(body, where)
        return cls(fields.integer("delay_ms"), fields.integer("remaining_ms", None))


@dataclass(frozen=True, slots=True)
class Spread:
    """How long ``count`` waits or holds took, by the wall clocks of who proposed them."""

    count: int
    p50_ms: int
    p95_ms: int
    p99_ms: int

    def to_body(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "p50_ms": self.p50_ms,
            "p95_ms": self.p95_ms,
            "p99_ms": self.p99_ms,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> Spread:
        fields = Fields(body, where)
        return cls(
            count=fields.integer("count"),
            p50_ms=fields.integer("p50_ms"),
            p95_ms=fields.integer("p95_ms"),
            p99_ms=fields.integer("p99_ms"),
        )


@dataclass(frozen=True, slots=True)
class Denied:
    """Who did not get a lock, as the member that answers has seen it since the wall time
    ``since_ms``: ``tries`` that were refused at once, and waiters that ``left`` ungranted (they
    timed out, were cancelled, or their session ended)."""

    tries: int
    left: int
    since_ms: int

    def to_body(self) -> dict[str, Any]:
        return {"tries": self.tries, "left": self.left, "since_ms": self.since_ms}

    @classmethod
    def from_body(cls, body: Any, where: str) -> Denied:
        fields = Fields(body, where)
        return cls(fields.integer("tries"), fields.integer("left"), fields.integer("since_ms"))


@dataclass(frozen=True, slots=True)
class LockView:
    """The reply of GET /v1/locks/{name}; ``is_current`` only when a token was asked about.

    ``holder`` is the first of the ``holders``. ``size`` is that of a semaphore. ``waits`` and
    ``holds`` are of the grants that the history still knows; None when it knows none.
    """

    lock: str
    holder: Contender | None
    queue: tuple[Contender, ...]
    zxid: int
    is_current: bool | None = None
    holders: tuple[Contender, ...] = ()
    size: int | None = None
    closed: Closed | None = None
    waits: Spread | None = None
    holds: Spread | None = None
    denied: Denied | None = None

    if not TYPE_CHECKING:  # other libraries' ``client.lock(name)`` is the lock itself

        def __enter__(self) -> NoReturn:
            raise TypeError(HOLD_LINE)

        def __exit__(self, *_: object) -> None:
            """Never entered."""

        def __getattr__(self, name: str) -> NoReturn:
            said = f"'LockView' object has no attribute {name!r}"
            is_ours = name in ("acquire", "release", "try_acquire", "locked", "owned")
            said += f"; {HOLD_LINE}" if is_ours else ""
            raise AttributeError(said, name=name, obj=self)

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        body: dict[str, Any] = {
            "lock": self.lock,
            "holder": None if self.holder is None else self.holder.to_body(encoding),
            "holders": [each.to_body(encoding) for each in self.holders],
            "queue": [each.to_body(encoding) for each in self.queue],
            "size": self.size,
            "closed": None if self.closed is None else self.closed.to_body(),
            "waits": None if self.waits is None else self.waits.to_body(),
            "holds": None if self.holds is None else self.holds.to_body(),
            "denied": None if self.denied is None else self.denied.to_body(),
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
            holders=fields.items("holders", Contender.from_body, ()),
            size=fields.integer("size", None),
            closed=_maybe(fields, "closed", Closed.from_body),
            waits=_maybe(fields, "waits", Spread.from_body),
            holds=_maybe(fields, "holds", Spread.from_body),
            denied=_maybe(fields, "denied", Denied.from_body),
        )


@dataclass(frozen=True, slots=True)
class LockSummary:
    """One lock in a list; ``queue_length`` counts those who wait, ``holder_count`` who hold.

    ``held_ms``: how long the member has seen the holder hold, never overstated.
    """

    lock: str
    holder: Contender | None
    queue_length: int
    held_ms: int
    holder_count: int = 1
    denied: Denied | None = None

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {
            "lock": self.lock,
            "holder": None if self.holder is None else self.holder.to_body(encoding),
            "queue_length": self.queue_length,
            "held_ms": self.held_ms,
            "holder_count": self.holder_count,
            "denied": None if self.denied is None else self.denied.to_body(),
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> LockSummary:
        fields = Fields(body, where)
        return cls(
            lock=fields.text("lock"),
            holder=maybe_contender(fields, "holder"),
            queue_length=fields.integer("queue_length"),
            held_ms=fields.integer("held_ms"),
            holder_count=fields.integer("holder_count", 1),
            denied=_maybe(fields, "denied", Denied.from_body),
        )


@dataclass(frozen=True, slots=True)
class LockList:
    """The reply of GET /v1/locks; ``next`` is what to pass as ``after`` for the rest."""

    locks: tuple[LockSummary, ...]
    next: str | None = None

    def to_body(self, encoding: Encoding = Encoding.JSON) -> dict[str, Any]:
        return {"locks": [each.to_body(encoding) for each in self.locks], "next": self.next}

    @classmethod
    def from_body(cls, body: Any) -> LockList:
        fields = Fields(body, "body")
        return cls(fields.items("locks", LockSummary.from_body), fields.text("next", None))


def maybe_contender(fields: Fields, name: str) -> Contender | None:
    """Return the contender in the field ``name``, None when it is null."""
    body = fields.inner(name)
    return None if body is None else Contender.from_body(body, fields.of(name))


_LOCK_ONLY = (
    "host", "pid", "trace_id", "is_holder", "kind", "owner", "granted_ms", "lock_delay_ms",
    "max_hold_ms", "when_unsure", "purpose", "guard", "lease_ms", "safe_ms",
)  # fmt: skip


def _maybe(fields: Fields, name: str, read: Callable[[Any, str], Any]) -> Any:
    body = fields.inner(name)
    return None if body is None else read(body, fields.of(name))
