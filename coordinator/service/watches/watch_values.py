"""The data in recent changes on one member, for watches with values, and what a caller gets of it.

1. They are kept in one place, here, bounded by bytes; what is older is forgotten first. Buffers of
   streams have none: a stream looks here when it hands a change out.
2. A watcher that asks for what is forgotten gets CompactedError, never a change without its values.
   The events themselves may be kept for longer, for watches without values.
3. The values of one change are kept whole or not at all. With more than ``CHANGE_BYTES_MAX`` it is
   as if they, and all before them, had been forgotten at once.
4. They are made by applying the log, so they are the same on every member that still has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from coordinator.errors import CompactedError
from coordinator.model.events import Change, Event
from coordinator.service.watches.kept_change import KeptChange
from coordinator.service.watches.recent import Recent
from coordinator.service.watches.watch_history import is_kept_as
from coordinator.waiting import FREED_AT_ONCE, in_turns

CHANGE_BYTES_MAX: Final = 2 * 1024 * 1024 + 64 * 1024
"""The size of the values of one change, which is one line of a watch: one set of the largest
data."""
_CHANGE_BYTES: Final = 300
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
        count = _CHANGE_BYTES + _VALUES_BYTES * len(change.events)
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
