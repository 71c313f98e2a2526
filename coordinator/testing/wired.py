"""``cluster.connect()``: clients whose wire has switches."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from types import TracebackType
from typing import Any

from coordinator.client import AsyncClient, Client, connect
from coordinator.testing.client_wire import Wire


class WiredConnector:
    """As ``coordinator.client.Connector``; may be entered again once it was left."""

    def __init__(
        self,
        endpoints: Sequence[str],
        wires: MutableMapping[AsyncClient, Wire],
        options: dict[str, Any],
    ) -> None:
        self._endpoints = endpoints
        self._wires = wires
        self._options = options
        self._client: Client | None = None
        self._async_client: AsyncClient | None = None

    def open(self) -> Client:
        """Return a sync client that the caller closes."""
        return Client(self.open_async)

    async def open_async(self) -> AsyncClient:
        """Return an asyncio client, for the running loop, that the caller closes."""
        wire = Wire()
        connector = connect(self._endpoints, transport=wire, clock=wire.clock, **self._options)
        client = await connector.open_async()
        self._wires[client] = wire
        return client

    def __enter__(self) -> Client:
        assert self._client is None, "a connector opens one client at a time"
        self._client = self.open()
        return self._client

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        client, self._client = self._client, None
        assert client is not None, "left what was not entered"
        client.close()

    async def __aenter__(self) -> AsyncClient:
        assert self._async_client is None, "a connector opens one client at a time"
        self._async_client = await self.open_async()
        return self._async_client

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        client, self._async_client = self._async_client, None
        assert client is not None, "left what was not entered"
        await client.close()
