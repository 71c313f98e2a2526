"""The history of recent changes on one member, from which a watch resumes at a past zxid.

It is bounded by count and by bytes. It starts empty at the zxid of the restored snapshot and fills
as the log is applied; below ``floor_zxid`` the answer is CompactedError.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator.errors import CompactedError
from coordinator.model.events import Change, Event, EventType
from coordinator.service.watches.kept_change import KeptChange, KeptEvent
from coordinator.service.watches.recent import Recent

_CREATED: Final = EventType.CREATED
# Rough cost in memory: a change and its places; an Event and its path beyond its characters.
_CHANGE_BYTES: Final = 200
_EVENT_BYTES: Final = 200


def kept_events(zxid: int, events: tuple[Event, ...]) -> tuple[KeptEvent, ...]:
    """Return the events of the change ``zxid`` as they are kept."""
    first = events[0]
    if len(events) == 1 and first.type is not _CREATED:
        return events
    return tuple([each.path if _is_plain(each, zxid) else each for each in events])


def is_kept_as(kept: KeptEvent, event: Event, zxid: int) -> bool:
    """Whether this is how an event of the change ``zxid`` is kept."""
    if isinstance(kept, str):
        return kept == event.path and _is_plain(event, zxid)
    return kept is event or kept == event


def _is_plain(event: Event, zxid: int) -> bool:
    return (
        event.type is _CREATED
        and event.czxid == zxid
        and event.version == 0
        and event.ephemeral_owner is None
    )


def events_of(kept: KeptChange) -> tuple[Event, ...]:
    """Return the events as they were."""
    zxid = kept.zxid
    return tuple([
        Event(_CREATED, each, 0, zxid) if isinstance(each, str) else each
        for each in kept.events
    ])  # fmt: skip


def change_bytes(change: KeptChange) -> int:
    """Return roughly how much memory ``change`` takes, at most."""
    total = _CHANGE_BYTES
    for each in change.events:
        total += _EVENT_BYTES + len(each if isinstance(each, str) else each.path)
    return total


class History:
    """Changes by zxid. The zxids between them belong to changes without events."""

    def __init__(self, changes_max: int, bytes_max: int) -> None:
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._changes: Recent[KeptChange] = Recent()
        self._bytes = 0
        self._last_zxid = 0
        self.floor_zxid = 0

    def restart(self, zxid: int) -> None:
        """Forget everything: the state is now the one of ``zxid``."""
        self._changes.clear()
        self._bytes = 0
        self._last_zxid = self.floor_zxid = zxid

    def append(self, change: KeptChange) -> None:
        """Remember a change, and forget the oldest ones beyond the limits."""
        assert change.zxid > self._last_zxid, "changes arrive in zxid order"
        self._changes.append(change)
        self._last_zxid = change.zxid
        self._bytes += change_bytes(change)
        while len(self._changes) > self._changes_max or self._bytes > self._bytes_max:
            oldest = self._changes.pop_first()
            self.floor_zxid = oldest.zxid
            self._bytes -= change_bytes(oldest)
            if not self._changes:
                break

    def refuse_compacted(self, from_zxid: int) -> None:
        """Raise CompactedError unless every change after ``from_zxid`` is still here."""
        if from_zxid < self.floor_zxid:
            raise CompactedError(
                f"expected a zxid of at least {self.floor_zxid}, found {from_zxid}: this member no "
                "longer keeps the changes after it; read the state again and watch from its zxid",
                floor_zxid=self.floor_zxid,
            )

    def after(self, zxid: int, zxids_max: int) -> Iterator[Change]:
        """Yield the changes within the ``zxids_max`` zxids that follow ``zxid``."""
        changes = self._changes
        first = changes.place_after(zxid)
        last = changes.place_after(zxid + zxids_max)
        # A list: what is added or forgotten meanwhile moves the places.
        for kept in [changes.at(place) for place in range(first, last)]:
            yield Change(kept.zxid, events_of(kept))
