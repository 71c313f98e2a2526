"""A loop that measures how long it is held, by the processor's clock of its own thread.

A pass of the loop is everything between two looks at its sockets: while it runs nothing is read,
no heartbeat is answered. Other threads and processes do not count; how fast the processor is at the
moment does, so it is compared with a fixed piece of work done in between.
"""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests import put_aside

T = TypeVar("T")

HELD_MS_MAX = 20.0
"""What a pass may take, on a processor that does the ``_fixed_work`` in its usual time."""
_USUAL_MS = 1.5
_REPETITIONS = 6


class MeteredLoop(asyncio.SelectorEventLoop):
    """Remembers its longest pass."""

    def __init__(self) -> None:
        super().__init__()
        self.longest_ms = 0.0
        self.after_pass: Callable[[], None] = lambda: None

    def _run_once(self) -> None:
        started = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_ms = max(self.longest_ms, (time.thread_time() - started) * 1_000)
        self.after_pass()


class Metered:
    """A metered loop in a thread of its own, so that who asks does not count."""

    def __init__(self) -> None:
        self.loop = MeteredLoop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, task: Coroutine[Any, Any, T]) -> T:
        """Run ``task`` in the loop; return what it returns."""
        return asyncio.run_coroutine_threadsafe(task, self.loop).result(60)

    def held_ms(self, act: Callable[[int], object]) -> float:
        """Return the longest pass while ``act(repetition)`` runs: the least of some repetitions,
        each in terms of a processor of the usual speed."""
        least = float("inf")
        for repetition in range(_REPETITIONS):
            self.run(_settled())
            gc.collect()
            gc.freeze()  # a large state is looked at once, not before each repetition
            before = _fixed_work_ms()
            self.loop.longest_ms = 0.0
            act(repetition)
            self.run(_settled())
            speed = max(1.0, (before + _fixed_work_ms()) / 2 / _USUAL_MS)
            least = min(least, self.loop.longest_ms / speed)
            if least <= HELD_MS_MAX:
                break
        return least

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


@contextmanager
def metered() -> Iterator[Metered]:
    """Run a metered loop for the length of a test."""
    running = Metered()
    try:
        yield running
    finally:
        running.close()
        put_aside.is_more = True


async def _settled() -> None:
    """Let what was begun in the loop come to its end."""
    for _ in range(50):
        await asyncio.sleep(0)


def fixed_work_speed() -> float:
    """Return how much longer than usual this processor takes now, at least 1."""
    return max(1.0, _fixed_work_ms() / _USUAL_MS)


def _fixed_work_ms() -> float:
    """Return how long this processor takes now for a piece of work like that of the loop."""
    started = time.thread_time()
    for _ in range(20):
        made = [{"path": f"/a/b-{number}", "numbers": (number, number + 1)} for number in range(80)]
        json.loads(json.dumps(made))
    return (time.thread_time() - started) * 1_000
