"""The recent changes on one member, from which a watch resumes at a past zxid, and their data.

1. Both are bounded: the changes by count and bytes, their values by bytes of their own. They start
   empty at the zxid of the restored snapshot and fill as the log is applied; below ``floor_zxid``
   the answer is CompactedError. A watcher never gets a change without the values that it asked for.
2. Values are kept in one place, here: a stream looks them up when it hands a change out.
3. The values of one change are kept whole or not at all. With more than ``CHANGE_BYTES_MAX`` they,
   and all before them, count as forgotten at once.
4. They are made by applying the log, so they are the same on every member that still has them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar, cast

from msgspec.structs import replace

from coordinator.errors import CompactedError
from coordinator.model.events import Change, Event, EventType
from coordinator.service.watches.kept_change import KeptChange, KeptEvent
from coordinator.waiting import FREED_AT_ONCE, in_turns, let_go

_zxid: Final = attrgetter("zxid")
_EMPTY_MAX: Final = 1024
"""So many places may be empty, however few are not."""


class Dated(Protocol):
    """Something of one change."""

    @property
    def zxid(self) -> int:
        """The zxid of the change."""


T = TypeVar("T", bound=Dated)


class Recent(Generic[T]):
    """The latest changes, in zxid order: a list whose first places are emptied in bulk."""

    def __init__(self) -> None:
        self._kept: list[T | None] = []
        self._first = 0
        """The place of the oldest; those before it are empty."""

    def __len__(self) -> int:
        return len(self._kept) - self._first

    def __bool__(self) -> bool:
        return len(self) > 0  # compiled code does not ask __len__ whether something is empty

    def append(self, each: T) -> None:
        """Add one; its zxid is above those of all that are here."""
        self._kept.append(each)

    def pop_first(self) -> T:
        """Remove the oldest, and return it; there is one."""
        kept, first = self._kept, self._first
        oldest = kept[first]
        assert oldest is not None, "only places before the first are empty"
        kept[first] = None
        self._first = first = first + 1
        if first >= _EMPTY_MAX and 2 * first >= len(kept):
            del kept[:first]
            self._first = 0
        return oldest

    def clear(self) -> None:
        """Forget all, in turns: freeing much at once takes long."""
        let_go(self.given_up())

    def given_up(self) -> list[T]:
        """Be empty from now on; return all that were here."""
        kept, first = self._kept, self._first
        self._kept, self._first = [], 0
        del kept[:first]
        return cast("list[T]", kept)

    def place_after(self, zxid: int) -> int:
        """Return the place of the first one with a zxid above ``zxid``; ``len`` if there is none.

        Places count from the oldest."""
        return bisect_right(self._kept, zxid, lo=self._first, key=_zxid) - self._first

    def at(self, place: int) -> T:
        """Return the one at a place."""
        found = self._kept[self._first + place]
        assert found is not None, "only places before the first are empty"
        return found

    def get(self, zxid: int) -> T | None:
        """Return the one of this zxid, or None."""
        place = self.place_after(zxid - 1)
        if place < len(self) and (found := self.at(place)).zxid == zxid:
            return found
        return None


# Rough cost in memory: a change and its places; an Event and its path beyond its characters.
_CHANGE_BYTES: Final = 200
_EVENT_BYTES: Final = 200


def kept_events(zxid: int, events: tuple[Event, ...]) -> tuple[KeptEvent, ...]:
    """Return the events of the change ``zxid`` as they are kept."""
    first = events[0]
    if len(events) == 1 and first.type is not EventType.CREATED:
        return events
    return tuple([each.path if _is_plain(each, zxid) else each for each in events])


def is_kept_as(kept: KeptEvent, event: Event, zxid: int) -> bool:
    """Whether this is how an event of the change ``zxid`` is kept."""
    if isinstance(kept, str):
        return kept == event.path and _is_plain(event, zxid)
    return kept is event or kept == event


def _is_plain(event: Event, zxid: int) -> bool:
    return (
        event.type is EventType.CREATED
        and event.czxid == zxid
        and event.version == 0
        and event.ephemeral_owner is None
    )


def events_of(kept: KeptChange) -> tuple[Event, ...]:
    """Return the events as they were."""
    zxid = kept.zxid
    return tuple([
        Event(EventType.CREATED, each, 0, zxid) if isinstance(each, str) else each
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
        # A list: what is added or forgotten between two of them moves the places.
        for kept in [changes.at(place) for place in range(first, last)]:
            yield Change(kept.zxid, events_of(kept))


CHANGE_BYTES_MAX: Final = 2 * 1024 * 1024 + 64 * 1024
"""The size of the values of one change, which is one line of a watch: one set of the largest
data."""
_VALUED_CHANGE_BYTES: Final = 300
_VALUES_BYTES: Final = 120
"""Roughly what a change, and each of its pairs, takes besides the data."""


class ValuesHistory:
    """The values before and after each change, by zxid."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: Recent[KeptChange] = Recent()
        self._bytes = 0
        self.floor_zxid = 0
        """The values of all changes after it are kept."""

    @property
    def bytes_count(self) -> int:
        """Roughly how much memory they take."""
        return self._bytes

    def restart(self, zxid: int) -> None:
        """Forget everything up to ``zxid``."""
        in_turns(self._kept.given_up(), _forget_values, FREED_AT_ONCE)
        self._bytes = 0
        self.floor_zxid = zxid

    def append(self, change: KeptChange) -> None:
        """Remember the values of ``change``, and forget the oldest ones beyond the limit."""
        count = _VALUED_CHANGE_BYTES + _VALUES_BYTES * len(change.events)
        for value in change.values:
            if value is not None:
                count += len(value)
        if count > min(CHANGE_BYTES_MAX, self._bytes_max):
            change.values = ()
            self.restart(change.zxid)
            return
        change.values_bytes = count
        self._kept.append(change)
        self._bytes += count
        while self._bytes > self._bytes_max:
            oldest = self._kept.pop_first()
            self.floor_zxid = oldest.zxid
            self._bytes -= oldest.values_bytes
            _forget_values(oldest)

    def refuse_compacted(self, from_zxid: int) -> None:
        """Raise CompactedError unless the values of every change after ``from_zxid`` are here."""
        if from_zxid < self.floor_zxid:
            raise CompactedError(
                f"expected a zxid of at least {self.floor_zxid}, found {from_zxid}: this member no "
                "longer keeps the values of the changes after it; read the state again and watch "
                "from its zxid",
                floor_zxid=self.floor_zxid,
            )

    def put_into(self, change: Change, may_read: Callable[[str], bool]) -> Change:
        """Return ``change``, some events of a kept one, with the values that may be read.

        Raises:
            CompactedError: they are forgotten.
        """
        kept = self._kept.get(change.zxid)
        if kept is None:
            self.refuse_compacted(change.zxid - 1)
            raise AssertionError("the values of what is above the floor are kept")
        events: list[Event] = []
        at = 0
        for event in change.events:
            # Of equal ones all are asked for, or none is.
            while not is_kept_as(kept.events[at], event, kept.zxid):
                at += 1
            if may_read(event.path):
                after, before = kept.values[2 * at : 2 * at + 2]
                events.append(replace(event, data=after, previous_data=before))
            else:
                events.append(replace(event, is_withheld=True))
            at += 1
        return Change(change.zxid, tuple(events), kept.wall_ms)


def _forget_values(kept: KeptChange) -> None:
    kept.values = ()  # its events may be kept for longer
