"""The clean-ups of earlier attempts and grants that are still under way, by queue and owner.

A release or a withdrawal that could not be delivered is retried in the background. Until it is done
its contender stays in the queue under the name of its owner, and a new attempt of the same owner
would be refused as one that waits for itself. So the new attempt waits until the old one is gone.

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
        self._tasks: dict[tuple[str, str], set[asyncio.Task[Any]]] = {}
        self._releases_in_all = 0
        """How many releases are under way that their own callers wait for."""
        self._releases: dict[tuple[str, str], int] = {}
        """Those of an owner in a queue."""
        self._released: dict[tuple[str, str] | None, asyncio.Future[None]] = {}
        """Done when no release is under way; made when that is waited for. None: of any owner."""
        self._wanted: dict[tuple[str, str], int] = {}
        """How many attempts wait until nothing is left of an owner in a queue."""
        self._one_more_waits = asyncio.Event()
        """Set for a moment when an attempt begins to wait."""

    def add(self, locks: Sequence[str], owner: str, task: asyncio.Task[Any]) -> None:
        """Count ``task`` as cleaning up after ``owner`` in these queues, until it is done."""
        for lock in locks if owner else ():
            key = (lock, owner)
            self._tasks.setdefault(key, set()).add(task)
            task.add_done_callback(partial(self._forget, key))

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
        """Whether nothing is left of ``owner`` here."""
        if not self._tasks and not self._releases:
            return True
        for lock in locks:
            if (lock, owner) in self._releases or (lock, owner) in self._tasks:
                return False
        return True

    async def gone(self, locks: Sequence[str], owner: str, timeout_ms: int) -> bool:
        """Wait until nothing is left of ``owner`` here; False when the time was not enough."""
        keys = [(lock, owner) for lock in locks]
        left: set[asyncio.Future[Any]] = set()
        for key in keys:
            left.update(self._tasks.get(key, ()))
            if key in self._releases:
                left.add(self._end_of_releases(key))
        if not left:
            return True
        for key in keys:
            self._wanted[key] = self._wanted.get(key, 0) + 1
        self._one_more_waits.set()
        self._one_more_waits.clear()
        try:
            _, pending = await asyncio.wait(left, timeout=timeout_ms / 1000)
        finally:
            for key in keys:
                if others := self._wanted.pop(key) - 1:
                    self._wanted[key] = others
        return not pending

    async def pause(self, locks: Sequence[str], owner: str, pause_ms: int) -> None:
        """Let a clean-up wait before it tries again; not long while an attempt waits for it."""
        await asyncio.sleep(_PAUSE_S_MIN)
        ends_s = asyncio.get_running_loop().time() + pause_ms / 1000
        while not any((lock, owner) in self._wanted for lock in locks):
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

    def _forget(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        tasks = self._tasks.get(key, set())
        tasks.discard(task)
        if not tasks:
            self._tasks.pop(key, None)
