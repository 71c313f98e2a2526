"""A real member in memory, with two doors, and a network whose faults a test switches on.

Everything but sockets, disks and time is the real thing: the client, HTTP, the service, the state
machine. Both doors lead to the one member, so one can die and the other still serves.
"""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from coordinator.client import (
    AsyncClient,
    InProcessTransport,
    Request,
    Response,
    RetryPolicy,
    connect,
)
from coordinator.client.calling.transport import ResponseStream
from coordinator.clock import Clock
from coordinator.errors import ConnectionLostError, UnavailableError
from coordinator.node.config import Config
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.app import create_app
from tests.client.virtual_time import LoopClock, run

LEFT, RIGHT = "http://left:1", "http://right:1"


async def _sent_on(_request: Request) -> None:
    """Nothing is before it."""


class Network:
    """One client's way to the doors; counts requests, and loses what it is told to lose."""

    def __init__(self, doors: dict[str, web.Application], way_passes: int = 0) -> None:
        self._inner = InProcessTransport(doors)
        self.leader = self._inner.leader
        self.sent: list[str] = []
        """``METHOD target`` of everything that was sent on, in order."""
        self.turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done at the next change of ``is_cut``."""
        self._is_cut = False
        self.is_refusing = False
        """Connections are refused at once."""
        self.loses_reply_of: Callable[[Request], bool] = lambda request: False
        self.way_passes = way_passes
        """How many passes of the loop a request is on its way, and its answer again."""
        self.before: Callable[[Request], Awaitable[None]] = _sent_on
        """Awaited before a request is sent on; what it raises the client gets."""
        self.delays_s: Callable[[Request], float] = lambda request: 0.0
        """How long the reply, or each line of the reply, is under way."""

    @property
    def is_cut(self) -> bool:
        """Nothing gets through, in either direction; connections time out."""
        return self._is_cut

    @is_cut.setter
    def is_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        turned, self.turned = self.turned, asyncio.get_running_loop().create_future()
        turned.set_result(None)

    def lose_one_reply(self, method: str, part: str) -> None:
        """Lose the next answer to such a request, after the member has done it."""

        def loses(request: Request) -> bool:
            if request.method != method or part not in request.target:
                return False
            self.loses_reply_of = lambda request: False
            return True

        self.loses_reply_of = loses

    def kill(self, door: str) -> None:
        """Let the member behind ``door`` die: connections break, new ones are refused."""
        self._inner.remove(door)

    def count(self, method: str, part: str = "") -> int:
        return sum(each.startswith(method) and part in each for each in self.sent)

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        await self._pass(request, timeout_ms)
        response = await self._inner.request(endpoint, request, timeout_ms)
        await self._travel()
        delay_s = self.delays_s(request)
        await asyncio.sleep(min(delay_s, timeout_ms / 1000))
        if delay_s * 1000 > timeout_ms:
            raise ConnectionLostError(f"no answer within {timeout_ms} ms")
        if self.loses_reply_of(request):
            raise ConnectionLostError("the reply was lost")
        if self.is_cut:
            await self._silence(timeout_ms)
        return response

    @asynccontextmanager
    async def stream(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> AsyncIterator[ResponseStream]:
        await self._pass(request, timeout_ms)
        async with self._inner.stream(endpoint, request, timeout_ms) as stream:
            yield _Faulty(stream, request, self)

    async def close(self) -> None:
        await self._inner.close()

    async def _travel(self) -> None:
        for _ in range(self.way_passes):
            await asyncio.sleep(0)

    async def _pass(self, request: Request, timeout_ms: int) -> None:
        await self.before(request)
        await self._travel()
        if self.is_refusing:
            raise UnavailableError("connection refused")
        if self.is_cut:
            await self._silence(timeout_ms)
        self.sent.append(f"{request.method} {request.target}")

    async def _silence(self, timeout_ms: int) -> None:
        await asyncio.sleep(timeout_ms / 1000)
        raise ConnectionLostError(f"no answer within {timeout_ms} ms")


SILENCE_S_MAX = 7.0
"""What a connection of the stream that says nothing is taken for dead after."""


class _Faulty:
    """A stream over the faulty network."""

    def __init__(self, stream: ResponseStream, request: Request, network: Network) -> None:
        self._stream = stream
        self._request = request
        self._network = network
        self.watches_silence = stream.watches_silence
        self.status = stream.status
        self.headers = stream.headers

    def line_here(self) -> bytes | None:
        return None

    async def line(self) -> bytes | None:
        line = await self._heard()
        await asyncio.sleep(self._network.delays_s(self._request))
        if line is not None and line.strip() and self._network.loses_reply_of(self._request):
            raise ConnectionLostError("the stream broke")
        return line

    async def _heard(self) -> bytes | None:
        """Return the next line; while it is cut none comes, and then the connection is dead."""
        reading = asyncio.ensure_future(self._stream.line())
        try:
            while self._network.is_cut or not reading.done():
                turned: asyncio.Future[Any] = self._network.turned
                if not self._network.is_cut:
                    await asyncio.wait({reading, turned}, return_when=asyncio.FIRST_COMPLETED)
                elif not (await asyncio.wait({turned}, timeout=SILENCE_S_MAX))[0]:
                    raise ConnectionLostError("the server said nothing for too long")
            return reading.result()
        finally:
            reading.cancel()

    async def read(self) -> bytes:
        return await self._stream.read()


class MemoryCluster:
    """The member; ``async with cluster.client() as client`` for each client."""

    def __init__(
        self,
        clock: Clock | None = None,
        way_passes: int = 0,
        engine: LoopbackEngine | None = None,
    ) -> None:
        self.clock = clock or LoopClock(asyncio.get_running_loop())
        self._way_passes = way_passes
        self.engine = engine or LoopbackEngine()
        self.member = Member(Config(), self.engine, self.clock, random=random.Random(5))
        self._clients = 0

    @property
    def proposals(self) -> int:
        """How many commands were proposed so far."""
        return self.engine.status().last_index

    def network(self, way_passes: int | None = None) -> Network:
        """Return a way to the doors; ``way_passes`` as the cluster was made, if it is None."""
        doors = {url: create_app(self.member, Config().http, self.clock) for url in (LEFT, RIGHT)}
        return Network(doors, self._way_passes if way_passes is None else way_passes)

    @asynccontextmanager
    async def client(
        self, network: Network | None = None, **options: Any
    ) -> AsyncIterator[AsyncClient]:
        """Connect over ``network``, or over one of its own without faults."""
        self._clients += 1
        is_repeatable = "retry" not in options
        connector = connect(
            (LEFT, RIGHT),
            transport=network or self.network(),
            clock=options.pop("clock", self.clock),
            retry=options.pop("retry", RetryPolicy(seed=self._clients)),
            **options,
        )
        async with connector as client:
            if is_repeatable:
                client.delivery.entropy = client.delivery.random
            yield client

    async def queue(self, client: AsyncClient, name: str) -> list[str]:
        """Return the labels of the holder and of those who wait, in order."""
        view = await client.lock(name)
        holder = [] if view.holder is None else [view.holder.label]
        return holder + [each.label for each in view.queue]


@asynccontextmanager
async def cluster(
    way_passes: int = 0, engine: LoopbackEngine | None = None
) -> AsyncIterator[MemoryCluster]:
    """Run a member for the length of a test; requests are so many passes of the loop on the way."""
    world = MemoryCluster(way_passes=way_passes, engine=engine)
    await world.member.start()
    try:
        yield world
    finally:
        await world.member.stop()


def in_memory(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in virtual time; its first argument is a running MemoryCluster."""
    signature = inspect.signature(test)

    def wrapper(**arguments: Any) -> None:
        async def main() -> None:
            async with cluster() as world:
                await test(world, **arguments)

        run(main())

    wrapper.__name__ = test.__name__
    wrapper.__doc__ = test.__doc__
    wrapper.__module__ = test.__module__
    parameters = list(signature.parameters.values())[1:]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return wrapper
