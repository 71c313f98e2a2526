"""Ended grants in the order in which they were granted, which is not that of their ends.

Kept in chunks, so that one comes in or goes at a cost that hardly grows with how many there are.
Grants of one queue are also in the order of their tokens (``queues``, 1 and 2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from coordinator.state.locks.contender import EndedGrant

_CHUNK_MAX = 1_024


class _Chunk:
    """Grants that follow each other, and their numbers."""

    __slots__ = ("grants", "numbers")

    def __init__(self, grants: list[EndedGrant]) -> None:
        self.grants = grants
        self.numbers = [number_of(each) for each in grants]


class GrantOrder:
    """Some ended grants, in the order of their numbers."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: list[_Chunk] = []

    def add(self, ended: EndedGrant, number: int) -> None:
        """Take the grant of this number to its place: mostly the last."""
        chunks = self._chunks
        if not chunks:
            chunks.append(_Chunk([ended]))
            return
        chunk, at = chunks[-1], len(chunks) - 1
        numbers = chunk.numbers
        if number > numbers[-1]:
            if len(numbers) >= _CHUNK_MAX:
                chunks.append(_Chunk([ended]))
            else:
                numbers.append(number)
                chunk.grants.append(ended)
            return
        if number < numbers[0]:
            at = bisect_left(chunks, number, key=_last_number)
            chunk = chunks[at]
            numbers = chunk.numbers
        place = bisect_left(numbers, number)
        if numbers[place] == number:
            raise ValueError(f"two grants have the number {number}")
        numbers.insert(place, number)
        chunk.grants.insert(place, ended)
        if len(numbers) > _CHUNK_MAX:
            half = len(numbers) // 2
            chunks.insert(at + 1, _Chunk(chunk.grants[half:]))
            del chunk.grants[half:], numbers[half:]

    def remove(self, ended: EndedGrant) -> None:
        """Forget a grant that is here: mostly one of the first."""
        chunks, number, at = self._chunks, ended.contender.grant_number, 0
        if number > chunks[0].numbers[-1]:
            at = bisect_left(chunks, number, key=_last_number)
        chunk = chunks[at]
        place = bisect_left(chunk.numbers, number)
        assert chunk.grants[place] is ended, "no two grants have one number"
        del chunk.numbers[place], chunk.grants[place]
        if not chunk.numbers:
            del chunks[at]

    def has(self, ended: EndedGrant) -> bool:
        """Return whether a grant is in its place, found as any other is."""
        chunks, number = self._chunks, ended.contender.grant_number
        at = bisect_left(chunks, number, key=_last_number)
        if at == len(chunks):
            return False
        numbers, grants = chunks[at].numbers, chunks[at].grants
        place = bisect_left(numbers, number)
        if numbers[place] != number or len(grants) != len(numbers):
            return False
        found = grants[place]
        return found is ended or found == ended

    def since(self, value: int, key: Callable[[EndedGrant], int]) -> Iterator[EndedGrant]:
        """Iterate from the first on whose ``key`` is ``value`` or more.

        The ``key`` grows with the numbers, and nothing changes meanwhile."""
        chunks = self._chunks
        at = bisect_left(chunks, value, key=lambda chunk: key(chunk.grants[-1]))
        if at < len(chunks):
            grants = chunks[at].grants
            for place in range(bisect_left(grants, value, key=key), len(grants)):
                yield grants[place]
            for later in range(at + 1, len(chunks)):
                yield from chunks[later].grants


def number_of(ended: EndedGrant) -> int:
    """Return the number of a grant."""
    return ended.contender.grant_number


def _last_number(chunk: _Chunk) -> int:
    return chunk.numbers[-1]
