"""The taking of an item of a work queue by a worker; see ``coordinator.recipes.work_queue``.

An item is free if it has no child: neither the claim of a worker, nor a delay. One command checks
that, counts the attempt and makes the claim. A worker that finds nothing waits for its turn, a
lock, before it watches: so a new item wakes one worker, however many wait.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic

from coordinator.client import Check, ClientT, Create, SetData
from coordinator.errors import LockTimeoutError, NoNodeError
from coordinator.recipes.base.changes import until
from coordinator.recipes.base.ephemeral import make
from coordinator.recipes.base.maybe_there import read
from coordinator.recipes.lock import Lock
from coordinator.recipes.sharing.delivery import CLAIM, Delivery, WorkItem, to_dead
from coordinator.recipes.waits import FOREVER

_PAGE = 200


class Taking(Generic[ClientT]):
    """One take from the items below ``path``."""

    def __init__(self, client: ClientT, path: str, attempts_max: int) -> None:
        self.client = client
        self._path = path
        self._attempts_max = attempts_max
        self._taken: Delivery[ClientT] | None = None

    async def take(self, wait_ms: int | None) -> Delivery[ClientT] | None:
        """Return an item; cancelled, it gives back what it has."""
        try:
            found = await self._first_free()
            if found is None and wait_ms != 0:
                found = await self._wait_for_one(wait_ms)
            return found or self._taken  # which may have come in the instant when time was up
        except BaseException:
            if self._taken is not None:
                self._taken._keep_giving_back()
            raise

    async def _wait_for_one(self, wait_ms: int | None) -> Delivery[ClientT] | None:
        """Wait for the turn to look, then for an item."""
        core = self.client.core
        ends_ms = None if wait_ms is None else core.clock.monotonic_ms() + wait_ms
        turn = Lock(
            self.client,
            f"queue:{self._path.split('/')[2]}"[:200],
            owner="",
            label="the next to take",
            timeout=FOREVER if wait_ms is None else wait_ms / 1000,
            when_unsure="continue",
        )
        try:
            await turn._acquire()
        except LockTimeoutError:
            return None
        try:
            left_ms = None if ends_ms is None else max(0, ends_ms - core.clock.monotonic_ms())
            return await until(core, self._path, "subtree", self._first_free, left_ms)
        finally:
            core.background.start(turn._release(), f"the turn at {self._path} ends")

    async def _first_free(self) -> Delivery[ClientT] | None:
        """Return the first item that is free and due."""
        core, after = self.client.core, None
        while True:
            try:
                page = await core.children(self._path, after=after, limit=_PAGE, with_stat=True)
            except NoNodeError:
                return None
            free = [
                name
                for name, stat in zip(page.names, page.stats, strict=True)
                if stat.num_children == 0
            ]
            while free:
                name = free.pop(0)
                if (found := await self._claimed(name)) is not None:
                    return found
                core.delivery.random.shuffle(free)  # others are at the same ones
            if (after := page.next) is None:
                return None

    async def _claimed(self, name: str) -> Delivery[ClientT] | None:
        """Return the item if it is still free now."""
        core, path = self.client.core, f"{self._path}/{name}"
        if (znode := await read(core, path)) is None:
            return None
        stat, item = znode.stat, WorkItem.of(znode.data)
        is_free = Check(
            path, expected_version=stat.version, expected_czxid=stat.czxid, has_children=False
        )
        if item.attempts >= self._attempts_max:
            reason = item.reason or f"delivered {item.attempts} times, and never acknowledged"
            await core.guarded([is_free], then=to_dead(path, item.because(reason)))
            return None
        session = await core.session(core.time_left_ms() / 1000)
        before, item = item, replace(item, attempts=item.attempts + 1)
        claim = f"{path}/{CLAIM}"
        made = await make(
            core,
            session,
            claim,
            [is_free],
            [
                SetData(path, item.to_bytes()),
                Create(claim, b"", "ephemeral", session.session_id),
            ],
            undo=[SetData(path, before.to_bytes())],
        )
        if made is None:
            return None
        self._taken = Delivery(self.client, path, item, self._attempts_max, made)
        return self._taken
