"""A copy of a subtree at one zxid, the changes that move it to the next one, and its readers.

1. A change is applied whole. Readers in other threads take no lock, for a signal handler may come
   in between that waits for the loop: all that a change sets, and what it takes away as None, goes
   into the dict in one step of the interpreter, and is read in one.
2. ``zxid`` moves after the znodes. So what is read after it is at least as new as it says.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol
from weakref import ReferenceType, ref

from coordinator.client import (
    AsyncClient,
    Change,
    Client,
    ClientT,
    Event,
    Znode,
    both,
    expect_client,
)
from coordinator.errors import QuotaExceededError
from coordinator.recipes.waits import FOREVER, Timeout, wait_ms_of

_ZNODE_BYTES = 700
"""Roughly what a znode takes in memory besides its path and its data."""


class CachedZnode(NamedTuple):
    """A znode as the cache has it; ``mtime_ms`` is by the clock of a member of the cluster."""

    path: str
    data: bytes
    version: int
    czxid: int
    mzxid: int
    mtime_ms: int
    ephemeral_owner: str | None

    @classmethod
    def of(cls, znode: Znode) -> CachedZnode:
        """Return a znode that was read."""
        stat = znode.stat
        return cls(
            znode.path, znode.data, stat.version, stat.czxid, stat.mzxid, stat.mtime_ms,
            stat.ephemeral_owner,
        )  # fmt: skip


class CacheChange(NamedTuple):
    """One znode before and after; None: it was not there, or is not any more."""

    path: str
    old: CachedZnode | None
    new: CachedZnode | None


class CachedTree:
    """The znodes at and below ``root``, at most about ``bytes_max`` bytes of memory."""

    def __init__(self, root: str, zxid: int, bytes_max: int) -> None:
        self.root = root
        self.zxid = zxid
        self.bytes_count = 0
        self.znodes: dict[str, CachedZnode | None] = {}
        """The znodes by path; None for one that is just being removed."""
        self._bytes_max = bytes_max
        self._children: dict[str, list[str]] = {}
        """The paths of the children by parent, in order."""
        self._below = "/" if root == "/" else f"{root}/"

    def covers(self, path: str) -> bool:
        """Whether ``path`` is at or below the root."""
        return path == self.root or path.startswith(self._below)

    def add(self, znodes: Iterable[Znode]) -> None:
        """Add znodes that were read; raises QuotaExceededError."""
        self._put({each.path: CachedZnode.of(each) for each in znodes})

    def apply(self, change: Change) -> tuple[CacheChange, ...]:
        """Move to the zxid of ``change``; return how each znode differs, in the order of paths.

        Raises:
            QuotaExceededError: there would be more than may be; nothing was applied.
        """
        delta: dict[str, CachedZnode | None] = {}
        for event in change.events:
            if not event.is_withheld:
                delta[event.path] = _after(event, change)
        changes = self._put(delta) if delta else ()
        self.zxid = change.zxid
        return changes

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children that are here, in order."""
        paths = list(self._children.get(path, ()))  # one step
        return tuple([each.rpartition("/")[2] for each in paths])

    def walk(self, path: str) -> tuple[CachedZnode, ...]:
        """Return the znodes at and below ``path``, all of one zxid: parents first, then by name."""
        znodes = list(self.znodes.values())  # one step: all of one zxid
        found = [each for each in znodes if each is not None]
        below = "/" if path == "/" else f"{path}/"
        return tuple(
            sorted(
                [each for each in found if each.path == path or each.path.startswith(below)],
                key=lambda each: each.path.split("/") if each.path != "/" else [],
            )
        )

    def difference(self, other: CachedTree) -> tuple[CacheChange, ...]:
        """Return how ``other``, which is newer, differs."""
        paths = sorted({*self.znodes, *other.znodes})
        pairs = [(each, self.znodes.get(each), other.znodes.get(each)) for each in paths]
        return tuple([CacheChange(*each) for each in pairs if each[1] != each[2]])

    def _put(self, delta: dict[str, CachedZnode | None]) -> tuple[CacheChange, ...]:
        pairs = [(path, self.znodes.get(path), delta[path]) for path in sorted(delta)]
        changes = tuple([CacheChange(*each) for each in pairs if each[1] != each[2]])
        grown = sum([_bytes(each.new) - _bytes(each.old) for each in changes])
        if grown > 0 and self.bytes_count + grown > self._bytes_max:
            raise QuotaExceededError(
                f"cache of {self.root}: expected at most {self._bytes_max} bytes, found "
                f"{self.bytes_count + grown}; cache less, or give it a larger bytes_max"
            )
        self.znodes.update(delta)
        self._list([each for each in changes if (each.old is None) != (each.new is None)])
        for path in [each for each in delta if delta[each] is None]:
            del self.znodes[path]
        self.bytes_count += grown
        return changes

    def _list(self, changes: list[CacheChange]) -> None:
        """Add the paths that are new to the children of their parents, take away what is not."""
        by_parent: dict[str, list[CacheChange]] = {}
        for each in changes:
            if each.path != "/":
                parent = each.path[: each.path.rindex("/")] or "/"
                by_parent.setdefault(parent, []).append(each)
        for parent, some in by_parent.items():
            names = self._children.get(parent, [])
            if len(some) > 1:
                names = names.copy()  # so that no reader sees only some of them
            for each in some:
                at = bisect_left(names, each.path)
                if each.new is None:
                    del names[at]
                else:
                    names.insert(at, each.path)
            if names:
                self._children[parent] = names
            else:
                self._children.pop(parent, None)


def _after(event: Event, change: Change) -> CachedZnode | None:
    if event.data is None:
        return None
    return CachedZnode(
        event.path, event.data, event.version, event.czxid, change.zxid, change.wall_ms,
        event.ephemeral_owner,
    )  # fmt: skip


def _bytes(znode: CachedZnode | None) -> int:
    return 0 if znode is None else _ZNODE_BYTES + 2 * len(znode.path) + len(znode.data)


class CacheUpdate(NamedTuple):
    """From one state of the cache to the next, which is that of ``zxid``; in the order of paths."""

    zxid: int
    changes: tuple[CacheChange, ...]


class CachedSource(Protocol):
    """The part of a cache that its readers use."""

    def state(self) -> tuple[int, asyncio.Event]:
        """Return the zxid of the copy, and what is set when it moves; raises why there is none."""


class Readers(Generic[ClientT]):
    """The readers of a cache that are still used; a dropped one need not be closed."""

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
    """The updates of a cache, for ``for`` and ``async for``; they end with an error, if they do.

    A slow reader gets several changes as one, from what it saw last to what is there now. So what
    waits for it is bounded by the number of znodes, and every state that it gets has been.
    """

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
