"""A member that is as full as the pages of its routes go, behind the door, in a metered loop."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from coordinator.clock import SystemClock
from coordinator.model.access import MEMBER, Caller
from coordinator.model.limits import NEW_CLUSTER, MachineLimits
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Create,
    CreateMode,
    Delete,
    Enter,
    Kind,
    Multi,
    OpenSession,
    Operation,
    Release,
    SetData,
    ZnodeOperation,
)
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer
from tests.loop_meter import Metered, metered

MANY = 1_500
"""More than any page takes."""
_STREAM_S = 0.5


class Crowded:
    """Speaks plain HTTP to it, from a thread that is not the loop's."""

    def __init__(self, loop: Metered, limits: MachineLimits = NEW_CLUSTER) -> None:
        self.loop = loop
        self.clock = SystemClock()
        http_config = replace(HttpConfig(), bind_port=0, shutdown_grace_ms=500)
        self._http_config = http_config
        config = Config(http=http_config, first_limits=limits)
        self.member = Member(config, LoopbackEngine(), self.clock)
        self.server: HttpServer | None = None

    async def start(self) -> None:
        await self.open()
        await self._fill()

    async def open(self) -> None:
        """Begin, with nobody there."""
        await self.member.start()
        what = served(self.member, self._http_config, self.clock)
        self.server = HttpServer(what, self._http_config)
        await self.server.start()

    async def stop(self) -> None:
        assert self.server is not None
        await self.server.stop()
        await self.member.stop()

    async def do(self, operation: Operation, caller: Caller = MEMBER) -> Any:
        deadline_ms = self.clock.monotonic_ms() + 10_000
        done = await self.member.proposer.submit(
            operation, RequestContext(None, deadline_ms, caller=caller)
        )
        return done.outcome.result

    async def _fill(self) -> None:
        await self.do(Create("/locks"))
        await self.do(Create("/elections"))
        await self.do(Create("/d"))
        await self.do(Create("/wide", b"x" * 1_000))
        await self.do(Create("/big", b"x" * 1_048_576))
        await self.do(Create("/binary", b"\xff" * 1_048_576))
        for number in range(MANY):
            session_id = f"s{number}"
            await self.do(OpenSession(session_id, timeout_ms=3_600_000, label="l" * 200))
            await self.do(Create(f"/wide/c{number:05}"))
            await self.enter(session_id, f"/locks/l{number:05}")
            await self.enter(session_id, "/locks/queue")
            await self.enter(session_id, "/elections/poll", "candidate-", b"v" * 200)
            ended = await self.enter(session_id, "/locks/past")
            first = ended.contenders[0]
            await self.do(Release(first.path, first.stat.czxid))
        for number in range(MANY):
            await self.do(
                Create(
                    f"/d/e{number:05}", data=b"x" * 100, mode=CreateMode.EPHEMERAL, session_id="s0"
                )
            )

    async def enter(
        self, session_id: str, directory: str, prefix: str = "lock-", data: bytes = b"{}"
    ) -> Any:
        return await self.do(
            Enter(
                (directory,), prefix=prefix, kind=Kind.EXCLUSIVE, session_id=session_id, data=data
            )
        )

    def made(self, *operations: Operation) -> None:
        """Have these done, each by itself, before what is measured."""

        async def all_of_them() -> None:
            for each in operations:
                await self.do(each)

        self.loop.run(all_of_them())

    def made_at_once(self, operations: list[ZnodeOperation]) -> None:
        for start in range(0, len(operations), 100):
            self.made(Multi(tuple(operations[start : start + 100])))

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
        expected: tuple[int, ...] = (200, 201),
    ) -> bytes:
        """Send one request; return the body of its answer."""
        assert self.server is not None
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        given = {"Content-Type": "application/json", **(headers or {})}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is None:
            del given["Content-Type"]
        try:
            connection.request(method, path, data, given)
            answer = connection.getresponse()
            read = answer.read()
        finally:
            connection.close()
        assert answer.status in expected, (answer.status, read[:500])
        return read

    def stream(
        self, method: str, path: str, body: Any = None, *, lines: int = 1, accept: str = ""
    ) -> list[bytes]:
        """Send one request; return the first lines of its answer, and hang up."""
        assert self.server is not None
        headers = {"Accept": accept or "application/x-ndjson", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read(500))
            return [answer.readline() for _ in range(lines)]
        finally:
            connection.close()

    @contextmanager
    def watching(self, count: int, path: str) -> Iterator[None]:
        """Keep ``count`` watch streams of one path open, and read none of them."""
        assert self.server is not None
        request = (
            f"GET /v1/watch?path={path} HTTP/1.1\r\nHost: localhost\r\n"
            "Accept: application/x-ndjson\r\n\r\n"
        )
        sockets = []
        try:
            for _ in range(count):
                sockets.append(socket.create_connection(("127.0.0.1", self.server.port), 20))
                sockets[-1].sendall(request.encode())
            for each in sockets:
                each.recv(64)
            yield
        finally:
            for each in sockets:
                each.close()
            time.sleep(_STREAM_S)


def deletion(paths: list[str]) -> list[ZnodeOperation]:
    return [Delete(path) for path in paths]


def creation(paths: list[str]) -> list[ZnodeOperation]:
    return [Create(path, b"x") for path in paths]


def change(paths: list[str]) -> list[ZnodeOperation]:
    return [SetData(path, b"y") for path in paths]


@contextmanager
def crowded() -> Iterator[Crowded]:
    """Run it for the length of a module of tests."""
    with metered() as loop:
        scene = Crowded(loop)
        loop.run(scene.start())
        try:
            yield scene
        finally:
            loop.run(scene.stop())
