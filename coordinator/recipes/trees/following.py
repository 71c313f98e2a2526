"""The follower of a cached subtree: it reads all, follows the watch, and knows its age.

All of it runs in the loop of the client; ``tree`` and ``confirmed_ms`` are read in any thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from coordinator.client import AsyncClient, ClientT
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    CompactedError,
    CoordinatorError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.recipes.trees.cached_tree import CacheChange, CachedTree, Readers

_BOOKMARK_MS_MAX = 1_000


class FollowedTree(Generic[ClientT]):
    """The copy of ``path``, confirmed every ``confirm_ms``; at most ``bytes_max`` bytes."""

    def __init__(self, path: str, confirm_ms: int, bytes_max: int) -> None:
        self.path = path
        self._tree: CachedTree | None = None
        self._core: AsyncClient | None = None
        self.confirmed_ms = 0
        """What was acknowledged at this time of the client's clock is in the copy."""
        self.failure: CoordinatorError = UnavailableError(f"the cache of {path} has not begun")
        self.readers: Readers[ClientT] = Readers()
        self._confirm_ms = confirm_ms
        self._bytes_max = bytes_max
        self._tasks: list[asyncio.Task[None]] = []
        self._moved = asyncio.Event()
        self._is_over = False
        """Whether it has ended without ``close``."""

    @property
    def tree(self) -> CachedTree | None:
        """The copy; None: there is none, and ``failure`` says why.

        Raises:
            ClientClosedError: in a forked child, where it is not kept true.
        """
        if self._core is not None:
            self._core.own_loop.process.check()
        return self._tree

    def start(self, core: AsyncClient) -> None:
        """Begin, if it has not begun."""
        if not self._tasks:
            self._core = core
            self.failure = UnavailableError(f"the cache of {self.path} has read nothing yet")
            self._is_over = False
            self._tasks = [
                asyncio.create_task(each) for each in (self._follow(core), self._confirm(core))
            ]

    async def stop(self) -> None:
        """End, and forget the copy; ``failure`` stays as it is if the following ended before."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        if tasks:
            if not self._is_over:
                self._fail(ClientClosedError(f"the cache of {self.path} was closed"))
            await asyncio.wait(tasks)

    def covering(self, path: str) -> CachedTree:
        """Return the copy.

        Raises:
            BadArgumentsError: ``path`` is not in it.
            CoordinatorError: there is none.
        """
        tree = self.tree
        if tree is None:
            raise self.failure.with_traceback(None)
        if not tree.covers(path):
            raise BadArgumentsError(f"path: expected one in {self.path}, found {path!r:.200}")
        return tree

    def state(self) -> tuple[int, asyncio.Event]:
        """Return the zxid of the copy, and what is set when it moves; raises why there is none."""
        return self.covering(self.path).zxid, self._moved

    async def until(self, is_so: Callable[[CachedTree], bool], wait_ms: int | None) -> bool:
        """Wait until there is a copy of which ``is_so``; False if not in time; raises why never."""
        try:
            async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                while True:
                    moved, tree = self._moved, self.tree
                    if tree is not None and is_so(tree):
                        return True
                    if self._is_over or not self._tasks:
                        raise self.failure.with_traceback(None)
                    await moved.wait()
        except TimeoutError:
            return False

    async def confirm(self, core: AsyncClient, wait_ms: int | None) -> int | None:
        """Wait until the copy shows all that was acknowledged before this call; return its zxid.

        None if not in time. From then on the copy is as old as this call."""
        asked_ms = core.clock.monotonic_ms()
        try:
            async with asyncio.timeout(wait_ms / 1000 if wait_ms else None) as scope:
                zxid = (await core.subtree(self.path, limit=0)).zxid
                if not await self.until(
                    lambda tree: tree.zxid >= zxid, 0 if wait_ms == 0 else None
                ):
                    return None
        except TimeoutError:
            if not scope.expired():
                raise
            return None
        self.confirmed_ms = max(self.confirmed_ms, asked_ms)
        return zxid

    async def _follow(self, core: AsyncClient) -> None:
        failures = 0
        while True:
            try:
                await self._copy(core)
            except CompactedError:
                failures = 0  # read again at once
            except ClientClosedError as error:
                return self._fail(error)
            except (UnavailableError, OutcomeUnknownError):
                failures += 1
                await core.wait(core.retry_delay_ms(failures))
            except CoordinatorError as error:
                return self._fail(error)

    async def _copy(self, core: AsyncClient) -> None:
        """Read all, then follow the watch; never returns.

        Pages are of different zxids. With the changes between the first and the last one applied,
        each with its value, what was read is the tree at the last: a znode that did not change
        between was the same in all pages."""
        asked_ms = core.clock.monotonic_ms()
        page = await core.subtree(self.path)
        tree = CachedTree(self.path, page.zxid, self._bytes_max)
        tree.add(page.znodes)
        while page.next is not None:
            page = await core.subtree(self.path, after=page.next)
            tree.add(page.znodes)
        changes = core.watch(
            self.path,
            kind="subtree",
            values=True,
            from_zxid=tree.zxid,
            bookmark_ms=min(self._confirm_ms, _BOOKMARK_MS_MAX),
        )
        async with changes:
            while tree.zxid < page.zxid:
                tree.apply(await anext(changes))
            before, self._tree = self._tree, tree
            self.confirmed_ms = max(self.confirmed_ms, asked_ms)
            self._notify(() if before is None else before.difference(tree))
            async for change in changes:
                self._notify(tree.apply(change))

    async def _confirm(self, core: AsyncClient) -> None:
        """Ask again and again how far the cluster has come: the copy is as old as the question."""
        failures = 0
        while True:
            try:
                await self.confirm(core, None)
                failures = 0
                await core.wait(self._confirm_ms)
            except ClientClosedError:
                return
            except CoordinatorError:
                if self._is_over:
                    return
                failures += 1  # and ``_follow`` finds out what it means
                await core.wait(core.retry_delay_ms(failures))

    def _notify(self, changes: tuple[CacheChange, ...]) -> None:
        """Let all know that the copy has moved."""
        self.readers.note(changes)
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _fail(self, error: CoordinatorError) -> None:
        self._tree, self.failure, self._is_over = None, error, True
        self._wake()
