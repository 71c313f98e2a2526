"""Bodies of requests: how large each route takes them, and where large ones are decoded.

The loop that answers requests carries Raft, too. So each route bounds the bytes and the values of
its body before a value is made of it, and what takes longer than a moment is done in a thread.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from coordinator.service.base.places import SharedPlaces

Done = TypeVar("Done")

_IN_PLACE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """How large a body a route takes (``body_bytes_max`` bounds all), and of how many values."""

    bytes_max: int
    items_max: int


SMALL = BodyBounds(64 * 1024, 2_000)
"""The limit of every route that does not say otherwise: it takes a few fields."""
DATA = BodyBounds(sys.maxsize, 2_000)
"""The limit of a route that takes the data of one znode."""
MANY = BodyBounds(sys.maxsize, 50_000)
"""The limit of a route that takes many operations or selectors."""


def body_places(bytes_max: int, body_bytes_max: int) -> SharedPlaces:
    """Return the bytes of bodies that a member holds: come in part, or waiting to be read. Every
    client may hold one body."""
    what = "bytes of bodies that have come in part or wait to be decoded"
    return SharedPlaces(bytes_max, what, "http.bodies_bytes_max", body_bytes_max)


def is_light(size: int) -> bool:
    """Whether work on a body of ``size`` bytes may be done on the loop."""
    return size <= _IN_PLACE_BYTES_MAX


class PartialBytes:
    """The bytes of a frame in part that one connection holds."""

    def __init__(self, held: SharedPlaces) -> None:
        self._held = held
        self._client = ""
        self._count = 0

    def hold(self, client: str, count: int) -> None:
        """Hold ``count`` now, instead of what it held.

        Raises:
            ThrottledError: they are too many; it holds none."""
        if count != self._count:
            self._held.give_back(self._client, self._count)
            self._count = 0
            if count:
                self._held.take(client, count)
                self._client, self._count = client, count


class _Due(Generic[Done]):
    """Work that waits for the thread, which keeps it in its queue though nobody waits any more."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Done]) -> None:
        self.work = work

    def __call__(self) -> Done:
        return self.work()


def _dropped() -> NoReturn:
    raise AssertionError("nobody waits for it")


class HeavyWork:
    """Work on large bodies, off the loop.

    In one thread for all: it takes turns with the loop, and several would take several turns. What
    waits for it is held in memory, and counted as such."""

    def __init__(self, held: SharedPlaces) -> None:
        self._held = held
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Done], size: int, client: str) -> Done:
        """Return what ``work`` on a body of ``size`` bytes comes to.

        Raises:
            ThrottledError: with it too many bytes would wait, in all or of ``client``; nothing was
                done.
        """
        self._held.take(client, size)
        due = _Due(work)
        try:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")
            return await asyncio.get_running_loop().run_in_executor(self._thread, due)
        finally:
            due.work = _dropped
            self._held.give_back(client, size)

    def close(self) -> None:
        """Take no more work. Idempotent."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
