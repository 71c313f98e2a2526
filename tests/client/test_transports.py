"""The network and its stand-in in memory: what is said when a connection misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from coordinator.client import HttpTransport, InProcessTransport, Request
from coordinator.client.calling.transport import LateTransport, Transport
from coordinator.errors import ClientClosedError, ConnectionLostError, UnavailableError
from tests.client.memory_cluster import LEFT, MemoryCluster, in_memory

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[tuple[HttpTransport, str]]:
    finished = asyncio.Event()

    async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve(reader, writer)
        await writer.wait_closed()
        finished.set()

    server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = HttpTransport()
    try:
        yield transport, f"http://127.0.0.1:{port}"
    finally:
        await transport.close()
        server.close()
        await asyncio.wait_for(finished.wait(), 5)


async def head(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def test_a_deaf_member_is_an_indefinite_error_in_time() -> None:
    """A connection that is accepted and never answered may have carried the request."""

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with listening(deaf) as (transport, url):
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectionLostError, match="no answer within 200 ms"):
            await transport.request(
                url, Request("POST", target="/v1/tree/a", headers={}, body=b"{}"), 200
            )
        assert asyncio.get_running_loop().time() - began < 2


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"this is not HTTP\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off_is_an_indefinite_error(said: bytes) -> None:
    """Whatever was understood of it, the request may have been done."""

    async def breaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(said)
        await writer.drain()
        writer.close()

    async with listening(breaks) as (transport, url):
        with pytest.raises(ConnectionLostError):
            await transport.request(url, Request("POST", "/v1/tree/a"), 2_000)


async def test_a_refused_connection_and_an_unknown_host_are_definite() -> None:
    """Nothing was sent, so nothing can have happened."""
    transport = HttpTransport()
    for url in ("http://127.0.0.1:9", "http://no-such-host.invalid:7071"):
        with pytest.raises(UnavailableError):
            await transport.request(url, Request("GET", "/v1/status"), 5_000)
    await transport.close()
    with pytest.raises(ClientClosedError):
        await transport.request("http://127.0.0.1:9", Request("GET", "/v1/status"), 1_000)


async def test_a_late_transport_is_made_by_its_first_request_once() -> None:
    """It passes everything on, also that it was closed."""
    made: list[HttpTransport] = []

    def make() -> Transport:
        made.append(HttpTransport())
        return made[-1]

    transport = LateTransport(make)
    assert not made
    for _ in range(2):
        with pytest.raises(UnavailableError):
            await transport.request("http://127.0.0.1:9", Request("GET", "/v1/status"), 5_000)
    with pytest.raises(UnavailableError):
        async with transport.stream("http://127.0.0.1:9", Request("GET", "/v1/status"), 5_000):
            pass
    assert len(made) == 1
    await transport.close()
    with pytest.raises(ClientClosedError):
        await transport.request("http://127.0.0.1:9", Request("GET", "/v1/status"), 5_000)
    assert made[0]._is_closed


async def test_a_late_transport_that_was_closed_is_made_no_more() -> None:
    transport = LateTransport(HttpTransport)
    await transport.close()
    with pytest.raises(ClientClosedError):
        await transport.request("http://127.0.0.1:9", Request("GET", "/v1/status"), 5_000)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("body", [None, b"{}"])
async def test_a_request_is_sent_once_when_a_kept_connection_breaks(
    method: str, body: bytes | None
) -> None:
    """aiohttp would send the idempotent ones again; the answer to that is not the first one's."""
    seen: list[bytes] = []

    async def breaks_at_the_second(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        for _ in range(2):
            seen.append(await reader.readuntil(b" "))
            await head(reader)
            if len(seen) == 1:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        writer.close()

    async with listening(breaks_at_the_second) as (transport, url):
        assert (
            await transport.request(url, Request("POST", target="/", headers={}, body=None), 2_000)
        ).status == 200
        with pytest.raises(ConnectionLostError):
            await transport.request(
                url, Request(method, target="/v1/tree/a", headers={}, body=body), 2_000
            )

        assert seen == [b"POST ", f"{method} ".encode()]


async def test_a_redirect_is_not_followed() -> None:
    """A write must not wander to where nobody asked for it."""

    async def redirects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 307 x\r\nLocation: http://127.0.0.1:9/\r\n")
        writer.write(b"Content-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with listening(redirects) as (transport, url):
        response = await transport.request(url, Request("POST", "/v1/tree/a"), 2_000)
        assert response.status == 307


async def test_lines_arrive_as_they_are_written_however_they_are_cut() -> None:
    """A stream is read line by line, over any boundaries of packets."""
    said = [b'{"a":', b'1}\n{"b"', b":2}\n", b"\n", b'{"c":3}\n{"d":4}\n']

    async def streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in said:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with listening(streams) as (transport, url):
        lines = []
        async with transport.stream(url, Request("GET", "/"), 2_000) as stream:
            while (line := await stream.line()) is not None:
                lines.append(line)
        assert lines == [b'{"a":1}', b'{"b":2}', b"", b'{"c":3}', b'{"d":4}']


@in_memory
async def test_large_bodies_pass_in_memory_in_both_directions(world: MemoryCluster) -> None:
    """The pipe holds its writer back and lets it go on again."""
    async with world.client() as client:
        data = bytes(range(256)) * 4_000
        await client.create("/large", data)
        assert (await client.get("/large")).data == data
        assert (await client.set("/large", data[::-1])).stat.data_length == len(data)


@in_memory
async def test_a_member_that_was_removed_refuses_connections(world: MemoryCluster) -> None:
    """What is not there behaves as a dead member's port does."""
    transport = InProcessTransport({LEFT: web.Application()})
    assert (await transport.request(LEFT, Request("GET", "/"), 1_000)).status == 404
    transport.remove(LEFT)
    with pytest.raises(UnavailableError):
        await transport.request(LEFT, Request("GET", "/"), 1_000)
    await transport.close()
