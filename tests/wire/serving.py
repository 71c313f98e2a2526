"""One member over the loopback engine, behind the real door, on a free port."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from coordinator.clock import Clock, SystemClock
from coordinator.node.config import Config, HttpConfig, MemberLimits
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer

NDJSON = {"Accept": "application/x-ndjson"}
MSGPACK = {"Accept": "application/msgpack", "Content-Type": "application/msgpack"}


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back."""

    status: int
    headers: Any
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> Any:
        """The code of a problem."""
        assert self.headers["Content-Type"] == "application/problem+json", self
        return self.body["code"]


class Api:
    """Speaks plain HTTP to one member."""

    def __init__(self, server: HttpServer, member: Member, session: aiohttp.ClientSession) -> None:
        self.server, self.member, self.session = server, member, session

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
        without_type: bool = False,
    ) -> Reply:
        """Send one request; ``body`` as JSON, ``data`` as it is. The path goes out as written.

        ``without_type``: with the Content-Type of ``headers``, or none (aiohttp adds one)."""
        from yarl import URL

        url = URL(self.server.url + path, encoded=True)
        given: dict[str, Any] = {"data": data} if body is None else {"json": body}
        given["skip_auto_headers"] = ["Content-Type"] if without_type else []
        async with self.session.request(method, url, headers=headers, **given) as response:
            return Reply(response.status, response.headers, await response.read())

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, headers=headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.call("POST", path, body, headers=headers)

    async def put(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.call("PUT", path, body, headers=headers)

    async def delete(self, path: str, **headers: str) -> Reply:
        return await self.call("DELETE", path, headers=headers)

    async def session_id(self, timeout_ms: int = 60_000) -> str:
        """Open a session and return its id."""
        reply = await self.post("/v1/sessions", {"timeout_ms": timeout_ms, "label": "test"})
        session_id: str = reply.body["session_id"]
        return session_id

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> AsyncIterator[Lines]:
        """Open a response that goes on, NDJSON unless the headers say otherwise."""
        given: dict[str, Any] = {} if body is None else {"json": body}
        async with self.session.request(
            method, self.server.url + path, headers={**NDJSON, **headers}, **given
        ) as response:
            yield Lines(response)


class Lines:
    """The lines of a stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> Any:
        """Return the next line that says something; None at the end."""
        while True:
            line = await self.response.content.readline()
            if not line:
                return None
            if line.strip():
                return json.loads(line)


@asynccontextmanager
async def serving(
    *,
    limits: MemberLimits | None = None,
    http: HttpConfig | None = None,
    clock: Clock | None = None,
    engine: LoopbackEngine | None = None,
) -> AsyncIterator[Api]:
    """Run one member and its door for the length of a test."""
    http_config = replace(http or HttpConfig(), bind_port=0, shutdown_grace_ms=1_000)
    clock = clock or SystemClock()
    config = Config(http=http_config, limits=limits or MemberLimits())
    member = Member(config, engine or LoopbackEngine(), clock)
    await member.start()
    server = HttpServer(served(member, http_config, clock), http_config)
    await server.start()
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        try:
            yield Api(server, member, session)
        finally:
            await server.stop()
            await member.stop()
