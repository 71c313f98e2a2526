"""The lines of streams that were read last, and what they say.

Many watches of a client get the same line, each on a stream of its own. It is read once; what is
read never changes, so they may share it. Several lines are kept, because a watch that has fallen
behind reads a few in a row before the next one reads the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

_COUNT_MAX = 32
_BYTES_MAX = 4_096
"""Of a longer line only the last is kept."""


class RecentLines:
    """What lines said, by what tells them apart: the line, and how it is read."""

    __slots__ = ("_long", "said")

    def __init__(self) -> None:
        self.said: dict[Hashable, Any] = {}
        self._long: Hashable | None = None

    def keep(self, key: Hashable, said: Any, length: int) -> None:
        """Keep what a line of so many bytes said."""
        kept = self.said
        if length > _BYTES_MAX:
            kept.pop(self._long, None)
            self._long = key
        kept[key] = said
        if len(kept) > _COUNT_MAX:
            oldest = next(iter(kept))
            kept.pop(oldest)
            if oldest == self._long:
                self._long = None  # it is the line itself
