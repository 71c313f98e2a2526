"""Members in this process, reached without sockets: for tests, and for a program that embeds one.

The HTTP client and the HTTP server are joined back to back in memory: each writes into a pipe whose
other end is fed to the other's parser. So everything but the kernel is the real thing, streams and
broken connections included, and it runs as well on an event loop with a clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.client_proto import ResponseHandler

from coordinator.client.transport import HttpTransport, Request, Response, ResponseStream

_HIGH_WATER_BYTES = 256 * 1024


class _PipeEnd(asyncio.Transport):
    """One end of an in-memory connection; what is written here is received over there."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__({"peername": ("127.0.0.1", 0), "sockname": ("127.0.0.1", 0)})
        self._loop = loop
        self._protocol: Any = None
        self._peer: _PipeEnd = self
        self._inbox = bytearray()
        self._is_paused = False
        self._is_flushing = False
        self._is_peer_held = False
        self._is_closing = False
        self._is_lost = False

    def join(self, protocol: asyncio.Protocol, peer: _PipeEnd) -> None:
        self._protocol, self._peer = protocol, peer

    def write(self, data: bytes | bytearray | memoryview) -> None:
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
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lose)
            self._peer._schedule()

    def abort(self) -> None:
        self.close()

    def _lose(self) -> None:
        if not self._is_lost:
            self._is_lost = self._is_closing = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule()

    def is_reading(self) -> bool:
        return not self._is_paused

    def get_protocol(self) -> Any:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_write_buffer_size(self) -> int:
        return len(self._peer._inbox)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The mark is fixed."""

    def can_write_eof(self) -> bool:
        return False


class _MemoryConnector(aiohttp.BaseConnector):
    """Connects to a server protocol instead of a socket; by host and port of the URL."""

    def __init__(
        self,
        serve: Callable[[str], asyncio.Protocol | None],
        on_connected: Callable[[str, _PipeEnd], None],
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
        near, far = _PipeEnd(loop), _PipeEnd(loop)
        near.join(client, far)
        far.join(server, near)
        server.connection_made(far)
        client.connection_made(near)
        self._on_connected(url, near)
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._streaming.__aexit__(kind, error, traceback)


class InProcessTransport:
    """Reaches the members whose applications are given, by the URLs they are given under.

    An application that is not there (or was taken away with ``remove``) refuses connections, as a
    dead member's port does.
    """

    def __init__(self, members: Mapping[str, web.Application]) -> None:
        self._members = dict(members)
        self._runners: dict[str, web.AppRunner] = {}
        self._http = HttpTransport(connector=lambda: _MemoryConnector(self._connect, self._keep))
        self._starting = asyncio.Lock()
        self._is_started = False
        self._pipes: dict[str, list[_PipeEnd]] = {}

    @property
    def endpoints(self) -> list[str]:
        """The URLs of the members that it reaches."""
        return list(self._members)

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request to a member and return the whole response."""
        await self._start()
        return await self._http.request(endpoint, request, timeout_ms)

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _Streaming:
        """Send a request to a member and return its response line by line."""
        return _Streaming(self._start, self._http.stream(endpoint, request, timeout_ms))

    async def close(self) -> None:
        """Close the connections; the members live on."""
        await self._http.close()
        for runner in self._runners.values():
            await runner.cleanup()
        self._runners.clear()

    def remove(self, url: str) -> None:
        """Let the member die for this client: its connections break, new ones are refused."""
        self._runners.pop(url, None)
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
            self._is_started = True

    def _connect(self, url: str) -> asyncio.Protocol | None:
        runner = self._runners.get(url)
        if runner is None or runner.server is None:
            return None
        return runner.server()

    def _keep(self, url: str, pipe: _PipeEnd) -> None:
        pipes = [each for each in self._pipes.get(url, []) if not each.is_closing()]
        self._pipes[url] = [*pipes, pipe]
