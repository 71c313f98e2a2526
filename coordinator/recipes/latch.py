"""A latch that is open once so many have counted down, each of them once.

::

    latch = Latch(client, "import-2026-01", 3)
    latch.count_down("part-2")             # 2 are left; the same part again changes nothing
    latch.wait(timeout=3600)               # True once all three have

1. Each count is a znode, so who counted is there to be read. A count with a name (of the part that
   is done) counts once, however often it is repeated, also by another process after a crash. A
   count without one is done once for each call, also if its answer was lost on the way.
2. The first client to use the latch sets how many; others that name another number are refused.
3. It opens once. ``reset`` makes a new one of the same name.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Generic

from coordinator.client import Check, ClientT, Conditions, Create, Delete, Operation, Read, both
from coordinator.errors import (
    BadArgumentsError,
    NodeExistsError,
    NoNodeError,
    QuotaExceededError,
)
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.maybe_there import drop, read
from coordinator.recipes.base.names import checked_count, name_of, path_of, segment_of
from coordinator.recipes.waits import DEFAULT_TIMEOUT_S, Timeout, wait_ms_of

ROOT = "/latches"
COUNT_MAX = 10_000
_FORGOTTEN_AT_ONCE = 500


class Latch(Generic[ClientT]):
    """The latch ``name``, which opens after ``count`` counts, 1 to 10,000."""

    def __init__(self, client: ClientT, name: str | int, count: int) -> None:
        self.client = client
        self.name = name_of(name)
        self.count = checked_count("count", count, COUNT_MAX)
        self._path = path_of(ROOT, name)

    @both
    async def count_down(self, part: str | int | None = None, *, if_held: Conditions = None) -> int:
        """Count once, or once for each ``part``; return how many are left.

        Raises:
            BadArgumentsError: the latch has another count, or its znode is no latch.
            LockLostError: a grant of ``if_held`` does not hold; it was not counted.
            UnavailableError, OutcomeUnknownError: it was not counted; it may have been. With a
                ``part`` it may be repeated.
        """
        there = Create(f"{self._path}/count-", mode="persistent_sequential")
        if part is not None:
            there = Create(f"{self._path}/part-{segment_of(part, 'part')}")
        core = self.client.core
        while (left := await self._left()) != 0:
            make: list[Operation] = [there]
            if left is None:
                make = [Create(self._path, str(self.count).encode(), parents="persistent"), there]
            is_new = Check(self._path, exists=left is not None)
            try:
                # What is left is read in the same command: if it were asked for afterwards, an
                # error would say that nothing was counted.
                reply = await core.guarded(
                    [is_new], then=[*make, Read(self._path)], if_held=if_held
                )
            except NodeExistsError:
                return left or 0  # this part was counted before
            if reply.branch == "then":
                stat = reply.results[-1].stat
                assert stat is not None, "it is there"
                return max(0, self.count - stat.num_children)
        return 0

    @both
    async def left(self) -> int:
        """Return how many are left to count: the past when it is read.

        Raises:
            BadArgumentsError: the latch has another count, or its znode is no latch.
            UnavailableError: no member answered in time.
        """
        left = await self._left()
        return self.count if left is None else left

    @both
    async def wait(self, timeout: Timeout = DEFAULT_TIMEOUT_S) -> bool:
        """Wait until nothing is left; False when there was in time.

        Raises:
            BadArgumentsError: the latch has another count, or its znode is no latch.
            UnavailableError: no member answered at the end of the time.
        """

        async def look() -> bool | None:
            return True if await self._left() == 0 else None

        core = self.client.core
        return await until(core, self._path, "children", look, wait_ms_of(timeout)) is True

    @both
    async def reset(self, *, if_held: Conditions = None) -> bool:
        """Forget all counts, so that it may be used again; False when there were none.

        One command forgets up to some 1,000 counts. More take several, so that after an error some
        may be forgotten: call it again.

        Raises:
            LockLostError: a grant of ``if_held`` does not hold; nothing was forgotten.
            UnavailableError, OutcomeUnknownError: nothing was forgotten; it may have been.
        """
        core, was_there = self.client.core, False
        while True:
            try:
                dropped = await drop(core, self._path, recursive=True, if_held=if_held)
                return dropped or was_there
            except QuotaExceededError:  # more znodes than one command deletes
                was_there = True
            with suppress(NoNodeError):  # another client forgets them, too
                names = (await core.children(self._path, limit=_FORGOTTEN_AT_ONCE)).names
                some = [Delete(f"{self._path}/{each}") for each in names]
                await core.multi(some, if_held=if_held)

    async def _left(self) -> int | None:
        """Return how many are left, None if the latch is not there yet."""
        znode = await read(self.client.core, self._path)
        if znode is None:
            return None
        if znode.data != str(self.count).encode():
            raise BadArgumentsError(
                f"{self._path}: expected a Latch of {self.count}, found {znode.data[:60]!r}"
            )
        return max(0, self.count - znode.stat.num_children)
