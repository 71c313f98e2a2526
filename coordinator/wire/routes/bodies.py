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

from coordinator.errors import ThrottledError

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


def is_light(size: int) -> bool:
    """Whether work on a body of ``size`` bytes may be done on the loop."""
    return size <= _IN_PLACE_BYTES_MAX


class BodyBytes:
    """The bytes of bodies that a member holds, by client: come in part, or waiting to be read.

    1. All together are at most ``bytes_max``.
    2. A client holds at most as much as is still free, or one body (``body_bytes_max``). So one
       takes half, the next half of the rest: no single one leaves no room to others.
    """

    def __init__(self, bytes_max: int, body_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._body_bytes_max = body_bytes_max
        self._by_client: dict[str, int] = {}
        self.total = 0

    def take(self, client: str, count: int) -> None:
        """Count ``count`` bytes that are held for ``client`` from now on.

        Raises:
            ThrottledError: they would be too many; they are not counted."""
        held = self._by_client.get(client, 0) + count
        free = self._bytes_max - self.total - count
        if free < 0:
            raise ThrottledError(
                f"expected at most {self._bytes_max} bytes of bodies that have come in part or "
                f"wait to be decoded (http.bodies_bytes_max), found {self.total} and {count} more; "
                "nothing was done, try again or at another member"
            )
        if held > (most := max(free, self._body_bytes_max)):
            raise ThrottledError(
                f"expected at most {most} bytes of bodies of one client "
                f"({client or 'this process'}) beside those of others (http.bodies_bytes_max), "
                f"found {held - count} and {count} more; nothing was done, try again or at another "
                "member"
            )
        self._by_client[client] = held
        self.total += count

    def give_back(self, client: str, count: int) -> None:
        """Count ``count`` bytes of ``client`` no more."""
        self.total -= count
        held = self._by_client.get(client, 0) - count
        if held > 0:
            self._by_client[client] = held
        else:
            self._by_client.pop(client, None)


class PartialBytes:
    """The bytes of a frame in part that one connection holds of them."""

    def __init__(self, held: BodyBytes) -> None:
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

    def __init__(self, held: BodyBytes) -> None:
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
