"""The ``with`` and ``async with`` of what is there already, and ends with the body."""

from __future__ import annotations

from typing import Generic, Self

from coordinator.client import AsyncClient, Client, ClientT, expect_client


class EndedByWith(Generic[ClientT]):
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
        assert isinstance(self.client, Client), "as it was entered"
        if not self._is_over:
            self.client.call(self._end(error))

    async def __aenter__(self) -> Self:
        expect_client(self.client, AsyncClient, "async with")
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _where: object) -> None:
        if not self._is_over:
            await self._end(error)
