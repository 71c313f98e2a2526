"""Ended grants in the order of their ends, of which any may go.

Kept in chunks, so that one goes at a cost that hardly grows with how many there are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter
from typing import Final

from coordinator.state.emptying import emptied
from coordinator.state.locks.contender import EndedGrant

_CHUNK_MAX: Final = 1_024
_ENDED_ZXID: Final = attrgetter("ended_zxid")


class EndOrder:
    """Some ended grants, the one that ended first in front."""

    __slots__ = ("_chunks", "_count")

    def __init__(self) -> None:
        self._chunks: list[list[EndedGrant]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0  # compiled code does not ask __len__ whether something is empty

    def __iter__(self) -> Iterator[EndedGrant]:
        return chain.from_iterable(self._chunks)

    def __reversed__(self) -> Iterator[EndedGrant]:
        return chain.from_iterable(map(reversed, reversed(self._chunks)))

    def add(self, ended: EndedGrant) -> None:
        """Take a grant that has ended after all others here, or with the last."""
        chunks = self._chunks
        if not chunks or len(chunks[-1]) >= _CHUNK_MAX:
            chunks.append([])
        chunks[-1].append(ended)
        self._count += 1

    def first(self) -> EndedGrant:
        """Return the grant that ended first; there is one."""
        return self._chunks[0][0]

    def remove(self, ended: EndedGrant) -> None:
        """Forget a grant that is here."""
        chunks, zxid = self._chunks, ended.ended_zxid
        at = bisect_left(chunks, zxid, key=_last_zxid)
        place = bisect_left(chunks[at], zxid, key=_ENDED_ZXID)
        while chunks[at][place] is not ended:  # several end in one command
            place += 1
            if place == len(chunks[at]):
                at, place = at + 1, 0
        del chunks[at][place]
        if not chunks[at]:
            del chunks[at]
        self._count -= 1

    def emptied(self) -> Iterator[None]:
        """Empty an order that is no longer used, by one value at each step."""
        yield from emptied(self._chunks)


def _last_zxid(chunk: list[EndedGrant]) -> int:
    return chunk[-1].ended_zxid
