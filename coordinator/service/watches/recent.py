"""The latest changes, in zxid order: new ones come, the oldest go.

A list whose first places are given up in bulk. A dict in order would do, but each of its entries is
two pieces of memory, which are far from the processor by the time that they are freed.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar, cast

from coordinator.waiting import let_go

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
    """The latest of them."""

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
