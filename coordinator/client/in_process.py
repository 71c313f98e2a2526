"""Members in this process, reached without sockets: for tests, and for a program that embeds one.

Client and server are joined back to back in memory: each writes into a pipe whose other end is fed
to the other's parser. So everything but the kernel is the real thing, streams and broken
connections included, and it runs as well on an event loop with a clock of its own. They speak the
stream; an application that does not know it (not one of ``create_app``) is asked over HTTP.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.transport import Request, Response, ResponseStream
from coordinator.client.http import HttpTransport
from coordinator.client.stream.transport import StreamTransport
from coordinator.wire.http.keys import STREAM, Speaking


class _MemoryConnector(aiohttp.BaseConnector):
    """Connects to a server protocol instead of a socket; by host and port of the URL."""

    def __init__(
        self,
        serve: Callable[[str], asyncio.Protocol | None],
        on_connected: Callable[[str, PipeEnd], None],
    ) -> None:
        super().__init__(limit=0)
        self._serve = serve
        self._on_connected = on_connected

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        url = f"{req.url.scheme}://{req.url.authority}"
        server = self._serve(url)
        if server is None:
            key = req.connection_key
            raise aiohttp.ClientConnectorError(key, ConnectionRefusedError(111, "no such member"))
        loop = asyncio.get_running_loop()
        client = ResponseHandler(loop)
        self._on_connected(url, joined(loop, client, server))
        return client


class _Streaming:
    """A stream of members that may have to be started first."""

    def __init__(
        self,
        start: Callable[[], Coroutine[Any, Any, None]],
        streaming: AbstractAsyncContextManager[ResponseStream],
    ) -> None:
        self._start = start
        self._streaming = streaming

    async def __aenter__(self) -> ResponseStream:
        await self._start()
        return await self._streaming.__aenter__()

    async def __aexit__(self, *exception: Any) -> None:
        await self._streaming.__aexit__(*exception)


class InProcessTransport:
    """Reaches the members whose applications are given, by the URLs they are given under.

    An application that is not there (or was taken away with ``remove``) refuses connections, as a
    dead member's port does.
    """

    def __init__(self, members: Mapping[str, web.Application]) -> None:
        self._members = dict(members)
        self._runners: dict[str, web.AppRunner] = {}
        self._speaking: dict[str, Speaking] = {}
        self.leader = KnownLeader()
        http = HttpTransport(connector=lambda: _MemoryConnector(self._connect, self._keep))
        self._stream = StreamTransport(self.leader, http=http, connect=self._connect_stream)
        self._starting = asyncio.Lock()
        self._is_started = False
        self._pipes: dict[str, list[PipeEnd]] = {}

    @property
    def endpoints(self) -> list[str]:
        """The URLs of the members that it reaches."""
        return list(self._members)

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request to a member and return the whole response."""
        await self._start()
        return await self._stream.request(endpoint, request, timeout_ms)

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _Streaming:
        """Send a request to a member and return its response line by line."""
        return _Streaming(self._start, self._stream.stream(endpoint, request, timeout_ms))

    async def close(self) -> None:
        """Close the connections; the members live on."""
        await self._stream.close()
        for runner in self._runners.values():
            await runner.cleanup()
        self._runners.clear()

    def remove(self, url: str) -> None:
        """Let the member die for this client: its connections break, new ones are refused."""
        self._runners.pop(url, None)
        self._speaking.pop(url, None)
        for pipe in self._pipes.pop(url, []):
            pipe.close()

    async def _start(self) -> None:
        async with self._starting:
            if self._is_started:
                return
            for url, application in self._members.items():
                runner = web.AppRunner(application, handler_cancellation=True, access_log=None)
                await runner.setup()
                self._runners[url] = runner
                if (stream := application.get(STREAM)) is not None:
                    self._speaking[url] = stream()
            self._is_started = True

    def _connect(self, url: str) -> asyncio.Protocol | None:
        runner = self._runners.get(url)
        if runner is None or runner.server is None:
            return None
        return runner.server()

    async def _connect_stream(self, url: str, make: Callable[[], asyncio.Protocol]) -> object:
        server = self._speaking[url]() if url in self._speaking else self._connect(url)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "no such member")
        client = make()
        self._keep(url, joined(asyncio.get_running_loop(), client, server))
        return client

    def _keep(self, url: str, pipe: PipeEnd) -> None:
        pipes = [each for each in self._pipes.get(url, []) if not each.is_closing()]
        self._pipes[url] = [*pipes, pipe]


_HIGH_WATER_BYTES = 256 * 1024


class PipeEnd(asyncio.Transport):
    """One end of an in-memory connection; what is written here is received over there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        self._loop = loop
        self._protocol: Any = None
        self._peer: PipeEnd = self
        self._inbox = bytearray()
        self._is_paused = False
        self._is_flushing = False
        self._is_peer_held = False
        self._is_closing = False
        self._is_lost = False

    def join(self, protocol: asyncio.Protocol, peer: PipeEnd) -> None:
        """Connect this end with its protocol and with the other end."""
        self._protocol, self._peer = protocol, peer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Hand bytes to the other end; after a close they are dropped."""
        if not self._is_closing:
            self._peer._receive(bytes(data))

    def _receive(self, data: bytes) -> None:
        if self._is_lost:
            return
        self._inbox += data
        if len(self._inbox) > _HIGH_WATER_BYTES and not self._is_peer_held:
            self._is_peer_held = True
            self._peer._protocol.pause_writing()
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_flushing and not self._is_paused:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self._is_paused or self._is_lost:
            return
        if self._inbox:
            data = bytes(self._inbox)
            self._inbox.clear()
            self._protocol.data_received(data)
            if self._is_peer_held:
                self._is_peer_held = False
                self._peer._protocol.resume_writing()
        if self._peer._is_closing and not self._inbox:
            self._lose()

    def close(self) -> None:
        """Close both ends, in a later step of the loop."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)
            self._peer._schedule()

    def abort(self) -> None:
        """Close it: nothing is buffered that could be dropped."""
        self.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        """Say whether it has been closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Hold back what comes in."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Hand over what was held back, and what comes in."""
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        """Say whether what comes in is handed over."""
        return not self._is_paused

    def get_protocol(self) -> Any:
        """Return the protocol of this end."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol of this end."""
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the other end has not taken yet."""
        return len(self._peer._inbox)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limit is fixed."""

    def can_write_eof(self) -> bool:
        """Say that it cannot be closed in one direction only."""
        return False


def joined(
    loop: asyncio.AbstractEventLoop, client: asyncio.Protocol, server: asyncio.Protocol
) -> PipeEnd:
    """Connect ``client`` to ``server``; return the client's end."""
    near, far = PipeEnd(loop), PipeEnd(loop)
    near.join(client, far)
    far.join(server, near)
    server.connection_made(far)
    client.connection_made(near)
    return near
