"""A service that knows nothing of tokens, the fencing proxy in front of it, and a client."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import TestServer

from coordinator.errors import from_problem
from coordinator.guards import FencingProxy
from coordinator.guards.fencing_header import TOKEN_HEADER
from coordinator.guards.http_proxy import ProxyOptions


class Service:
    """Keeps what is PUT under each path; may be told to wait, or to break its answers."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {}
        self.seen: list[web.Request] = []
        self.before_answer: Callable[[web.Request], Awaitable[None]] | None = None
        self.application = web.Application()
        self.application.router.add_route("*", "/{path:.*}", self._handle)

    async def _handle(self, request: web.Request) -> web.Response:
        self.seen.append(request)
        body = await request.read()
        if self.before_answer is not None:
            await self.before_answer(request)
        if request.method == "PUT":
            self.documents[request.path] = body
            return web.Response(status=201, headers=[("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")])
        if request.path not in self.documents:
            return web.Response(status=404)
        return web.Response(body=self.documents[request.path])


class Proxied:
    """A service, the proxy in front of it, and a client of the proxy."""

    def __init__(self, service: Service, url: str, client: aiohttp.ClientSession) -> None:
        self.service, self.url, self.client = service, url, client

    async def put(self, path: str, body: bytes, *tokens: str) -> int:
        headers = [(TOKEN_HEADER, token) for token in tokens]
        async with self.client.put(self.url + path, data=body, headers=headers) as answer:
            if answer.status >= 400:
                self.problem = from_problem(await answer.json(content_type=None))
            return answer.status


@asynccontextmanager
async def proxied(ledger: Path, **options: Any) -> AsyncIterator[Proxied]:
    service = Service()
    async with TestServer(service.application) as upstream:
        proxy = FencingProxy(
            str(upstream.make_url("")), ledger, ProxyOptions(**({"settle_s": 0.0} | options))
        )
        async with TestServer(proxy.application) as front, aiohttp.ClientSession() as client:
            yield Proxied(service, str(front.make_url("")).rstrip("/"), client)


@contextmanager
def in_thread() -> Iterator[str]:
    """Serve in a thread of its own, for clients that wait; yields the URL."""
    urls: list[str] = []
    started, loops = threading.Event(), list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()

    async def main(directory: str) -> None:
        # The trials try every token there is, on values that are new.
        async with proxied(Path(directory) / "fence.db", token_jump_max=2**63) as world:
            urls.append(world.url)
            stop = asyncio.Event()
            loops.append((asyncio.get_running_loop(), stop))
            started.set()
            await stop.wait()

    with tempfile.TemporaryDirectory() as directory:
        thread = threading.Thread(target=lambda: asyncio.run(main(directory)), daemon=True)
        thread.start()
        assert started.wait(10)
        yield urls[0]
        loop, stop = loops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
