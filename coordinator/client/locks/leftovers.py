"""Clean-ups of earlier attempts and grants that are still under way, by queue and owner.

A release or a withdrawal that could not be delivered is retried in the background. Until it is done
its contender stays in the queue under the name of its owner, and a new attempt of the same owner
would be refused as one that waits for itself. So the new attempt waits for the old one to be gone.

Attempts under way are counted here too: where an owner has none, its contenders that do not hold
are left over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any


class Leftovers:
    """The clean-ups under way, and the attempts; an owner without a name is not counted."""

    def __init__(self) -> None:
        self._contending: Counter[tuple[str, str]] = Counter()
        self._going: dict[tuple[str, str], set[asyncio.Task[Any]]] = {}

    def add(self, locks: Sequence[str], owner: str, task: asyncio.Task[Any]) -> None:
        """Count ``task`` as cleaning up after ``owner`` in these queues, until it is done."""
        for lock in locks if owner else ():
            key = (lock, owner)
            self._going.setdefault(key, set()).add(task)
            task.add_done_callback(partial(self._forget, key))

    async def gone(self, locks: Sequence[str], owner: str, timeout_ms: int) -> bool:
        """Wait until nothing is left of ``owner`` here; False when the time was not enough."""
        going = {task for lock in locks for task in self._going.get((lock, owner), ())}
        if not going:
            return True
        _, pending = await asyncio.wait(going, timeout=timeout_ms / 1000)
        return not pending

    @contextmanager
    def contending(self, queues: Sequence[str], owner: str) -> Iterator[None]:
        """Count an attempt of ``owner`` in these queues while the block runs."""
        keys = [(queue, owner) for queue in queues]
        self._contending.update(keys)
        try:
            yield
        finally:
            self._contending.subtract(keys)
            for key in keys:
                if not self._contending[key]:
                    del self._contending[key]

    def is_contending(self, queue: str, owner: str) -> bool:
        """Whether an attempt of ``owner`` is under way in this queue."""
        return (queue, owner) in self._contending

    def _forget(self, key: tuple[str, str], task: asyncio.Task[Any]) -> None:
        going = self._going.get(key, set())
        going.discard(task)
        if not going:
            self._going.pop(key, None)
