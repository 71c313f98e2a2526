"""Places: what the clients of one member share, and how much of it each of them may hold.

1. All clients together hold at most ``maximum``.
2. A client holds at most as much as is still free, or a little (``least``). So one takes half, the
   next half of the rest: no single one leaves no room to others.
3. While access rights are on, the last of some places are for operators: for who has ``admin`` on
   ``@limits``, as the last of the cluster's znodes. While they are off there is no operator, and
   all may take all.
4. What the member does for itself has no client, and only the first bound.

A client is known by its key (``turns``): the identity that it has proved, else its address.
"""

from __future__ import annotations

from typing import Final

from coordinator.errors import ThrottledError
from coordinator.model.access import LIMITS, Caller, Verb
from coordinator.state.access.table import AccessTable

_KEPT_PERCENT: Final = 2
_LEAST_PERCENT: Final = 1


def is_operator(table: AccessTable, caller: Caller) -> bool:
    """Whether the last places of a member are also for ``caller``."""
    return table.is_on and table.allows(caller, Verb.ADMIN, LIMITS)


def takes_the_last(table: AccessTable, caller: Caller) -> bool:
    """Whether ``caller`` may take the places that are kept for operators."""
    return not table.is_on or table.allows(caller, Verb.ADMIN, LIMITS)


class SharedPlaces:
    """The places of one kind: who holds how many.

    Args:
        what: names them in the plural, with where they are.
        setting: their limit, as the configuration calls it.
        least: how many every client may hold while that many are free; None: one of a hundred.
    """

    def __init__(self, maximum: int, what: str, setting: str, least: int | None = None) -> None:
        self._maximum = maximum
        self._what = what
        self._setting = setting
        self._least = max(1, maximum * _LEAST_PERCENT // 100) if least is None else least
        self._kept = maximum * _KEPT_PERCENT // 100
        self._by_client: dict[str, int] = {}
        self.total = 0

    def held_by(self, client: str) -> int:
        """Return how many a client holds."""
        return self._by_client.get(client, 0)

    def check(self, client: str, count: int = 1, *, takes_the_last: bool = True) -> None:
        """Check that there is room for ``count`` more of a client.

        Raises:
            ThrottledError: there is not."""
        maximum = self._maximum if takes_the_last else self._maximum - self._kept
        free = maximum - self.total - count
        if free < 0:
            raise ThrottledError(
                f"expected at most {maximum} {self._what} ({self._setting}), found {self.total} "
                f"and {count} more; nothing was done, try again or at another member"
            )
        held = self._by_client.get(client, 0)
        if client and held + count > (most := max(free, self._least)):
            raise ThrottledError(
                f"expected at most {most} {self._what} of one client ({client}) beside those of "
                f"others ({self._setting}), found {held} and {count} more; nothing was done, try "
                "again or at another member"
            )

    def take(self, client: str, count: int = 1, *, takes_the_last: bool = True) -> None:
        """Count ``count`` that a client holds from now on.

        Raises:
            ThrottledError: there is no room; they are not counted."""
        self.check(client, count, takes_the_last=takes_the_last)
        self.count(client, count)

    def count(self, client: str, count: int = 1) -> None:
        """Count ``count`` of a client, whether there is room or not."""
        self._by_client[client] = self._by_client.get(client, 0) + count
        self.total += count

    def give_back(self, client: str, count: int = 1) -> None:
        """Count ``count`` of a client no more."""
        self.total -= count
        held = self._by_client.get(client, 0) - count
        if held > 0:
            self._by_client[client] = held
        else:
            self._by_client.pop(client, None)
