"""Our clients: ``connect`` in threads and in asyncio, and plain HTTP requests for comparison."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.peers.work import IN_FLIGHT, VALUE, AsyncWorker, Spec, SyncWorker
from bench.wire import Connection
from coordinator import AsyncClient, Client, Lock, connect
from coordinator.errors import NodeExistsError

WAIT_S = 3_000.0
SESSION_S = 30.0


class OurThreads:
    """Verbs of one Client, from threads."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._client: Client = connect(
            ",".join(spec.endpoints), session_timeout=SESSION_S, timeout=60.0
        )  # type: ignore[assignment]

    def worker(self, number: int) -> SyncWorker:
        client, path = self._client, f"/bench-{number}"
        if self._spec.kind in ("lock", "handoff"):
            name = self._spec.lock_name(number)
            lock = Lock(client, name, timeout=WAIT_S, owner=f"w{number}", when_unsure="continue")

            def cycle(pause: Callable[[], None]) -> None:
                with lock:
                    pause()

            return cycle
        try:
            client.create(path, VALUE)
        except NodeExistsError:
            pass
        if self._spec.kind == "write":
            return lambda _pause: client.set(path, VALUE)
        return lambda _pause: client.get(path, stale=self._spec.kind == "stale")

    def close(self) -> None:
        self._client.close()


class OurAsync:
    """Verbs of one AsyncClient, from tasks."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._client: AsyncClient | None = None

    async def worker(self, number: int) -> AsyncWorker:
        client = self._client
        if client is None:
            endpoints = ",".join(self._spec.endpoints)
            client = await connect(endpoints, session_timeout=SESSION_S, timeout=60.0)
            self._client = client
        path = f"/bench-{number}"
        if self._spec.kind in ("lock", "handoff"):
            name = self._spec.lock_name(number)
            lock = Lock(client, name, timeout=WAIT_S, owner=f"w{number}", when_unsure="continue")

            async def cycle(pause: Callable[[], Awaitable[None]]) -> None:
                async with lock:
                    await pause()

            return cycle
        try:
            await client.create(path, VALUE)
        except NodeExistsError:
            pass
        if self._spec.kind == "write":
            return lambda _pause: client.set(path, VALUE)
        if self._spec.kind == "pipeline":
            return lambda _pause: asyncio.gather(
                *[client.set(path, VALUE) for _ in range(IN_FLIGHT)]
            )
        return lambda _pause: client.get(path, stale=self._spec.kind == "stale")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


class OurHttp:
    """Requests by hand to the leader, one connection and session for each worker."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._connections: list[Connection] = []

    async def worker(self, number: int) -> AsyncWorker:
        connection = await Connection.open(self._spec.endpoints[self._spec.leader])
        self._connections.append(connection)
        client_id = f"bench-{os.getpid()}-{number}-{time.monotonic_ns()}"
        count = 0

        async def ask(method: str, path: str, body: Any = None) -> bytes:
            nonlocal count
            count += 1
            said = f"Coordinator-Client-Id: {client_id}\r\nCoordinator-Request-Number: {count}\r\n"
            headers = b"" if method == "GET" else said.encode()
            status, reply = await connection.request(method, path, body, headers)
            if status >= 300 and status != 409:
                raise RuntimeError(f"{method} {path}: {status} {reply[:200]!r}")
            return reply

        path = f"/v1/tree/bench-{number}"
        if self._spec.kind in ("lock", "handoff"):
            opened = await ask("POST", "/v1/sessions", {"timeout_ms": 600_000, "label": "bench"})
            return self._cycle(ask, number, json.loads(opened)["session_id"])
        await ask("POST", path, {"data": VALUE.decode()})
        if self._spec.kind == "write":
            return lambda _pause: ask("PUT", path, {"data": VALUE.decode()})
        query = "?stale" if self._spec.kind == "stale" else ""
        return lambda _pause: ask("GET", path + query)

    def _cycle(
        self, ask: Callable[..., Awaitable[bytes]], number: int, session_id: str
    ) -> AsyncWorker:
        name = self._spec.lock_name(number)
        body = {"session_id": session_id, "timeout_ms": 3_600_000, "on_disconnect": "stay"}

        async def cycle(pause: Callable[[], Awaitable[None]]) -> None:
            grant = json.loads(await ask("POST", f"/v1/locks/{name}", body))["grant"]
            await pause()
            await ask("DELETE", f"/v1/locks/{name}/grants/{grant['grant_id']}")

        return cycle

    async def close(self) -> None:
        for each in self._connections:
            each.close()
