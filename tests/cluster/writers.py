"""Clients that write without pause, each beginning at another member, and how long they paused."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from coordinator import connect
from coordinator.errors import CoordinatorError, NodeExistsError
from tests.client.first_member import beginning_at

_GAP_S = 0.005


class Writers:
    """``with Writers(urls)``: at each member begin an asyncio client and one of threads."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._urls = list(urls)
        self._is_over = threading.Event()
        self.answered: dict[tuple[str, str], list[float]] = {}
        """When a write was answered, by the client's kind and first member."""
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=work, args=(url,), daemon=True)
            for url in self._urls
            for work in (self._write_in_thread, self._write_in_loop)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def wait(self) -> None:
        """Return when all have written."""
        end = time.monotonic() + 60
        while len(self.answered) < len(self._threads) or not all(self.answered.values()):
            assert time.monotonic() < end, f"all write: {self.errors[:3]}"
            time.sleep(0.01)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(30)

    def pauses_s(self, since: float) -> dict[tuple[str, str], float]:
        """Return for each client the longest time without an answer since then."""
        now = time.monotonic()
        return {
            name: max(
                after - before
                for before, after in itertools.pairwise(
                    [since, *(each for each in list(times) if each >= since), now]
                )
            )
            for name, times in self.answered.items()
        }

    def _write_in_thread(self, url: str) -> None:
        answered = self.answered.setdefault(("threads", url), [])
        with connect(self._urls, retry=beginning_at(url, self._urls)) as client:
            with suppress(NodeExistsError):
                client.create("/writers")
            while not self._is_over.is_set():
                try:
                    client.set("/writers", b"x")
                    answered.append(time.monotonic())
                except CoordinatorError as error:
                    self.errors.append(f"threads, {url}: {error!r}")
                time.sleep(_GAP_S)

    def _write_in_loop(self, url: str) -> None:
        asyncio.run(self._write_by_tasks(url))

    async def _write_by_tasks(self, url: str) -> None:
        answered = self.answered.setdefault(("asyncio", url), [])
        async with connect(self._urls, retry=beginning_at(url, self._urls)) as client:
            with suppress(NodeExistsError):
                await client.create("/writers")
            while not self._is_over.is_set():
                try:
                    await client.set("/writers", b"x")
                    answered.append(time.monotonic())
                except CoordinatorError as error:
                    self.errors.append(f"asyncio, {url}: {error!r}")
                await asyncio.sleep(_GAP_S)
