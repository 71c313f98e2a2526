"""One change as a member keeps it for watches that resume, with the data before and after it.

Most of a state are znodes that were created once, in requests of many: of such an event only the
path is kept, for the rest of it is known. Kept as it was it took a sixth of what a small znode
takes.

Not compiled: msgspec makes the class, in memory that the garbage collector need not look at.
"""

from __future__ import annotations

from msgspec import Struct

from coordinator.model.events import Event, EventType
from coordinator.state.tree import Values

KeptEvent = str | Event
"""The path alone: created by this change, as no session's."""


class KeptChange(Struct, gc=False):
    """Everything one command changed, in order."""

    zxid: int
    events: tuple[KeptEvent, ...]
    wall_ms: int
    values: Values
    """Two for each of its events; () once they are forgotten."""
    values_bytes: int = 0
    """What these take, roughly."""


def kept_events(zxid: int, events: tuple[Event, ...]) -> tuple[KeptEvent, ...]:
    """Return the events of the change ``zxid`` as they are kept."""
    first = events[0]
    if len(events) == 1 and first.type is not EventType.CREATED:
        return events
    return tuple([
        each.path
        if each.type is EventType.CREATED
        and each.czxid == zxid
        and each.version == 0
        and each.ephemeral_owner is None
        else each
        for each in events
    ])  # fmt: skip


def events_of(kept: KeptChange) -> tuple[Event, ...]:
    """Return the events as they were."""
    zxid = kept.zxid
    return tuple([
        Event(EventType.CREATED, each, 0, zxid) if isinstance(each, str) else each
        for each in kept.events
    ])  # fmt: skip
