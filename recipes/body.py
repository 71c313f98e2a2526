"""The ``with`` and ``async with`` of every recipe whose body runs over one grant.

What they keep is said in ``holding``; here is only how the two statements come to it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Literal

from coordinator.client import AsyncClient, Client
from coordinator.client.hints import Contending
from coordinator.client.sync_and_async import ClientT, expect_face
from recipes.grant import Grant
from recipes.holding import Holding


class Body(Contending, Generic[ClientT]):
    """Base of a contender: it sets ``client``, ``_holding`` and ``_wait_ms``."""

    client: ClientT
    _holding: Holding[ClientT]
    _wait_ms: int | None
    """How long the statement waits: 0 tries once, None waits without end."""

    def __enter__(self: Body[Client]) -> Grant[Client]:
        expect_face(self.client, Client, "with")
        return self.client.call(self._holding.enter(self._wait_ms), self._holding.undo_enter)

    def __exit__(
        self: Body[Client],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        self.client.call(self._holding.leave(error))

    async def __aenter__(self: Body[AsyncClient]) -> Grant[AsyncClient]:
        expect_face(self.client, AsyncClient, "async with")
        grant = await self._holding.enter(self._wait_ms)
        self._holding.watch_over_task()
        return grant

    async def __aexit__(
        self: Body[AsyncClient],
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Literal[None]:
        await self._holding.leave(error)
