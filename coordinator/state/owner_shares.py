"""The shares of owners in a table that is kept in the order of use: whose oldest goes first.

1. An owner with more than its share of the limit loses its own oldest. Of several such it is the
   one that has most; of those that have the same, the first by name. If there is none, the oldest
   of all goes. So no owner pushes out what others have.
2. All of it follows from what is in the table and its order, so it is the same, live and restored.
3. Each use costs the same, however many owners and keys there are: at most a few have more than
   their share.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from coordinator.state.emptying import emptied


class OwnerShares:
    """How much each owner has of what all together may have."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._beyond: dict[str, None] = {}
        """Who has more than the share."""
        self._share = 0

    def use(self, limit: int, percent: int) -> None:
        """Let the share of an owner be ``percent`` of ``limit`` from now on, at least one."""
        self._share = max(1, limit * percent // 100)
        self._beyond = {owner: None for owner, size in self._sizes.items() if size > self._share}

    def add(self, owner: str, size: int) -> None:
        """Count that an owner has so much more, or less."""
        total = self._sizes.get(owner, 0) + size
        if total > 0:
            self._sizes[owner] = total
        else:
            self._sizes.pop(owner, None)
        if total > self._share:
            self._beyond[owner] = None
        elif self._beyond:
            self._beyond.pop(owner, None)

    def largest(self) -> str:
        """Return who has most of those with more than their share; "" if nobody has."""
        sizes = self._sizes
        return min(self._beyond, key=lambda owner: (-sizes[owner], owner), default="")

    def emptied(self) -> Iterator[None]:
        """Empty shares that are no longer used, by one value at each step."""
        yield from emptied(self._sizes)


class OwnedKeys:
    """The keys of each owner in one table, in the order of the table."""

    def __init__(self) -> None:
        self._of_owner: dict[str, OrderedDict[str, None]] = {}

    def use(self, owner: str, key: str) -> bool:
        """Make a key the last of its owner; return whether it is new."""
        keys = self._of_owner.get(owner)
        if keys is None:
            keys = self._of_owner[owner] = OrderedDict()
        is_new = key not in keys
        keys[key] = None
        keys.move_to_end(key)
        return is_new

    def remove(self, owner: str, key: str) -> None:
        """Forget a key of an owner, if it is there."""
        keys = self._of_owner.get(owner)
        if keys is None:
            return
        keys.pop(key, None)
        if not keys:
            del self._of_owner[owner]

    def first(self, owner: str) -> str | None:
        """Return the key of an owner that was not used for longest, None if it has none."""
        return next(iter(self._of_owner.get(owner, ())), None)

    def count_of(self, owner: str) -> int:
        """Return how many keys an owner has."""
        return len(self._of_owner.get(owner, ()))

    def emptied(self) -> Iterator[None]:
        """Empty keys that are no longer used, by one at each step."""
        yield from emptied(self._of_owner)
