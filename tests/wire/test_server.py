"""The socket: deadlines, limits and an orderly end, seen from clients that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from dataclasses import replace
from typing import Any, cast

import pytest
from aiohttp import web

from coordinator.clock import SystemClock
from coordinator.errors import ConfigError
from coordinator.wire.http.adapter import HttpRequest
from coordinator.wire.http.served import Served
from coordinator.wire.http.server import HttpServer
from coordinator.wire.request import Answered, IncomingRequest
from coordinator.wire.routes.door import Door
from tests.patience import patient
from tests.wire.raw_connection import (
    FAST,
    QuietMember,
    Wire,
    elapsed_ms,
    serving,
    until,
)

NOT_HTTP = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"nonsense\r\n\r\n",
    b"GET /x HTTP/9.9\r\n\r\n",
    b"GET /x HTTP/1.1\r\nHost: h\r\nA: " + b"b" * 9_000 + b"\r\n\r\n",
    b"GET /x HTTP/1.1\r\nHost: h\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /x HTTP/1.1\r\nHost: h\r\nA\x00: b\r\n\r\n",
    b"GET /x HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\n\r\n",
]


@pytest.mark.parametrize("sent", NOT_HTTP, ids=range(len(NOT_HTTP)))
async def test_a_client_s_mistake_is_a_400_and_no_traceback(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Malformed requests are answered by a problem, and nobody's log fills up."""
    async with serving() as server:
        wire = await Wire.to(server)
        with caplog.at_level(logging.DEBUG):
            await wire.send(sent)
            status, headers, body = await wire.response()
            await wire.rest()

        assert status in (400, 417)
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["definite"] is True
        assert not [record for record in caplog.records if record.exc_info]
        assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_one_address_has_a_share_of_the_connections() -> None:
    """Over the limit: 503 at once, but to who asks for its health; room again when one leaves."""
    async with serving(header_deadline_ms=5_000) as server:
        wires = [await Wire.to(server) for _ in range(4)]
        for wire in wires:
            await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
            assert (await wire.response())[0] == 200

        refused = await Wire.to(server)
        await refused.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        status, headers, body = await refused.response()

        assert (status, headers["retry-after"]) == (503, "1")
        assert headers["content-type"] == "application/problem+json"
        assert json.loads(body)["code"] == "Throttled"
        assert server.connection_count == 4
        assert await refused.rest() == b""
        wires[0].close()
        await wires[0].writer.wait_closed()
        await until(lambda: server.connection_count == 3)
        again = await Wire.to(server)
        await again.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await again.response())[0] == 200


async def test_all_addresses_share_a_limit() -> None:
    """The total counts too."""
    async with serving(connections_max=2, header_deadline_ms=5_000) as server:
        wires = [await Wire.to(server) for _ in range(3)]

        status, _, body = await wires[2].response()

        assert status == 503
        assert "at most 2 connections" in json.loads(body)["detail"]


async def test_a_client_that_is_gone_before_it_is_refused_is_no_failure() -> None:
    """It hung up while it waited to be taken: nothing is logged, and the next one is refused."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with serving(connections_max=1, header_deadline_ms=5_000) as server:
        await Wire.to(server)

        socket.create_connection(("127.0.0.1", server.port)).close()
        refused = await Wire.to(server)

        assert (await refused.response())[0] == 503
        assert failures == []


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    """An endless answer to a client that takes nothing ends with its connection."""
    ended = asyncio.Event()

    async def flood(door: Door, request: IncomingRequest) -> Answered:
        stream = door.lines(request)
        try:
            while True:
                await stream.send({"type": "change", "data": "x" * 65_536})
        finally:
            ended.set()

    async with serving(flood) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await wire.reader.readuntil(b"\r\n\r\n")

        async with asyncio.timeout(patient(10)):
            await ended.wait()

        assert server.connection_count == 0


async def test_a_client_that_leaves_cancels_its_handler() -> None:
    """A wait in the server ends when nobody waits for it any more."""
    entered, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(door: Door, request: IncomingRequest) -> Answered:
        entered.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        raise AssertionError("unreachable")

    async with serving(wait) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await entered.wait()
        wire.close()

        async with asyncio.timeout(patient(10)):
            await cancelled.wait()


async def test_stopping_lets_requests_finish_and_takes_no_more() -> None:
    """What is under way is answered within the grace; the port is free at once."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(door: Door, request: IncomingRequest) -> Answered:
        entered.set()
        with door.closing.ends(go_on.set):
            await go_on.wait()
        return door.reply_now(request, {})

    async with serving(slow) as server:
        wire = await Wire.to(server)
        idle = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await entered.wait()

        stopping = asyncio.create_task(server.stop())
        status, _, _ = await wire.response()
        await stopping

        assert status == 200
        assert await idle.rest() == b""
        with pytest.raises(ConnectionRefusedError):
            await Wire.to(server)


async def test_stopping_does_not_wait_for_ever() -> None:
    """A handler that will not end is cancelled when the grace is over."""

    async def stuck(door: Door, request: IncomingRequest) -> Answered:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("unreachable")

    async with serving(stuck, shutdown_grace_ms=50) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await until(lambda: server.connection_count == 1)

        async with asyncio.timeout(patient(10)):
            await server.stop()

        assert await wire.rest() == b""


@pytest.mark.parametrize("ends_by", ["grace", "an end that is sooner"])
async def test_a_body_that_does_not_come_is_broken_off(ends_by: str) -> None:
    """aiohttp alone waits its time-out for the handler, and then once more for the body."""
    entered = asyncio.Event()

    async def reading(door: Door, request: IncomingRequest) -> Answered:
        entered.set()
        await cast(HttpRequest, request)._web.read()
        raise AssertionError("unreachable")

    is_grace = ends_by == "grace"
    grace_ms = 50 if is_grace else 3_600_000
    async with serving(reading, shutdown_grace_ms=grace_ms, body_deadline_ms=3_600_000) as server:
        wire = await Wire.to(server)
        await wire.send(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{")
        await entered.wait()

        async with asyncio.timeout(patient(10)):
            await server.stop(break_after_s=None if is_grace else 0.05)

        assert await wire.rest() == b""


async def test_our_own_mistake_is_logged_once_and_not_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An unexpected failure is a 500 without details, one traceback, and an unknown outcome."""

    async def broken(door: Door, request: IncomingRequest) -> Answered:
        raise RuntimeError("the secret is 42")

    async with serving(broken) as server:
        wire = await Wire.to(server)
        await wire.send(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")

        status, _, body = await wire.response()

        problem = json.loads(body)
        assert (status, problem["code"], problem["definite"]) == (500, "Error", False)
        assert b"secret" not in body
        assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_a_stream_that_breaks_is_cut_and_not_answered_twice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After the first byte there is no other response; the reader sees an end without a reason."""

    async def broken(door: Door, request: IncomingRequest) -> Answered:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun")
        raise RuntimeError("the secret is 42")

    async with serving(broken) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")

        said = await wire.rest()

        assert said.count(b"HTTP/1.1") == 1
        assert not said.endswith(b"0\r\n\r\n")
        assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_what_is_not_there_is_a_problem_with_its_labels() -> None:
    """Unknown routes and methods are problems; every response says who answers."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /nothing%0a/here?secret HTTP/1.1\r\nHost: h\r\n\r\n")

        status, headers, body = await wire.response()

        assert (status, json.loads(body)["code"]) == (404, "NoRoute")
        assert "secret" not in json.loads(body)["detail"]
        assert (headers["coordinator-member"], headers["coordinator-zxid"]) == ("1", "7")


async def test_another_site_cannot_make_a_browser_write() -> None:
    """A page that finds the loopback door is refused; reads are guarded by the browser itself."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(
            b"POST /x HTTP/1.1\r\nHost: h\r\nSec-Fetch-Site: cross-site\r\n"
            b"Content-Length: 0\r\n\r\n"
        )

        assert (await wire.response())[0] == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"127.0.0.1:7071", 200), (b"10.0.0.1", 200), (b"[::1]:7071", 200), (b"localhost:1", 200),
        (b"LOCALHOST", 200), (b"h", 200), (b"db.internal:80", 200), (b"evil.example", 403),
        (b"localhost.evil.example", 403), (b"127.0.0.1.evil.example", 403), (b"", 403),
        (b"[::1", 403), (b"a\r\nHost: h", 400), (b"[::1]x:1", 403), (b"db.internal.", 200),
        (b"evildb.internal", 403), (b"db.internal.evil", 403), (b"x.db.internal", 403),
        (b"locks.example", 403), (b"a.locks.example", 200), (b"a.b.LOCKS.example:1", 200),
        (b"evillocks.example", 403), (b".locks.example", 200), (b"alocks.example", 403),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bind_host", ["127.0.0.1", "0.0.0.0"])
async def test_only_known_names_are_answered(host: bytes, status: int, bind_host: str) -> None:
    """A site whose name was made to point here (DNS rebinding) gets nothing, not even reads,
    wherever the member listens; names are compared label by label."""
    urls = ["http://db.internal:7071"]
    told = {"allowed_hosts": "h, *.Locks.example", "bind_host": bind_host, "tls": "off"}
    async with serving(client_urls=urls, **told) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")

        assert (await wire.response())[0] == status


@pytest.mark.parametrize("changes", [{}, {"bind_host": "0.0.0.0", "tls": "off"}])
async def test_any_name_when_told_so(
    changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The operator may switch it off; the log says what that means."""
    async with serving(allowed_hosts="*", **changes) as server:
        assert "allowed_hosts is *" in caplog.text
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: any.example\r\n\r\n")

        assert (await wire.response())[0] == 200


@pytest.mark.parametrize("sent", [b"GET /x\r\n\r\n", b"GET /x HTTP/0.9\r\n\r\n"])
async def test_a_request_without_a_version_is_none(sent: bytes) -> None:
    """HTTP/0.9 has neither hosts nor headers to check."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(sent)

        assert (await wire.response())[0] == 400


async def test_half_a_header_sent_ahead_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What comes while a request runs has its deadline, too, from when the request has ended."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def slow(door: Door, request: IncomingRequest) -> Answered:
        entered.set()
        await go_on.wait()
        return door.reply_now(request, {})

    async with serving(slow, idle_deadline_ms=60_000) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await entered.wait()
        await wire.send(b"GET /x HTTP/1.1\r\nHo")
        await asyncio.sleep(0.3)  # longer than a header may take: the request is not cut
        go_on.set()
        began = asyncio.get_running_loop().time()

        assert (await wire.response())[0] == 200
        assert await wire.rest() == b""
        assert elapsed_ms(began) < patient(2_000)


async def test_a_taken_port_is_named() -> None:
    """The error says which address, and what to do."""
    async with serving() as server:
        taken = replace(FAST, bind_port=server.port)
        what = Served(Door(cast(Any, QuietMember()), taken, SystemClock()), ())

        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{server.port} is taken"):
            await HttpServer(what, taken).start()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
async def test_beyond_loopback_only_when_told(host: str) -> None:
    """A door without TLS does not open to the network by mistake."""
    config = replace(FAST, bind_host=host)
    what = Served(Door(cast(Any, QuietMember()), config, SystemClock()), ())

    with pytest.raises(ConfigError, match="tls_cert_file"):
        await HttpServer(what, config).start()


async def test_told_to_it_listens_on_every_address() -> None:
    """The operator may decide otherwise."""
    async with serving(bind_host="0.0.0.0", tls="off") as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")

        assert (await wire.response())[0] == 200
        assert server.url == f"http://127.0.0.1:{server.port}"


async def test_a_long_line_that_is_given_up_ends_the_connection() -> None:
    """Half a line must not look like the last one: no end of the response comes after it."""
    given_up = asyncio.Event()

    async def long_line(door: Door, request: IncomingRequest) -> Answered:
        stream = door.lines(request)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await stream.send({"type": "change", "data": "x" * 20_000_000})
        given_up.set()
        await stream.end()
        return stream

    async with serving(long_line) as server:
        wire = await Wire.to(server)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await given_up.wait()
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]

        assert not (await wire.rest()).endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("coding", "status"),
    [(b"chunked", 200), (b"Chunked", 200), (b"gzip, chunked", 400), (b"identity, chunked", 400)],
)
async def test_only_chunks_are_a_transfer_coding(coding: bytes, status: int) -> None:
    """What else the body would be packed in is not unpacked, so it is not taken either."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(
            b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
            b"2\r\n{}\r\n0\r\n\r\n"
        )

        assert (await wire.response())[0] == status
