"""The clean-ups of earlier attempts and grants that are still under way, by owner.

A release or a withdrawal that could not be delivered is retried in the background. Until it is done
its contender stays in the queue under the name of its owner. A new attempt of the same owner in
that queue would be refused as one that waits for itself; one in another queue would look like an
owner that holds and waits, and so make a deadlock, of it or of others, where the old one goes by
itself. So a new attempt, in whichever queue, waits until the old one is gone.

A release that its own caller waits for is waited for in its own queue only: it matters to several
tasks of one owner, which else would wait for each other's releases all the time.

Attempts under way are counted here too: where an owner has none, its contenders that do not hold
are left over. All of it is in the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

_PAUSE_S_MIN = 0.05


class CleanUps:
    """The clean-ups under way, and the attempts; an owner without a name is not counted."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], int] = {}
        self._tasks: dict[str, set[asyncio.Task[Any]]] = {}
        """Those of an owner, in whichever queue."""
        self._releases_in_all = 0
        """How many releases are under way that their own callers wait for."""
        self._releases: dict[tuple[str, str], int] = {}
        """Those of an owner in a queue."""
        self._released: dict[tuple[str, str] | None, asyncio.Future[None]] = {}
        """Done when no release is under way; made when that is waited for. None: of any owner."""
        self._wanted: dict[str, int] = {}
        """How many attempts wait until nothing is left of an owner."""
        self._one_more_waits = asyncio.Event()
        """Set for a moment when an attempt begins to wait."""

    def add(self, owner: str, task: asyncio.Task[Any]) -> None:
        """Count ``task`` as cleaning up after ``owner``, until it is done."""
        if owner:
            self._tasks.setdefault(owner, set()).add(task)
            task.add_done_callback(partial(self._forget, owner))

    def begin_release(self, locks: Sequence[str], owner: str) -> None:
        """Count a release of what ``owner`` has in these queues, until ``end_release``."""
        self._releases_in_all += 1
        for lock in locks if owner else ():
            self._releases[lock, owner] = self._releases.get((lock, owner), 0) + 1

    def end_release(self, locks: Sequence[str], owner: str) -> None:
        """End the count of this release."""
        self._releases_in_all -= 1
        if not self._releases_in_all:
            self._note_released(None)
        for lock in locks if owner else ():
            key = (lock, owner)
            if left := self._releases.pop(key) - 1:
                self._releases[key] = left
            else:
                self._note_released(key)

    async def no_release(self, timeout_ms: int) -> None:
        """Wait until none is under way, for ``timeout_ms`` at most."""
        if self._releases_in_all:
            await asyncio.wait({self._end_of_releases(None)}, timeout=timeout_ms / 1000)

    def are_gone(self, locks: Sequence[str], owner: str) -> bool:
        """Whether nothing is left of ``owner`` for an attempt in these queues to wait for."""
        if not self._tasks and not self._releases:
            return True
        if owner in self._tasks:
            return False
        return not any((lock, owner) in self._releases for lock in locks)

    async def gone(self, locks: Sequence[str], owner: str, timeout_ms: int) -> bool:
        """Wait until ``are_gone``; False when the time was not enough."""
        left: set[asyncio.Future[Any]] = set(self._tasks.get(owner, ()))
        for lock in locks:
            if (lock, owner) in self._releases:
                left.add(self._end_of_releases((lock, owner)))
        if not left:
            return True
        self._wanted[owner] = self._wanted.get(owner, 0) + 1
        self._one_more_waits.set()
        self._one_more_waits.clear()
        try:
            _, pending = await asyncio.wait(left, timeout=timeout_ms / 1000)
        finally:
            if others := self._wanted.pop(owner) - 1:
                self._wanted[owner] = others
        return not pending

    async def pause(self, owner: str, pause_ms: int) -> None:
        """Let a clean-up wait before it tries again; not long while an attempt waits for it."""
        await asyncio.sleep(_PAUSE_S_MIN)
        ends_s = asyncio.get_running_loop().time() + pause_ms / 1000
        while owner not in self._wanted:
            left_s = ends_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._one_more_waits.wait()

    def begin_attempt(self, queues: Sequence[str], owner: str) -> None:
        """Count an attempt of ``owner`` in these queues, until ``end_attempt``."""
        counts = self._attempts
        for queue in queues:
            counts[queue, owner] = counts.get((queue, owner), 0) + 1

    def end_attempt(self, queues: Sequence[str], owner: str) -> None:
        """End the count of this attempt."""
        counts = self._attempts
        for queue in queues:
            if left := counts.pop((queue, owner)) - 1:
                counts[queue, owner] = left

    def is_contending(self, queue: str, owner: str) -> bool:
        """Whether an attempt of ``owner`` is under way in this queue."""
        return (queue, owner) in self._attempts

    def _end_of_releases(self, key: tuple[str, str] | None) -> asyncio.Future[None]:
        released = self._released.get(key)
        if released is None:
            released = self._released[key] = asyncio.get_running_loop().create_future()
        return released

    def _note_released(self, key: tuple[str, str] | None) -> None:
        if released := self._released.pop(key, None):
            released.set_result(None)

    def _forget(self, owner: str, task: asyncio.Task[Any]) -> None:
        tasks = self._tasks[owner]
        tasks.discard(task)
        if not tasks:
            del self._tasks[owner]
