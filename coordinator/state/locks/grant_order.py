"""Ended grants in the order in which they were granted, which is not that of their ends.

Kept in chunks, so that one comes in or goes at a cost that hardly grows with how many there are.
Grants of one queue are also in the order of their tokens (``queues``, 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from coordinator.state.locks.contender import EndedGrant

_CHUNK_MAX = 1_024


class GrantOrder:
    """Some ended grants, in the order of their numbers."""

    __slots__ = ("_chunks", "_last")

    def __init__(self) -> None:
        self._chunks: list[list[EndedGrant]] = []
        self._last = -1
        """No grant that has been here has a greater number."""

    def add(self, ended: EndedGrant) -> None:
        """Take a grant to its place: mostly the last."""
        chunks, number = self._chunks, ended.contender.grant_number
        if number > self._last:
            self._last = number
            if not chunks or len(chunks[-1]) >= _CHUNK_MAX:
                chunks.append([ended])
            else:
                chunks[-1].append(ended)
            return
        at = min(bisect_left(chunks, number, key=_last_number), max(len(chunks) - 1, 0))
        chunk = chunks[at] if chunks else []
        place = bisect_left(chunk, number, key=number_of)
        if place < len(chunk) and number_of(chunk[place]) == number:
            raise ValueError(f"two grants have the number {number}")
        chunk.insert(place, ended)
        half = len(chunk) // 2 if len(chunk) > _CHUNK_MAX else len(chunk)
        chunks[at : at + 1] = [part for part in (chunk[:half], chunk[half:]) if part]

    def remove(self, ended: EndedGrant) -> None:
        """Forget a grant that is here: mostly the first."""
        chunks, at, place = self._chunks, 0, 0
        if chunks[0][0] is not ended:
            number = number_of(ended)
            at = bisect_left(chunks, number, key=_last_number)
            place = bisect_left(chunks[at], number, key=number_of)
            assert chunks[at][place] is ended, "no two grants have one number"
        del chunks[at][place]
        if not chunks[at]:
            del chunks[at]

    def since(self, value: int, key: Callable[[EndedGrant], int]) -> Iterator[EndedGrant]:
        """Iterate from the first on whose ``key`` is ``value`` or more.

        The ``key`` grows with the numbers, and nothing changes meanwhile."""
        chunks = self._chunks
        at = bisect_left(chunks, value, key=lambda chunk: key(chunk[-1]))
        if at < len(chunks):
            chunk = chunks[at]
            for place in range(bisect_left(chunk, value, key=key), len(chunk)):
                yield chunk[place]
            for later in range(at + 1, len(chunks)):
                yield from chunks[later]


def number_of(ended: EndedGrant) -> int:
    """Return the number of a grant."""
    return ended.contender.grant_number


def _last_number(chunk: list[EndedGrant]) -> int:
    return number_of(chunk[-1])
