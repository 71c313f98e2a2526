"""The events of a change, as those who watch see them, grouped by their zxid.

The names are ZooKeeper's. There is no event for "children changed": a watch on children derives
it from the creation and deletion of the children themselves.

A stream of a watch begins with ``watching``; then changes and bookmarks in growing order of zxid;
``resync`` says that this reader was too slow and must read again, and ends the stream. A
reader that reconnects passes the last zxid it saw as ``from_zxid`` and misses nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from coordinator.errors import CoordinatorError
from coordinator.model.fields import LEFT_OUT, Count, Positive, ZnodePath, described

BOOKMARK_MS_MIN, BOOKMARK_MS_MAX = 100, 10_000


class EventType(StrEnum):
    """What happened to one znode."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"


class Event(Struct, frozen=True, gc=False):
    """One znode changed. ``version`` and ``czxid`` are those after the change (before a delete).

    In a watch with values ``data`` is that after the change, ``previous_data`` that before it, None
    where there was no znode. ``is_withheld``: who watches may not read the znode, so both are None.
    """

    type: EventType
    path: str
    version: Count
    czxid: Positive
    ephemeral_owner: str | None = None
    data: Annotated[bytes | None, LEFT_OUT, described("the data after it")] = None
    previous_data: Annotated[bytes | None, LEFT_OUT, described("the data before it")] = None
    is_withheld: Annotated[bool, LEFT_OUT] = False


class Change(Struct, frozen=True, gc=False, tag_field="type", tag="change"):
    """Everything one command changed, in order; never split on the way to a watcher.

    ``wall_ms`` is the time of the change as a member's clock said, in a watch with values, else 0.
    """

    zxid: Positive
    events: tuple[Event, ...]
    wall_ms: Annotated[Count, LEFT_OUT] = 0


class Watching(Struct, frozen=True, tag_field="type", tag="watching"):
    """The watch has begun; every change after ``zxid`` will be delivered."""

    zxid: Count


class Bookmark(Struct, frozen=True, tag_field="type", tag="bookmark"):
    """Everything up to ``zxid`` has been delivered; resume from here."""

    zxid: Count


class Resync(Struct, frozen=True, tag_field="type", tag="resync"):
    """Changes may be missing: read the state again, which is at least at ``zxid``. The end."""

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
    """One path to watch, and how: the znode, its children or its subtree."""

    path: ZnodePath
    kind: WatchKind = WatchKind.ZNODE


class WatchRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /v1/watch. ``from_zxid``: tell of changes after it; None: from now on.

    ``has_values``: with the data after and before each change. ``only``: events of these types,
    ``prefix``: of paths that begin so; empty: of all. ``bookmark_ms``: how often to say how far the
    watch has come while there is nothing else to say; None: as the member does.
    """

    watches: tuple[WatchSelector, ...]
    from_zxid: Count | None = None
    is_one_shot: bool = field(name="one_shot", default=False)
    has_values: bool = field(name="values", default=False)
    only: tuple[EventType, ...] = ()
    prefix: str = ""
    bookmark_ms: Annotated[int, Meta(ge=BOOKMARK_MS_MIN, le=BOOKMARK_MS_MAX)] | None = None

    def after(self, zxid: int | None) -> WatchRequest:
        """Return the same from another zxid."""
        return replace(self, from_zxid=zxid)
