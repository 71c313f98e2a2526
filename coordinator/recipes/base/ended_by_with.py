"""The ``with`` of what exists before it, such as a delivery, and ends with the body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self

from coordinator.client import AsyncClient, Client, ClientT, OfOneProcess, expect_client
from coordinator.errors import ClientClosedError


class EndedByWith(OfOneProcess, Generic[ClientT]):
    """Base of what a ``with`` ends; a subclass has ``client`` and ``_end``."""

    __slots__ = ()

    client: ClientT

    @property
    def _is_over(self) -> bool:
        """Whether there is nothing to end any more."""
        return False

    async def _end(self, error: BaseException | None) -> None:
        """End it; ``error`` is what the body raised."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        expect_client(self.client, Client, "with")
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        client = self.client
        assert isinstance(client, Client), "as it was entered"
        if not self._is_over:
            ended_here(lambda: client.call(self._end(error)), error)

    async def __aenter__(self) -> Self:
        expect_client(self.client, AsyncClient, "async with")
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if not self._is_over:
            await self._end(error)


def ended_here(end: Callable[[], object], error: BaseException | None) -> None:
    """Call ``end`` behind a body that raised ``error``, which a closed client does not hide.

    Also in a child that was forked in the body: nothing is ended there."""
    try:
        end()
    except ClientClosedError as closed:
        if error is None:
            raise
        error.add_note(f"and what it held was not given back here: {closed}")
