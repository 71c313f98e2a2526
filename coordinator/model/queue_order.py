"""The one decision of every lock and election: who holds, and whom the others watch.

Pure, and from names alone, so that it works over the plain tree. The members take the same decision
(``coordinator/state/locks/queues.py``, which also knows what is in no name). A test compares the
two, so one queue can have contenders of both kinds.

1. Contenders are ordered by the number at the end of their names, never by whole strings: a prefix
   (a GUID, another recipe's word) must not change the order.
2. The prefix says the kind. EXCLUSIVE (any word) holds when nobody is before it; SHARED
   (``read-``) when only SHARED are; SLOT (``slot-``) when only SLOTs are, fewer than the size.
   ``delay-`` is no contender: it closes the queue to all numbered above it.
3. Every other contender watches only its predecessor: the last before it that blocks it, so one
   departure wakes one contender (ZooKeeper recipes, "Locks"). Any of several may free a slot: a
   SLOT watches the whole queue, and has no predecessor.
4. After waking, the decision is taken again; the predecessor may have gone without ever holding.
5. Names without a number of 10 to 18 digits at the end are not contenders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["exclusive", "shared", "slot", "closed"]

_SEQUENCE: Final = re.compile(r"(?<!\d)(\d{10,18})\Z", re.ASCII)
_KINDS: Final[dict[str, Kind]] = {"read-": "shared", "slot-": "slot"}
_CLOSED_PREFIX: Final = "delay-"
_PREFIX_LENGTH: Final = 5


def sequence_of(name: str) -> int | None:
    """Return the sequence number at the end of a contender's ``name``; None if it has none."""
    match = _SEQUENCE.search(name)
    return int(match.group(1)) if match else None


def kind_of(name: str) -> Kind:
    """Return the kind that the name says; ``closed`` for what only closes a queue."""
    if name.startswith(_CLOSED_PREFIX):
        return "closed"
    return _KINDS.get(name[:_PREFIX_LENGTH], "exclusive")


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """The place of a contender: ``position`` 0 holds, else it counts those before it (1 or more).

    ``predecessor`` is whom to watch. ``is_queued`` is False when the contender is not (or no
    longer) among the names.
    """

    is_queued: bool
    position: int
    predecessor: str | None

    @property
    def is_holder(self) -> bool:
        """Whether it holds."""
        return self.is_queued and self.position == 0


_ABSENT: Final = QueuePlace(is_queued=False, position=-1, predecessor=None)


def place_of(names: Iterable[str], mine: str, size: int = 1) -> QueuePlace:
    """Decide for the contender ``mine``, a name among its siblings ``names``, in O(n).

    ``size`` is that of the semaphore, for slots.
    """
    number = sequence_of(mine)
    kind = kind_of(mine)
    if number is None or kind == "closed":
        return _ABSENT
    is_queued = False
    before = slots = 0
    blocking: tuple[int, str] | None = None
    my_place = (number, mine)
    for name in names:
        if name == mine:
            is_queued = True
            continue
        other_number = sequence_of(name)
        if other_number is None:
            continue
        place, other = (other_number, name), kind_of(name)
        if other == "closed":
            is_in_the_way = other_number < number
        elif place > my_place:
            continue
        else:
            before += 1
            slots += other == "slot"
            is_in_the_way = other != kind or kind == "exclusive"
        if is_in_the_way and (blocking is None or place > blocking):
            blocking = place
    if not is_queued:
        return _ABSENT
    if blocking is None and (kind != "slot" or slots < size):
        return QueuePlace(is_queued=True, position=0, predecessor=None)
    predecessor = None if blocking is None or kind == "slot" else blocking[1]
    return QueuePlace(is_queued=True, position=max(before, 1), predecessor=predecessor)


def holders(names: Iterable[str], size: int = 1) -> list[str]:
    """Return the names of all holders, in order."""
    numbered = _numbered(names)
    closed = min([number for number, name in numbered if kind_of(name) == "closed"], default=None)
    found: list[str] = []
    for number, name in numbered:
        kind = kind_of(name)
        if kind == "closed":
            continue
        if closed is not None and closed < number:
            break
        if found and (kind == "exclusive" or kind_of(found[0]) != kind):
            break
        if kind == "slot" and len(found) >= size:
            break
        found.append(name)
    return found


def holder(names: Iterable[str]) -> str | None:
    """Return the name of the first holder, None without one."""
    found = holders(names)
    return found[0] if found else None


def _numbered(names: Iterable[str]) -> list[tuple[int, str]]:
    return sorted([(number, name) for name in names if (number := sequence_of(name)) is not None])
