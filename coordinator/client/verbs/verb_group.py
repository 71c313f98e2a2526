"""The requests below every group of verbs: one that reads, one that writes, and pages."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from coordinator.client.calling.calls import Call, queried
from coordinator.client.running.process import OfOneProcess

T = TypeVar("T")


class ListPage(Protocol):
    """One page of a list; ``next`` is where the next one begins, None on the last."""

    @property
    def next(self) -> Any:
        """Where the next page begins, None on the last."""
        ...


PageT = TypeVar("PageT", bound=ListPage)


class VerbGroup(OfOneProcess):
    """Base of groups of verbs; the core brings ``_read`` and ``_write``."""

    def _read(self, call: Call, parse: Callable[[Any], T]) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def _write(
        self, call: Call, parse: Callable[[Any], T], timeout: float | None = None
    ) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def _in_time(self) -> AbstractContextManager[None]:
        """Return in what several calls are made that end within the client's timeout in all."""
        raise NotImplementedError

    async def _pages(
        self, target: str, query: Sequence[tuple[str, str]], parse: Callable[[Any], PageT]
    ) -> AsyncGenerator[PageT, None]:
        after: list[tuple[str, str]] = []
        while True:
            page = await self._read(Call("GET", target + queried([*query, *after])), parse)
            yield page
            if page.next is None:
                return
            after = [("after", str(page.next))]
