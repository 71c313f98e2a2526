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
from functools import partial
from typing import Any, TypeAlias

CleaningUp: TypeAlias = "asyncio.Task[Any] | Future[Any]"
"""A task of the loop, or what a thread does itself."""


class Leftovers:
    """The clean-ups under way, and the attempts; an owner without a name is not counted."""

    def __init__(self) -> None:
        self._contending: dict[tuple[str, str], int] = {}
        self._going: dict[tuple[str, str], set[CleaningUp]] = {}
        self._guard = threading.Lock()

    def add(self, locks: Sequence[str], owner: str, task: CleaningUp) -> None:
        """Count ``task`` as cleaning up after ``owner`` in these queues, until it is done."""
        for lock in locks if owner else ():
            key = (lock, owner)
            with self._guard:
                self._going.setdefault(key, set()).add(task)
            task.add_done_callback(partial(self._forget, key))

    def are_gone(self, locks: Sequence[str], owner: str) -> bool:
        """Whether nothing is left of ``owner`` here."""
        return not any((lock, owner) in self._going for lock in locks)

    async def gone(self, locks: Sequence[str], owner: str, timeout_ms: int) -> bool:
        """Wait until nothing is left of ``owner`` here; False when the time was not enough."""
        with self._guard:
            going = {task for lock in locks for task in self._going.get((lock, owner), ())}
        if not going:
            return True
        tasks = {asyncio.wrap_future(e) if isinstance(e, Future) else e for e in going}
        _, pending = await asyncio.wait(tasks, timeout=timeout_ms / 1000)
        return not pending

    def begin_attempt(self, queues: Sequence[str], owner: str) -> None:
        """Count an attempt of ``owner`` in these queues, until ``end_attempt``."""
        counts = self._contending
        with self._guard:
            for queue in queues:
                counts[queue, owner] = counts.get((queue, owner), 0) + 1

    def end_attempt(self, queues: Sequence[str], owner: str) -> None:
        """Count it no more."""
        counts = self._contending
        with self._guard:
            for queue in queues:
                count = counts.pop((queue, owner)) - 1
                if count:
                    counts[queue, owner] = count

    def is_contending(self, queue: str, owner: str) -> bool:
        """Whether an attempt of ``owner`` is under way in this queue."""
        return (queue, owner) in self._contending

    def _forget(self, key: tuple[str, str], task: CleaningUp) -> None:
        with self._guard:
            going = self._going.get(key, set())
            going.discard(task)
            if not going:
                self._going.pop(key, None)
