"""What a change tells the watches: events, grouped by the zxid that caused them.

The names are ZooKeeper's. There is no event for "children changed": a watch on children derives
it from the creation and deletion of the children themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class EventType(StrEnum):
    """What happened to one znode."""

    CREATED = "NodeCreated"
    DELETED = "NodeDeleted"
    DATA_CHANGED = "NodeDataChanged"


class Event(NamedTuple):
    """One znode changed. ``version`` and ``czxid`` are those after the change (before a delete)."""

    type: EventType
    path: str
    version: int
    czxid: int
    ephemeral_owner: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """Everything one command changed, in order; never split on the way to a watcher."""

    zxid: int
    events: tuple[Event, ...]
