"""The one decision of every lock and election: who holds, and whom the others watch.

Pure. The server-run lock, the client-side recipe over the plain tree and the elections all call it,
so their contenders can stand in one queue.

1. The contender with the lowest sequence number holds. Names are compared by the number at their
   end, never as whole strings: a prefix (a GUID, another recipe's word) must not change the order.
2. Every other contender watches only its predecessor: the one with the next lower number, so one
   departure wakes one contender (ZooKeeper recipes, "Locks").
3. After waking, the decision is taken anew; the predecessor may have gone without ever holding.
4. Names without a number at the end are not contenders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SEQUENCE = re.compile(r"(\d{10,})\Z", re.ASCII)


def sequence_of(name: str) -> int | None:
    """Return the sequence number at the end of a contender's ``name``; None if it has none."""
    match = _SEQUENCE.search(name)
    return int(match.group(1)) if match else None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a contender stands: ``position`` 0 holds; else ``predecessor`` is whom to watch.

    ``is_queued`` is False when the contender is not (or no longer) among the names.
    """

    is_queued: bool
    position: int
    predecessor: str | None

    @property
    def is_holder(self) -> bool:
        return self.is_queued and self.position == 0


def sorted_contenders(names: Iterable[str]) -> list[str]:
    """Return the contenders among ``names``, the holder first."""
    numbered = [(number, name) for name in names if (number := sequence_of(name)) is not None]
    numbered.sort()
    return [name for _, name in numbered]


def standing(names: Iterable[str], mine: str) -> Standing:
    """Decide for the contender ``mine``, a name among its siblings ``names``, in O(n)."""
    my_number = sequence_of(mine)
    if my_number is None:
        return Standing(is_queued=False, position=-1, predecessor=None)
    is_queued = False
    position = 0
    best: tuple[int, str] | None = None
    mine_key = (my_number, mine)
    for name in names:
        if name == mine:
            is_queued = True
            continue
        number = sequence_of(name)
        if number is None or (number, name) > mine_key:
            continue
        position += 1
        if best is None or (number, name) > best:
            best = (number, name)
    if not is_queued:
        return Standing(is_queued=False, position=-1, predecessor=None)
    return Standing(is_queued=True, position=position, predecessor=best[1] if best else None)


def holder(names: Iterable[str]) -> str | None:
    """Return the name of the contender that holds, None when nobody contends."""
    best: tuple[int, str] | None = None
    for name in names:
        number = sequence_of(name)
        if number is not None and (best is None or (number, name) < best):
            best = (number, name)
    return best[1] if best else None
