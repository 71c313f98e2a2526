"""Look-ups in one queue that do not walk it: by fencing token, by the zxid of a grant.

They rest on the order of a queue (``queues``, 1 and 2): its contenders entered in it, and its
holders were granted in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from coordinator.state.locks.contender import ContenderRecord
from coordinator.state.locks.queues import LockTable


def with_token(table: LockTable, directory: str, token: int) -> ContenderRecord | None:
    """Return the contender with this fencing token, None when there is none."""

    def token_at(place: tuple[int, str]) -> int:
        czxid: int = table.contenders[place[1]].czxid
        return czxid

    queue = table.queues.get(directory)
    if queue is None:
        return None
    places = queue.contenders
    at = bisect_left(places, token, key=token_at)
    found = table.contenders[places[at][1]] if at < len(places) else None
    return found if found is not None and found.czxid == token else None


def first_granted(table: LockTable, directory: str, zxid: int) -> ContenderRecord | None:
    """Return the first of those who hold and were granted at ``zxid`` or later."""

    def granted_at(place: tuple[int, str]) -> int:
        granted_zxid: int | None = table.contenders[place[1]].granted_zxid
        assert granted_zxid is not None, "the first contenders of a queue hold"
        return granted_zxid

    queue = table.queues.get(directory)
    if queue is None:
        return None
    at = bisect_left(queue.contenders, zxid, hi=queue.held, key=granted_at)
    return table.contenders[queue.contenders[at][1]] if at < queue.held else None


def last_holders(table: LockTable, directory: str) -> Iterator[ContenderRecord]:
    """Iterate over who holds, the last first."""
    queue = table.queues.get(directory)
    if queue is not None:
        for at in reversed(range(queue.held)):
            yield table.contenders[queue.contenders[at][1]]
