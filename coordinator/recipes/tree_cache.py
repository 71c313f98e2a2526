"""A local copy of a subtree, kept true by one watch: reads without a request that say how old.

::

    with TreeCache(client, "/config") as cache:
        cache.get("/config/limits").data        # no request, less than a microsecond
        cache.as_of.age_s                       # it shows all that was acknowledged so long ago
        for update in cache.changes(): ...      # what was there and what is, znode by znode

1. What it shows is the tree as it was at ``as_of.zxid``, what this client may read and watch of it:
   all of a change or nothing, and never an older state after a newer one.
2. ``age_s`` is measured: every ``max_age / 3`` s a member is asked, linearizably, how far the
   cluster has come, and once the copy is there it is as old as the question. While no member
   answers, or the watch is cut off, it grows; beyond ``max_age`` ``is_stale`` says so.
3. A change costs no read: the watch brings it with its value. After a gap in what members still
   know, or when the rights of this client change, all is read again; the former state is shown,
   and gets older, until the new one is whole.
4. It holds at most ``bytes_max`` bytes. If the subtree grows beyond, or may not be read any more,
   each read raises why: a part would look like the whole.
"""

from __future__ import annotations

from typing import Generic, NamedTuple

from coordinator.client import AsyncClient, Client, ClientT, both, expect_client
from coordinator.errors import BadArgumentsError, UnavailableError
from coordinator.recipes.trees.cached_tree import CacheChanges, CachedZnode
from coordinator.recipes.trees.following import FollowedTree
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of

BYTES_MAX = 64 * 1024 * 1024


class AsOf(NamedTuple):
    """All that was acknowledged ``age_s`` seconds ago is in the copy, whose zxid is ``zxid``."""

    zxid: int
    age_s: float
    is_stale: bool


class TreeCache(Generic[ClientT]):
    """A copy of ``path`` and all below it; the path need not exist. ``max_age`` in seconds, 1 to
    3600: beyond it the copy counts as stale."""

    def __init__(
        self, client: ClientT, path: str, *, max_age: float = 10.0, bytes_max: int = BYTES_MAX
    ) -> None:
        if not 1 <= max_age <= 3_600:
            raise BadArgumentsError(f"max_age: expected 1 to 3600 s, found {max_age!r}")
        self.client = client
        self.path = path
        self._max_age_s = max_age
        self._following: FollowedTree[ClientT] = FollowedTree(
            path, int(max_age * 1000 / 3), bytes_max
        )

    # --- reads, without a request, in any thread

    def get(self, path: str) -> CachedZnode | None:
        """Return a znode, None if there is none.

        Raises:
            BadArgumentsError: ``path`` is not in the subtree.
            UnavailableError, QuotaExceededError, NoAuthError: there is no copy, and why.
            ClientClosedError: in a forked child, where it is not kept true.
        """
        tree = self._following.tree
        found = None if tree is None else tree.znodes.get(path)
        if found is None:
            self._following.covering(path)
        return found

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children of ``path`` in order, of those that may be read.

        Raises:
            All that ``get`` raises.
        """
        return self._following.covering(path).children(path)

    def walk(self, path: str | None = None) -> tuple[CachedZnode, ...]:
        """Return all znodes at and below ``path``, all of one zxid: parents first, then by name.

        Raises:
            All that ``get`` raises.
        """
        at = self.path if path is None else path
        return self._following.covering(at).walk(at)

    @property
    def as_of(self) -> AsOf:
        """How old the copy is. What is read after this is at least so new.

        Raises:
            All that ``get`` raises.
        """
        confirmed_ms, tree = self._following.confirmed_ms, self._following.covering(self.path)
        age_s = (self.client.core.clock.monotonic_ms() - confirmed_ms) / 1000
        return AsOf(tree.zxid, age_s, age_s > self._max_age_s)

    # --- waiting

    @both
    async def start(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> None:
        """Begin, and return when there is a copy to read; ``with`` does. Idempotent.

        Raises:
            UnavailableError: there was none in time; it has not begun.
            NoAuthError, QuotaExceededError: nothing there may be read; it is too much.
        """
        self._following.start(self.client.core)
        try:
            if not await self._following.until(lambda tree: True, wait_ms_of(timeout)):
                raise self._following.failure
        except BaseException:
            await self._following.stop()
            raise

    @both
    async def close(self) -> None:
        """Stop, and forget the copy. Idempotent."""
        await self._following.stop()

    @both
    async def wait_for(self, zxid: int, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait until the copy shows the change ``zxid``; False when it did not in time.

        Raises:
            All that ``get`` raises.
        """
        return await self._following.until(lambda tree: tree.zxid >= zxid, wait_ms_of(timeout))

    @both
    async def sync(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> int:
        """Wait until the copy shows all that was acknowledged before this call; return its zxid.

        Raises:
            UnavailableError: it was not so in time, and all that ``get`` raises.
        """
        self._following.covering(self.path)
        zxid = await self._following.confirm(self.client.core, wait_ms_of(timeout))
        if zxid is None:
            raise UnavailableError(
                f"the cache of {self.path} is behind, and got no further in time; wait longer"
            )
        return zxid

    def changes(self) -> CacheChanges[ClientT]:
        """Return a stream of how the copy changes from now on, for ``for`` and ``async for``.

        Raises:
            Nothing.
        """
        return CacheChanges(self.client, self._following, self._following.readers)

    def __enter__(self: TreeCache[Client]) -> TreeCache[Client]:
        expect_client(self.client, Client, "with")
        self.start()
        return self

    def __exit__(self: TreeCache[Client], *_exception: object) -> None:
        self.close()

    async def __aenter__(self: TreeCache[AsyncClient]) -> TreeCache[AsyncClient]:
        expect_client(self.client, AsyncClient, "async with")
        await self.start()
        return self

    async def __aexit__(self: TreeCache[AsyncClient], *_exception: object) -> None:
        await self.close()
