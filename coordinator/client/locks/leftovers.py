"""Clean-ups of earlier attempts and grants that are still under way, by queue and owner.

A release or a withdrawal that could not be delivered is retried in the background. Until it is done
its contender stays in the queue under the name of its owner, and a new attempt of the same owner
would be refused as one that waits for itself. So the new attempt waits for the old one to be gone.

Attempts under way are counted here too: where an owner has none, its contenders that do not hold
are left over. Safe to share between threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

_PAUSE_S_MIN = 0.05
_ANY = ("", "")
"""Means all queues and owners."""


class Leftovers:
    """The clean-ups under way, and the attempts; an owner without a name is not counted."""

    def __init__(self) -> None:
        self._contending: dict[tuple[str, str], int] = {}
        self._going: dict[tuple[str, str], set[asyncio.Task[Any]]] = {}
        self._releasing = 0
        """How many releases are under way that their own callers wait for."""
        self._releases: dict[tuple[str, str], int] = {}
        """The releases under way, by an owner in a queue."""
        self._released: dict[tuple[str, str], Future[None]] = {}
        """What is done when none of them is; made if an attempt waits for it."""
        self._guard = threading.Lock()
        self._wanted: dict[tuple[str, str], int] = {}
        """How many attempts wait until nothing is left of an owner in a queue."""
        self._hurry = asyncio.Event()
        """Set, for a moment, when one begins to wait."""

    def add(self, locks: Sequence[str], owner: str, task: asyncio.Task[Any]) -> None:
        """Count ``task`` as cleaning up after ``owner`` in these queues, until it is done."""
        for lock in locks if owner else ():
            key = (lock, owner)
            with self._guard:
                self._going.setdefault(key, set()).add(task)
            task.add_done_callback(partial(self._forget, key))

    def begin_release(self, locks: Sequence[str], owner: str) -> None:
        """Count a release of what ``owner`` has in these queues, until ``end_release``."""
        with self._guard:
            self._releasing += 1
            for lock in locks if owner else ():
                self._releases[lock, owner] = self._releases.get((lock, owner), 0) + 1

    def end_release(self, locks: Sequence[str], owner: str) -> None:
        """End the count of this release."""
        ended: list[tuple[str, str]] = []
        with self._guard:
            self._releasing -= 1
            if not self._releasing:
                ended.append(_ANY)
            for lock in locks if owner else ():
                count = self._releases.pop((lock, owner)) - 1
                if count:
                    self._releases[lock, owner] = count
                else:
                    ended.append((lock, owner))
            waited_for = [self._released.pop(key, None) for key in ended] if self._released else ()
        for each in waited_for:
            if each is not None:
                each.set_result(None)

    async def no_release(self, timeout_ms: int) -> None:
        """Wait until none is under way, for ``timeout_ms`` at most."""
        with self._guard:
            if not self._releasing:
                return
            released = self._released.setdefault(_ANY, Future())
        await asyncio.wait({asyncio.wrap_future(released)}, timeout=timeout_ms / 1000)

    def are_gone(self, locks: Sequence[str], owner: str) -> bool:
        """Whether nothing is left of ``owner`` here."""
        if not self._going and not self._releases:
            return True
        for lock in locks:
            if (lock, owner) in self._releases or (lock, owner) in self._going:
                return False
        return True

    async def gone(self, locks: Sequence[str], owner: str, timeout_ms: int) -> bool:
        """Wait until nothing is left of ``owner`` here; False when the time was not enough."""
        if self.are_gone(locks, owner):
            return True
        tasks: set[asyncio.Future[Any]] = set()
        with self._guard:
            for key in [(lock, owner) for lock in locks]:
                tasks.update(self._going.get(key, ()))
                if key in self._releases:
                    released = self._released.setdefault(key, Future())
                    tasks.add(asyncio.wrap_future(released))
        if not tasks:
            return True
        wanted = [(lock, owner) for lock in locks]
        for key in wanted:
            self._wanted[key] = self._wanted.get(key, 0) + 1
        self._hurry.set()
        self._hurry.clear()
        try:
            _, pending = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        finally:
            for key in wanted:
                if left := self._wanted.pop(key) - 1:
                    self._wanted[key] = left
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
                    await self._hurry.wait()

    def begin_attempt(self, queues: Sequence[str], owner: str) -> None:
        """Count an attempt of ``owner`` in these queues, until ``end_attempt``."""
        counts = self._contending
        with self._guard:
            for queue in queues:
                counts[queue, owner] = counts.get((queue, owner), 0) + 1

    def end_attempt(self, queues: Sequence[str], owner: str) -> None:
        """End the count of this attempt."""
        counts = self._contending
        with self._guard:
            for queue in queues:
                count = counts.pop((queue, owner)) - 1
                if count:
                    counts[queue, owner] = count

    def is_contending(self, queue: str, owner: str) -> bool:
        """Whether an attempt of ``owner`` is under way in this queue."""
        return (queue, owner) in self._contending

    def _forget(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        with self._guard:
            going = self._going.get(key, set())
            going.discard(task)
            if not going:
                self._going.pop(key, None)
