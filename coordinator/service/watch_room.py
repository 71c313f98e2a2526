"""The room for watch streams and their selectors on one member, in all and for one client."""

from __future__ import annotations

from collections import Counter

from coordinator.config import MemberLimits
from coordinator.errors import ThrottledError
from coordinator.model.access import Caller
from coordinator.service.places import has_place
from coordinator.state.access.table import AccessTable


class WatchRoom:
    """Counts the open streams and their selectors."""

    def __init__(self, limits: MemberLimits) -> None:
        self._limits = limits
        self._stream_count = 0
        self._selector_count = 0
        self._by_client: Counter[str] = Counter()

    def refuse_too_many(self, table: AccessTable, caller: Caller, key: str, count: int) -> None:
        """Raise ThrottledError unless there is room for a stream with ``count`` selectors."""
        limits = self._limits
        if not has_place(table, caller, self._stream_count, limits.watch_streams_max):
            raise ThrottledError(
                f"expected fewer than {self._stream_count} watch streams on one member "
                "(limits.watch_streams_max), found as many; watch at another member"
            )
        if key and self._by_client[key] >= limits.watch_streams_per_client_max:
            raise ThrottledError(
                f"expected at most {limits.watch_streams_per_client_max} watch streams of one"
                f" client ({key}) on one member (watch_streams_per_client_max), found as many; "
                "end some, or watch several paths by one stream"
            )
        if not has_place(table, caller, self._selector_count, limits.watch_selectors_max, count):
            raise ThrottledError(
                f"expected fewer selectors of all watch streams on one member "
                f"(limits.watch_selectors_max), found {self._selector_count} and {count} more; "
                "watch at another member"
            )

    def take(self, key: str, count: int) -> None:
        """Count a stream that begins."""
        self._stream_count += 1
        self._selector_count += count
        self._by_client[key] += 1

    def leave(self, key: str, count: int) -> None:
        """Count a stream no longer."""
        self._stream_count -= 1
        self._selector_count -= count
        self._by_client[key] -= 1
        if not self._by_client[key]:
            del self._by_client[key]
