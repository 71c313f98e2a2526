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
from typing import TypeVar

from coordinator.errors import ThrottledError

Done = TypeVar("Done")

_IN_PLACE_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """How large a body a route takes (``body_bytes_max`` bounds all), and of how many values."""

    bytes_max: int
    items_max: int


SMALL = BodyBounds(64 * 1024, 2_000)
"""Of every route that does not say otherwise: it takes a few fields."""
DATA = BodyBounds(sys.maxsize, 2_000)
"""Of a route that takes the data of one znode."""
MANY = BodyBounds(sys.maxsize, 50_000)
"""Of a route that takes many operations or selectors."""


def is_light(size: int) -> bool:
    """Whether work on a body of ``size`` bytes may be done on the loop."""
    return size <= _IN_PLACE_BYTES_MAX


class HeavyWork:
    """Work on large bodies, off the loop.

    In one thread for all: it takes turns with the loop, and several would take several turns. What
    waits for it is held in memory, so its bytes are bounded by ``bytes_max``."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting_bytes = 0
        self._thread: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], Done], size: int) -> Done:
        """Return what ``work`` on a body of ``size`` bytes comes to.

        Raises:
            ThrottledError: with it too many bytes would wait; nothing was done.
        """
        if self._waiting_bytes and self._waiting_bytes + size > self._bytes_max:
            raise ThrottledError(
                f"expected at most {self._bytes_max} bytes of bodies that wait to be decoded "
                f"(http.bodies_bytes_max), found {self._waiting_bytes} and {size} more; nothing "
                "was done, try again or at another member"
            )
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")
        self._waiting_bytes += size
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting_bytes -= size

    def close(self) -> None:
        """Take no more work. Idempotent."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)
