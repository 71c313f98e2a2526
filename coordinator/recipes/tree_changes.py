"""The changes of a cached subtree: what was there and what is, znode by znode.

A reader that is slow gets several changes as one, from what it saw last to what is there now.
So what waits for it is bounded by the znodes there are, and it never gets a state that never
was.
"""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, Protocol
from weakref import ReferenceType, ref

from coordinator.client import AsyncClient, Client, ClientT, both, expect_client
from coordinator.recipes.cached_tree import CacheChange
from coordinator.recipes.waits import FOREVER, Timeout, wait_ms_of


class CacheUpdate(NamedTuple):
    """From one state of the cache to the next, which is that of ``zxid``; in the order of paths."""

    zxid: int
    changes: tuple[CacheChange, ...]


class CachedSource(Protocol):
    """The part of a cache that its readers use."""

    def state(self) -> tuple[int, asyncio.Event]:
        """Return the zxid of the copy, and what is set when it moves; raises why there is none."""


class Readers(Generic[ClientT]):
    """The readers of a cache that are still used: who drops one need not close it."""

    def __init__(self) -> None:
        self._all: dict[int, ReferenceType[CacheChanges[ClientT]]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, reader: CacheChanges[ClientT]) -> None:
        """Add one; in any thread."""
        number = id(reader)
        self._all[number] = ref(reader, lambda _: self._all.pop(number, None))

    def drop(self, reader: CacheChanges[ClientT]) -> None:
        """Take one away."""
        self._all.pop(id(reader), None)

    def note(self, changes: tuple[CacheChange, ...]) -> None:
        """Add what has changed to what waits for each."""
        for each in list(self._all.values()):  # a copy: threads begin to read, and end
            if (reader := each()) is not None:
                reader.note(changes)


class CacheChanges(Generic[ClientT]):
    """The updates of a cache, for ``for`` and ``async for``; they end with an error, if they do."""

    def __init__(self, client: ClientT, source: CachedSource, readers: Readers[ClientT]) -> None:
        self.client = client
        self._source = source
        self._readers = readers
        self._waiting: dict[str, CacheChange] = {}
        readers.add(self)

    @both
    async def next(self, timeout: Timeout = FOREVER) -> CacheUpdate | None:
        """Return the next update; None: there was none in time.

        Raises:
            UnavailableError, QuotaExceededError, NoAuthError: the cache has ended, and why.
        """
        wait_ms = wait_ms_of(timeout)
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                while True:
                    zxid, moved = self._source.state()
                    if self._waiting:
                        found, self._waiting = self._waiting, {}
                        return CacheUpdate(zxid, tuple([found[path] for path in sorted(found)]))
                    await moved.wait()
        except TimeoutError:
            return None

    @both
    async def close(self) -> None:
        """Listen no longer."""
        self._readers.drop(self)
        self._waiting.clear()

    def note(self, changes: tuple[CacheChange, ...]) -> None:
        """Add what has changed to what waits."""
        for each in changes:
            first = self._waiting.pop(each.path, each)
            if first.old != each.new:
                self._waiting[each.path] = CacheChange(each.path, first.old, each.new)

    def __iter__(self: CacheChanges[Client]) -> CacheChanges[Client]:
        expect_client(self.client, Client, "for")
        return self

    def __next__(self: CacheChanges[Client]) -> CacheUpdate:
        found = self.next()
        assert found is not None, "it waited without end"
        return found

    def __aiter__(self: CacheChanges[AsyncClient]) -> CacheChanges[AsyncClient]:
        expect_client(self.client, AsyncClient, "async for")
        return self

    async def __anext__(self: CacheChanges[AsyncClient]) -> CacheUpdate:
        found = await self.next()
        assert found is not None, "it waited without end"
        return found
