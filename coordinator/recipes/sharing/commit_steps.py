"""The steps of a commit log at the cluster, each one guarded command."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from coordinator.client import AsyncClient, Check, Create, Delete, Operation, Read, SetData
from coordinator.errors import NoNodeError, ThrottledError, TooManyRetriesError
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.base.names import name_of, path_of
from coordinator.recipes.locks.grant import Grant
from coordinator.recipes.sharing.commit_record import Transaction

ROOT = "/commit-logs"
NAME_CHARACTERS_MAX = 150
UNFINISHED_MAX = 200
"""Transactions that wait for sites; then a log takes no more."""
_DROPPED_MAX = 50
"""Finished transactions that one command drops."""
_CONFLICTS_MAX = 100


class CommitSteps:
    """Reads and writes the transactions of the log ``name``."""

    def __init__(self, client: Any, name: str | int) -> None:
        self._client = client
        self.name = name_of(name)
        self.path = path_of(ROOT, name, characters_max=NAME_CHARACTERS_MAX)

    def path_of(self, key: str | int) -> str:
        """Return the znode of the transaction ``key``.

        Raises:
            BadArgumentsError: the key is empty, too long, or no text.
        """
        return path_of(self.path, key, "key", NAME_CHARACTERS_MAX)

    async def read(self, key: str | int) -> Transaction | None:
        """Return the transaction; None when the log does not have it (any more)."""
        path = self.path_of(key)
        if (znode := await read(self._core, path)) is None:
            return None
        return Transaction.of(path, znode.data, znode.stat.czxid, znode.stat.version)

    async def read_all(self) -> list[Transaction]:
        """Return all transactions of the log, in the order in which they began."""
        found: list[Transaction] = []
        after: str | None = None
        while True:
            page = await self._core.subtree(self.path, after=after)
            for znode in page.znodes:
                if znode.path != self.path:
                    stat = znode.stat
                    found.append(Transaction.of(znode.path, znode.data, stat.czxid, stat.version))
            if (after := page.next) is None:
                return sorted(found, key=lambda each: each.number)

    async def begin(
        self, new: Transaction, known: list[Transaction], keep: int, grant: Grant[Any]
    ) -> None:
        """Write ``new``, and drop the oldest finished ones above ``keep``, if the lock is held.

        Raises:
            ThrottledError: too many wait for their sites; nothing was begun.
            LockLostError: the lock is not held; nothing was begun.
        """
        finished = [each for each in known if each.is_finished]
        unfinished = [each for each in known if not each.is_finished]
        if len(unfinished) >= UNFINISHED_MAX:
            oldest = unfinished[0]
            slow = [site for site, state in oldest.sites.items() if state in ("preparing", "yes")]
            raise ThrottledError(
                f"{self.path}: expected fewer than {UNFINISHED_MAX} transactions that wait for "
                f"their sites, found {len(unfinished)}; the oldest, {oldest.key!r}, waits for "
                f"{', '.join(slow)}. Nothing was begun",
                path=self.path,
            )
        path = self.path_of(new.key)
        operations: list[Operation] = [Create(path, new.to_bytes(), parents="persistent")]
        old = finished[: max(0, len(finished) + 1 - keep)]
        operations += [
            Delete(self.path_of(each.key), each.version, each.number) for each in old[:_DROPPED_MAX]
        ]
        await self._core.multi(operations, if_held=grant)

    async def change(
        self,
        seen: Transaction,
        step: Callable[[Transaction], Transaction],
        grant: Grant[Any] | None = None,
    ) -> Transaction:
        """Take ``step`` from what the transaction is now; return it after that.

        Raises:
            NoNodeError: the log does not have this transaction any more.
            LockLostError: ``grant`` does not hold; nothing was changed.
            TooManyRetriesError: others were first, a hundred times in a row; nothing was changed.
        """
        path = self.path_of(seen.key)
        for failures in range(_CONFLICTS_MAX):
            after = step(seen)
            if after == seen:
                return seen
            is_same = Check(path, expected_version=seen.version, expected_czxid=seen.number)
            data = after.to_bytes()
            reply = await self._core.guarded(
                [is_same], then=[SetData(path, data)], otherwise=[Read(path)], if_held=grant
            )
            result = reply.results[0]
            stat = result.stat
            if stat is None or stat.czxid != seen.number:
                raise NoNodeError(
                    f"{path}: expected transaction {seen.number}, found it dropped", path=path
                )
            now = data if reply.branch == "then" else result.data
            seen = Transaction.of(path, now, stat.czxid, stat.version)
            if reply.branch == "then":
                return seen
            if failures > 0:
                await asyncio.sleep(self._core.retry_delay_ms(1) / 1000)
        raise TooManyRetriesError(
            f"{path}: expected to be first once, found another in {_CONFLICTS_MAX} tries; "
            f"nothing was changed",
            path=path,
            tries=_CONFLICTS_MAX,
        )

    @property
    def _core(self) -> AsyncClient:
        core: AsyncClient = self._client.core
        return core
