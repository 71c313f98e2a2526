"""What a change tells those who watch: events, grouped by the zxid that caused them.

The names are ZooKeeper's. There is no event for "children changed": a watch on children derives
it from the creation and deletion of the children themselves.

A stream of a watch begins with ``watching``; then changes and bookmarks in growing order of zxid;
``resync`` says that this reader was too slow and must read anew, and ends the stream. Whoever
reconnects passes the last zxid it saw as ``from_zxid`` and misses nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from coordinator.errors import CoordinatorError
from coordinator.model.fields import Count, Positive, Version, ZnodePath


class EventType(StrEnum):
    """What happened to one znode."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"


class Event(NamedTuple):
    """One znode changed. ``version`` and ``czxid`` are those after the change (before a delete)."""

    type: EventType
    path: str
    version: Version
    czxid: Positive
    ephemeral_owner: str | None = None


class Change(Struct, frozen=True, tag_field="type", tag="change"):
    """Everything one command changed, in order; never split on the way to a watcher."""

    zxid: Positive
    events: tuple[Event, ...]


class Watching(Struct, frozen=True, tag_field="type", tag="watching"):
    """The watch has begun; every change after ``zxid`` will be delivered."""

    zxid: Count


class Bookmark(Struct, frozen=True, tag_field="type", tag="bookmark"):
    """Everything up to ``zxid`` has been delivered; resume from here."""

    zxid: Count


class Resync(Struct, frozen=True, tag_field="type", tag="resync"):
    """Changes may be missing: read the state anew, which is at least at ``zxid``. The end."""

    zxid: Count


class StreamError(Struct, frozen=True, tag_field="type", tag="error"):
    """The stream ends with an error; used by every kind of stream."""

    error: CoordinatorError = field(name="problem")


WatchLine = Watching | Change | Bookmark | Resync | StreamError


class WatchKind(StrEnum):
    """What is watched: the znode, its direct children coming and going, or all below it."""

    ZNODE = "znode"
    CHILDREN = "children"
    SUBTREE = "subtree"


class WatchSelector(Struct, frozen=True, forbid_unknown_fields=True):
    """What to tell about."""

    path: ZnodePath
    kind: WatchKind = WatchKind.ZNODE


class WatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/watch. ``from_zxid``: tell of changes after it; None: from now on."""

    watches: tuple[WatchSelector, ...]
    from_zxid: Count | None = None
    is_one_shot: bool = field(name="one_shot", default=False)
