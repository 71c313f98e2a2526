"""A member behind a real door, and a connection on which a test writes bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from coordinator.audit.event import NoAudit
from coordinator.clock import SystemClock
from coordinator.node.config import ClusterConfig, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.base.leadership import LeaderAddress
from coordinator.service.base.metrics import Metrics
from coordinator.service.base.replica import MachineReplica
from coordinator.service.base.turns import Turns
from coordinator.state.machine import StateMachine
from coordinator.wire.http.served import Served
from coordinator.wire.http.server import HttpServer
from coordinator.wire.request import Answered, IncomingRequest
from coordinator.wire.routes.door import Door
from coordinator.wire.routes.route import Route
from tests.patience import patient

FAST = HttpConfig(
    bind_port=0,
    allowed_hosts="h",
    header_deadline_ms=100,
    body_deadline_ms=100,
    idle_deadline_ms=300,
    body_bytes_max=1_000,
    connections_max=6,
    connections_per_address_max=4,
    shutdown_grace_ms=500,
)


Handler = Callable[[Door, IncomingRequest], Awaitable[Answered]]


class QuietMember:
    """Just enough of a member for a door: who it is and how far."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.audit = NoAudit()
        self.turns = Turns()
        self.access = SimpleNamespace(
            is_on=False,
            is_operator=lambda _caller: False,
            replica=MachineReplica(StateMachine()),  # a compiled door takes nothing else
        )
        self.difference = ""
        self.leader_address = LeaderAddress(LoopbackEngine(), ClusterConfig())

    def labels(self) -> tuple[str, int, int]:
        return "1", 7, 9


async def answer(door: Door, request: IncomingRequest) -> Answered:
    """Say how long the body was."""
    return door.reply_now(request, {"bytes": len(await door.raw_body(request))})


@asynccontextmanager
async def serving(
    handler: Handler = answer, *, client_urls: Sequence[str] = (), **changes: Any
) -> AsyncIterator[HttpServer]:
    # On a busy machine as much longer as it is busy: most tests only must not meet them.
    deadlines = ("header_deadline_ms", "body_deadline_ms", "idle_deadline_ms")
    longer = {each: round(patient(getattr(FAST, each))) for each in deadlines}
    config = replace(FAST, **{**longer, **changes})
    door = Door(cast(Any, QuietMember()), config, SystemClock())

    async def route(request: IncomingRequest) -> Answered:
        return await handler(door, request)

    routes = [
        Route(method, template="/x", handler=route, operation_id="x", is_open=True)
        for method in ("GET", "HEAD", "POST", "PUT")
    ]
    server = HttpServer(Served(door, tuple(routes)), config, client_urls=client_urls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Wire:
    """A client that sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def to(cls, server: HttpServer) -> Wire:
        return cls(*await asyncio.open_connection("127.0.0.1", server.port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(patient(10)):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            body = await self.reader.readexactly(int(headers.get("content-length", "0")))
        return int(status.split()[1]), headers, body

    async def rest(self) -> bytes:
        async with asyncio.timeout(patient(10)):
            try:
                return await self.reader.read()
            except ConnectionResetError:
                return b""

    def close(self) -> None:
        self.writer.close()


async def until(is_so: Callable[[], bool]) -> None:
    """Return once ``is_so``, looking again at each turn of the loop."""
    async with asyncio.timeout(patient(10)):
        while not is_so():  # noqa: ASYNC110 (a counter, not an event)
            await asyncio.sleep(0)


def elapsed_ms(since: float) -> float:
    return (asyncio.get_running_loop().time() - since) * 1_000
