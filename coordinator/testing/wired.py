"""``cluster.connect()``: clients whose wire has switches."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from coordinator.client import AsyncClient, Connector, connect
from coordinator.client.connecting import client_tls, transport_name
from coordinator.testing.client_wire import Wire


class WiredConnector(Connector):
    """As ``coordinator.client.Connector``; each client that it opens has a wire of its own."""

    def __init__(
        self,
        endpoints: Sequence[str],
        wires: MutableMapping[AsyncClient, Wire],
        options: dict[str, Any],
    ) -> None:
        name = transport_name(options.pop("transport", None))
        files = (options.get(each) for each in ("ca_file", "cert_file", "key_file"))
        tls = client_tls(endpoints, *files)

        async def open_wired() -> AsyncClient:
            wire = Wire(name, options.get("label") or "", tls)
            connector = connect(endpoints, transport=wire, clock=wire.clock, **options)
            client = await connector.open_async()
            wires[client] = wire
            return client

        super().__init__(open_wired, endpoints)
