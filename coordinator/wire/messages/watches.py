"""What is said on a watch: the selectors that ask, and the lines that tell.

A stream begins with ``watching``; then changes and bookmarks in growing order of zxid; ``resync``
says that this reader was too slow and must read anew, and ends the stream. Whoever reconnects
passes the last zxid it saw as ``from_zxid`` and misses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from coordinator.errors import BadArgumentsError, CoordinatorError, from_problem, to_problem
from coordinator.wire.fields import Fields

WATCH_KINDS = ("znode", "children", "subtree")
EVENT_TYPES = ("NodeCreated", "NodeDeleted", "NodeDataChanged")


@dataclass(frozen=True, slots=True)
class WatchSelector:
    """What to tell about: one znode, its direct children coming and going, or all below it."""

    path: str
    kind: str = "znode"

    def to_body(self) -> dict[str, Any]:
        return {"path": self.path, "kind": self.kind}

    @classmethod
    def from_body(cls, body: Any, where: str) -> WatchSelector:
        fields = Fields(body, where, {"path", "kind"})
        return cls(fields.text("path"), fields.choice("kind", WATCH_KINDS, "znode"))


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The body of POST /v1/watch. ``from_zxid``: tell of changes after it; None: from now on."""

    watches: tuple[WatchSelector, ...]
    from_zxid: int | None = None
    is_one_shot: bool = False

    FIELDS: ClassVar[frozenset[str]] = frozenset({"watches", "from_zxid", "one_shot"})

    def to_body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"watches": [each.to_body() for each in self.watches]}
        if self.from_zxid is not None:
            body["from_zxid"] = self.from_zxid
        if self.is_one_shot:
            body["one_shot"] = True
        return body

    @classmethod
    def from_body(cls, body: Any) -> WatchRequest:
        fields = Fields(body, "body", cls.FIELDS)
        return cls(
            watches=fields.items("watches", WatchSelector.from_body),
            from_zxid=fields.integer("from_zxid", None, minimum=0),
            is_one_shot=fields.boolean("one_shot", False),
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One znode changed; ``version`` and ``czxid`` are those after the change."""

    type: str
    path: str
    version: int
    czxid: int
    ephemeral_owner: str | None = None

    def to_body(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "path": self.path,
            "version": self.version,
            "czxid": self.czxid,
            "ephemeral_owner": self.ephemeral_owner,
        }

    @classmethod
    def from_body(cls, body: Any, where: str) -> Event:
        fields = Fields(body, where)
        return cls(
            type=fields.text("type"),
            path=fields.text("path"),
            version=fields.integer("version"),
            czxid=fields.integer("czxid"),
            ephemeral_owner=fields.text("ephemeral_owner", None),
        )


@dataclass(frozen=True, slots=True)
class Watching:
    """The watch stands; what changes after ``zxid`` will be told."""

    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"type": "watching", "zxid": self.zxid}


@dataclass(frozen=True, slots=True)
class Change:
    """Everything one command changed that the selectors ask for, in order, never split."""

    zxid: int
    events: tuple[Event, ...]

    def to_body(self) -> dict[str, Any]:
        events = [each.to_body() for each in self.events]
        return {"type": "change", "zxid": self.zxid, "events": events}


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to ``zxid`` has been told; resume from here."""

    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"type": "bookmark", "zxid": self.zxid}


@dataclass(frozen=True, slots=True)
class Resync:
    """Changes after ``zxid`` were dropped for this reader: read anew. The stream ends here."""

    zxid: int

    def to_body(self) -> dict[str, Any]:
        return {"type": "resync", "zxid": self.zxid}


@dataclass(frozen=True, slots=True)
class StreamError:
    """The stream ends with an error; used by every kind of stream."""

    error: CoordinatorError

    def to_body(self) -> dict[str, Any]:
        return {"type": "error", "problem": to_problem(self.error)}


WatchLine = Watching | Change | Bookmark | Resync | StreamError


def read_watch_line(body: Any) -> WatchLine:
    """Return what one line of a watch says."""
    fields = Fields(body, "line")
    kind = fields.text("type")
    match kind:
        case "change":
            return Change(fields.integer("zxid"), fields.items("events", Event.from_body))
        case "bookmark":
            return Bookmark(fields.integer("zxid"))
        case "watching":
            return Watching(fields.integer("zxid"))
        case "resync":
            return Resync(fields.integer("zxid"))
        case "error":
            return StreamError(from_problem(fields.inner("problem") or {}))
    raise BadArgumentsError(f"line.type: expected the type of a watch line, found {kind!r}")
