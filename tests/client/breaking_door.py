"""A real member behind a real socket whose connections break after a chosen byte.

Between client and member stands a proxy. ``break_after`` arms it for the next bytes that a client
sends on a connection that is there already, or on a new one: so many bytes of the request, or the
whole request and so many bytes of the answer, are passed on. Then both ends are reset. If ``goes``,
the door is closed first and refuses connections from then on, as the port of a dead member does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Literal

from coordinator.client import InProcessTransport
from coordinator.clock import SystemClock
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.app import create_app
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer
from tests.ports import free_ports

Side = Literal["request", "answer"]


class BreakingDoor:
    """The proxy; ``url`` is the same when it is opened again."""

    def __init__(self, member_port: int) -> None:
        self._member_port = member_port
        self._port = free_ports(1)[0]  # it is opened again there
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self._left: int | None = None
        self._side: Side = "request"
        self._goes = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def is_armed(self) -> bool:
        """Whether fewer bytes have passed than it takes to break a connection."""
        return self._left is not None

    async def open(self) -> None:
        """Accept connections, if it does not."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    def break_after(self, side: Side, byte_count: int, *, goes: bool) -> None:
        self._side, self._left, self._goes = side, byte_count, goes

    def disarm(self) -> None:
        self._left = None

    async def close(self) -> None:
        self._close_port()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _close_port(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._member_port)
        pumps = [
            asyncio.create_task(self._pump("request", reader, far_writer)),
            asyncio.create_task(self._pump("answer", far_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pass  # the door is closed: nobody waits for this link
        finally:
            for pump in pumps:
                pump.cancel()
            writer.transport.abort()
            far_writer.close()
            self._links.discard(task)

    async def _pump(
        self, side: Side, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                passed = self._passed(side, piece)
                writer.write(passed)
                await writer.drain()
                if len(passed) < len(piece) or (self._left == 0 and side == self._side):
                    self._left = None
                    if self._goes:
                        self._close_port()
                    return

    def _passed(self, side: Side, piece: bytes) -> bytes:
        if self._left is None or side != self._side:
            return piece
        passed = piece[: self._left]
        self._left -= len(passed)
        return passed


@asynccontextmanager
async def breaking_door() -> AsyncIterator[tuple[BreakingDoor, InProcessTransport]]:
    """Yield the door, and the way round it, for who wants to know the truth."""
    clock = SystemClock()
    config = replace(Config(), http=HttpConfig(bind_port=0))
    member = Member(config, LoopbackEngine(), clock)
    await member.start()
    server = HttpServer(served(member, config.http, clock), config.http)
    await server.start()
    door = BreakingDoor(server.port)
    await door.open()
    truth = InProcessTransport({"http://truth:1": create_app(member, config.http, clock)})
    try:
        yield door, truth
    finally:
        await door.close()
        await truth.close()
        await server.stop()
        await member.stop()
