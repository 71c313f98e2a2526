"""The room for watch streams and their selectors on one member, in all and for one client."""

from __future__ import annotations

from coordinator.model.access import Caller
from coordinator.node.config import MemberLimits
from coordinator.service.base.places import SharedPlaces, takes_the_last
from coordinator.state.access.table import AccessTable


class WatchRoom:
    """Counts the open streams and their selectors."""

    def __init__(self, limits: MemberLimits) -> None:
        self._streams = SharedPlaces(
            limits.watch_streams_max, "watch streams on one member", "limits.watch_streams_max"
        )
        self._selectors = SharedPlaces(
            limits.watch_selectors_max,
            "selectors of all watch streams on one member",
            "limits.watch_selectors_max",
        )

    def refuse_too_many(self, table: AccessTable, caller: Caller, key: str, count: int) -> None:
        """Raise ThrottledError unless there is room for a stream with ``count`` selectors."""
        is_last = takes_the_last(table, caller)
        self._streams.check(key, takes_the_last=is_last)
        self._selectors.check(key, count, takes_the_last=is_last)

    def take(self, key: str, count: int) -> None:
        """Count a stream that begins, for which there was room."""
        self._streams.count(key)
        self._selectors.count(key, count)

    def leave(self, key: str, count: int) -> None:
        """Count a stream no longer."""
        self._streams.give_back(key)
        self._selectors.give_back(key, count)
