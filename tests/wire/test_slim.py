"""The short way of HTTP answers what aiohttp's answers, byte for byte but the date."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coordinator.node.config import HttpConfig
from coordinator.wire.arrival import Speaker
from coordinator.wire.http import full_door
from coordinator.wire.http.server import HttpServer
from tests.patience import patient
from tests.wire.raw_connection import Wire
from tests.wire.serving import Api, serving

HOST = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
_VARIES = re.compile(rb"Date: [^\r]*\r\n|[0-9a-f]{16}|_ms\":\d+|_ms\xcf.{8}|in \d+ ms", re.DOTALL)


def request(line: bytes, body: bytes = b"", headers: bytes = HOST + JSON) -> bytes:
    length = b"Content-Length: %d\r\n" % len(body) if body else b""
    return line + b" HTTP/1.1\r\n" + headers + length + b"\r\n" + body


PLAIN: dict[str, bytes] = {
    "a create": request(b"POST /v1/tree/a/b", b'{"data": "x"}'),
    "a create in msgpack": request(
        b"POST /v1/tree/a/b",
        b"\x81\xa4data\xc4\x01\xff",
        HOST + b"Content-Type: application/msgpack\r\nAccept: application/msgpack\r\n",
    ),
    "a read": request(b"GET /v1/tree/a", headers=HOST),
    "a stale read": request(b"GET /v1/tree/a?stale", headers=HOST),
    "a raw read": request(b"GET /v1/tree/a?raw", headers=HOST),
    "an unchanged znode": request(b"GET /v1/tree/a", headers=HOST + b"If-None-Match: *\r\n"),
    "a list": request(b"GET /v1/tree?children&stat", headers=HOST),
    "a change": request(b"PUT /v1/tree/a", b'{"data": "y"}', HOST + JSON + b'If-Match: "0"\r\n'),
    "a change of raw data": request(
        b"PUT /v1/tree/a?raw", b"\x00", HOST + b"Content-Type: application/octet-stream\r\n"
    ),
    "a delete": request(b"DELETE /v1/tree/a", headers=HOST),
    "a znode that is not there": request(b"GET /v1/tree/none", headers=HOST),
    "an escaped path": request(b"GET /v1/tree/%61", headers=HOST),
    "a bad escape": request(b"GET /v1/tree/%", headers=HOST),
    "a fragment": request(b"GET /v1/tree/a?stale#more", headers=HOST),
    "a query that is none": request(b"GET /v1/tree/a?nonsense", headers=HOST),
    "a method that is none": request(b"PATCH /v1/tree/a", b"{}"),
    "no route below": request(b"GET /v1/sessions/a/b/c", headers=HOST),
    "no name": request(b"GET /v1/locks/", headers=HOST),
    "a body that is none": request(b"POST /v1/tree/n", b"{"),
    "a body of another type": request(
        b"PUT /v1/tree/a", b"x", HOST + b"Content-Type: text/xml\r\n"
    ),
    "a post that a page can send": request(b"POST /v1/tree/n", b"{}", HOST),
    "an empty post": request(b"POST /v1/tree/n"),
    "a body over the bound of its route": request(b"PUT /v1/locks/a/size", b" " * 70_000),
    "a delete with a body": request(b"DELETE /v1/tree/a", b"{}"),
    "a session": request(b"POST /v1/sessions", b'{"timeout_ms": 60000}'),
    "a heartbeat of nobody": request(b"POST /v1/sessions/none/heartbeat"),
    "a lock": request(b"POST /v1/locks/l", b'{"lease_ms": 60000, "timeout_ms": 0}'),
    "a release of nothing": request(b"DELETE /v1/locks/l/grants/1-1", headers=HOST),
    "a multi": request(b"POST /v1/multi", b'{"operations": [{"op": "read", "path": "/a"}]}'),
    "closing": request(b"GET /v1/tree/a", headers=HOST + b"Connection: close\r\n"),
    "health": request(b"GET /health/live", headers=HOST),
    "readiness": request(b"GET /health/ready", headers=HOST),
    "no health": request(b"GET /health/none", headers=HOST),
    "a write of health": request(b"PUT /health/live", b"{}"),
    "an election": request(b"GET /v1/elections/e", headers=HOST),
    "kept alive": request(b"GET /v1/tree/a", headers=HOST + b"Connection: keep-alive\r\n"),
    "a deadline that is none": request(
        b"GET /v1/tree/a", headers=HOST + b"Coordinator-Timeout-Ms: x\r\n"
    ),
    "spaces around a value": request(
        b"GET /v1/tree/a", headers=HOST + b"Coordinator-Timeout-Ms:   500   \r\n"
    ),
}
OTHERS: dict[str, bytes] = {
    "another host": request(b"GET /v1/tree/a", headers=b"Host: evil.example\r\n"),
    "no host": request(b"GET /v1/tree/a", headers=b"A: b\r\n"),
    "two hosts": request(b"GET /v1/tree/a", headers=HOST + HOST),
    "two lengths": request(b"PUT /v1/tree/a", b"{}", HOST + JSON + b"Content-Length: 3\r\n"),
    "a length with a sign": request(
        b"PUT /v1/tree/a", headers=HOST + JSON + b"Content-Length: +2\r\n"
    ),
    "chunks": request(
        b"PUT /v1/tree/a", headers=HOST + JSON + b"Transfer-Encoding: chunked\r\n"
    ) + b"2\r\n{}\r\n0\r\n\r\n",
    "another site": request(b"PUT /v1/tree/a", b"{}", HOST + JSON + b"Origin: http://e.x\r\n"),
    "HTTP/1.0": b"GET /v1/tree/a HTTP/1.0\r\n" + HOST + b"\r\n",
    "an absolute target": request(b"GET http://127.0.0.1/v1/tree/a", headers=HOST),
    "an escaped route": request(b"GET /v1/%74ree/a", headers=HOST),
    "a folded header": request(b"GET /v1/tree/a", headers=HOST + b"A: b\r\n c\r\n"),
    "a bare line end": request(b"GET /v1/tree/a", headers=HOST + b"A: b\nC: d\r\n"),
    "no route": request(b"GET /v1/tree-", headers=HOST),
    "a page": request(b"GET /openapi.json", headers=HOST),
    "an upgrade": request(b"GET /v1/tree/a", headers=HOST + b"Connection: Upgrade\r\n"),
    "lines, in capitals": request(
        b"GET /v1/watch?nonsense", headers=HOST + b"Accept: application/X-NDJSON\r\n"
    ),
    "a head": request(b"HEAD /v1/tree/a", headers=HOST),
}  # fmt: skip


async def opened(server: HttpServer) -> Speaker:
    """Return who speaks whole HTTP, loaded now."""
    found: asyncio.Future[Speaker | None] = asyncio.get_running_loop().create_future()
    server._full.ask(found.set_result)
    speaker = await found
    assert speaker is not None
    return speaker


@asynccontextmanager
async def served(*, is_slim: bool) -> AsyncIterator[Api]:
    """Run a member with one znode, whose HTTP may be parsed here or by aiohttp alone."""
    async with serving() as api:
        server = api.server
        assert server._slim is not None
        assert server._doorway is not None
        server._slim.knows("127.0.0.1")
        if not is_slim:
            server._doorway.http = await opened(server)
        wire = await Wire.to(server)
        await wire.send(request(b"POST /v1/tree/a", b'{"data": "one"}'))
        assert (await wire.response())[0] == 201
        wire.close()
        yield api


async def answer(sent: bytes, *, is_slim: bool) -> bytes:
    """Return what comes back, with the answer to a last request that is the same in all rows."""
    last = request(b"GET /health/live", headers=HOST + b"Connection: close\r\n")
    async with served(is_slim=is_slim) as api:
        wire = await Wire.to(api.server)
        await wire.send(sent + last)
        return _VARIES.sub(b"", await wire.rest())


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
async def test_both_ways_answer_the_same_bytes(name: str) -> None:
    """What is plain, and what is handed over; with another request behind it."""
    sent = PLAIN.get(name) or OTHERS[name]
    short = await answer(sent, is_slim=True)
    long = await answer(sent, is_slim=False)

    assert short == long
    assert short


@pytest.mark.parametrize("name", [*PLAIN, *OTHERS])
async def test_what_is_plain_stays_here(name: str) -> None:
    """The rows of the one table do not reach aiohttp; those of the other do."""
    async with served(is_slim=True) as api:
        assert api.server._slim is not None
        handed_over = 0
        aiohttp = await opened(api.server)

        def counted(*arguments: object) -> asyncio.Protocol:
            nonlocal handed_over
            handed_over += 1
            return aiohttp(*arguments)  # type: ignore[arg-type]

        api.server._full.speaker = counted
        wire = await Wire.to(api.server)
        await wire.send(PLAIN.get(name) or OTHERS[name])
        await wire.reader.read(1)
        wire.close()

        assert handed_over == (name in OTHERS)


async def test_a_request_in_parts_is_answered_and_its_connection_goes_on() -> None:
    """Whoever sends its body after its header is served by aiohttp, in the time that is due."""
    sent = PLAIN["a create"]
    async with served(is_slim=True) as api:
        for cut in range(1, len(sent)):
            wire = await Wire.to(api.server)
            for part in (PLAIN["a read"], sent[:cut], sent[cut:], PLAIN["a read"]):
                await wire.send(part)
                await asyncio.sleep(0)
            statuses = [(await wire.response())[0] for _ in range(3)]
            assert statuses == [200, 201 if cut == 1 else 409, 200]
            wire.close()


async def test_requests_ahead_are_answered_in_order() -> None:
    """Plain or not, one after the other."""
    async with served(is_slim=True) as api:
        wire = await Wire.to(api.server)
        await wire.send(PLAIN["a read"] * 40 + OTHERS["a page"] + PLAIN["a delete"] * 2)
        statuses = [(await wire.response())[0] for _ in range(43)]

        assert statuses == [200] * 42 + [404]


async def test_the_connection_of_a_last_request_is_closed() -> None:
    """As by aiohttp; what is sent behind it is no request."""
    async with served(is_slim=True) as api:
        wire = await Wire.to(api.server)
        await wire.send(PLAIN["closing"])
        answered = await wire.rest()

        assert answered.startswith(b"HTTP/1.1 200 OK")
        assert b"Connection: close\r\n" in answered
        assert api.server._full.speaker is None


async def test_a_connection_ends_that_aiohttp_cannot_be_loaded_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The member goes on, and tries again for the next."""
    async with serving() as api:
        with monkeypatch.context() as broken:
            broken.setattr(full_door, "_APP", "coordinator.wire.http.none")
            wire = await Wire.to(api.server)
            await wire.send(OTHERS["a page"])
            assert await wire.rest() == b""
        wire = await Wire.to(api.server)
        await wire.send(OTHERS["a page"])

        assert (await wire.response())[0] == 200


async def test_a_client_that_asks_nothing_is_let_go() -> None:
    """After the time of an idle connection, as by aiohttp."""
    async with serving(http=HttpConfig(idle_deadline_ms=150)) as api:
        wire = await Wire.to(api.server)
        await wire.send(PLAIN["a znode that is not there"])
        assert (await wire.response())[0] == 404

        assert await wire.rest() == b""
        assert api.server.connection_count == 0


async def test_a_client_that_waited_long_is_kept() -> None:
    """The time of an idle connection begins with the answer."""
    idle_ms = round(patient(500))
    async with serving(http=HttpConfig(idle_deadline_ms=idle_ms)) as api:
        wire = await Wire.to(api.server)
        lock = b'{"lease_ms": 60000, "timeout_ms": %d}'
        await wire.send(request(b"POST /v1/locks/l", lock % 0))
        assert (await wire.response())[0] == 200
        await wire.send(request(b"POST /v1/locks/l", lock % (1.5 * idle_ms)))
        assert (await wire.response())[0] == 409
        await asyncio.sleep(idle_ms / 5_000)
        await wire.send(PLAIN["a znode that is not there"])

        assert (await wire.response())[0] == 404


@pytest.mark.parametrize("passes", range(6))
async def test_a_member_stops_whenever_its_clients_broke(passes: int) -> None:
    """Also when a request was taken, and its connection lost, before it could begin."""
    async with served(is_slim=True) as api:
        for _ in range(10):
            wire = await Wire.to(api.server)
            await wire.send(PLAIN["a read"] * 5 + PLAIN["a create"])
            for _ in range(passes):
                await asyncio.sleep(0)
            assert api.server._slim is not None
            api.server._slim.abort()
            wire.writer.transport.abort()
        async with asyncio.timeout(10):
            await api.server.stop()
        assert api.server.connection_count == 0
