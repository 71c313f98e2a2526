"""Headers and bodies that come late, in part, or are too large."""

from __future__ import annotations

import asyncio
import json
from typing import cast

import pytest

from coordinator.wire.http.adapter import HttpRequest
from coordinator.wire.request import Answered, IncomingRequest
from coordinator.wire.routes.door import Door
from tests.patience import patient
from tests.wire.raw_connection import (
    Wire,
    elapsed_ms,
    serving,
    until,
)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /x HT", b"GET /x HTTP/1.1\r\nHost: h\r\nA: b"])
async def test_half_a_header_is_not_waited_for(sent: bytes) -> None:
    """A connection without a whole header is closed at its deadline, not before."""
    async with serving() as server:
        began = asyncio.get_running_loop().time()
        wire = await Wire.to(server)
        await wire.send(sent)

        assert await wire.rest() == b""
        assert 80 <= elapsed_ms(began) < patient(2_000)


async def test_a_header_in_drips_has_one_deadline() -> None:
    """Each byte in time does not add up to more time."""
    async with serving(header_deadline_ms=200) as server:
        wire = await Wire.to(server)
        began = asyncio.get_running_loop().time()

        async def drip() -> None:
            while True:
                await wire.send(b"G")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        await wire.rest()
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)

        assert elapsed_ms(began) < patient(1_500)


async def test_the_next_header_has_a_deadline_of_its_own() -> None:
    """On a kept connection it counts from the first byte of the next request."""
    async with serving(idle_deadline_ms=60_000) as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        assert (await wire.response())[0] == 200
        await asyncio.sleep(0.25)  # idle for longer than a header may take: that is allowed
        began = asyncio.get_running_loop().time()
        await wire.send(b"GET /x HT")

        assert await wire.rest() == b""
        assert 80 <= elapsed_ms(began) < patient(2_000)


async def test_a_body_that_comes_after_its_header_leaves_the_connection_open() -> None:
    """As http.client sends it: nothing of a next request has come, whose header would be late."""
    entered = asyncio.Event()

    async def reading(door: Door, request: IncomingRequest) -> Answered:
        entered.set()
        assert await door.raw_body(request) == b"body"
        return door.reply_now(request, {})

    async with serving(reading, idle_deadline_ms=60_000) as server:
        wire = await Wire.to(server)
        for _ in range(2):
            entered.clear()
            await wire.send(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n")
            await entered.wait()
            await wire.send(b"body")
            assert (await wire.response())[0] == 200
            await asyncio.sleep(0.25)  # idle for longer than a header may take: that is allowed


async def test_an_idle_connection_is_closed_in_the_end() -> None:
    """A kept connection that asks nothing goes at the idle deadline."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n\r\n")
        await wire.response()
        began = asyncio.get_running_loop().time()

        assert await wire.rest() == b""
        assert 200 <= elapsed_ms(began) < patient(3_000)


async def test_half_a_body_is_not_waited_for() -> None:
    """A body that does not come is a 408 and the end of the connection."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf")

        status, headers, body = await wire.response()

        assert status == 408
        assert json.loads(body)["code"] == "SlowRequest"
        assert headers["connection"] == "close"
        assert await wire.rest() == b""


async def test_bodies_that_come_in_part_are_bounded_together() -> None:
    """The one too much is a 429 before the rest of it has come; whole ones are taken meanwhile, and
    so is everything once the slow ones have gone."""
    head = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n"
    async with serving(
        bodies_bytes_max=4_000, body_bytes_max=1_000, body_deadline_ms=5_000
    ) as server:
        slow = [await Wire.to(server) for _ in range(3)]
        door = server._door
        for wire in slow[:2]:
            await wire.send(head + b"x" * 800)
        await until(lambda: door.body_bytes.total == 1_600)
        await slow[2].send(head + b"x" * 800)

        status, _, body = await slow[2].response()

        assert (status, json.loads(body)["code"]) == (429, "Throttled")
        whole = await Wire.to(server)
        await whole.send(head + b"x" * 900)
        assert (await whole.response())[0] == 200
        for wire in slow[:2]:
            await wire.send(b"x" * 100)
            assert (await wire.response())[0] == 200
        await whole.send(head + b"x" * 800)
        await until(lambda: door.body_bytes.total == 800)
        await whole.send(b"x" * 100)
        assert (await whole.response())[0] == 200
        assert door.body_bytes.total == 0


@pytest.mark.parametrize("cut", [0, 400])
async def test_a_request_keeps_no_body_that_was_read(cut: int) -> None:
    """Whether it came whole or in part: an acquire may wait for hours after that."""
    kept: list[bytes] = []

    async def look(door: Door, request: IncomingRequest) -> Answered:
        await door.raw_body(request)
        kept.append(await cast(HttpRequest, request)._web.read())
        return door.reply_now(request, {})

    async with serving(look) as server:
        wire = await Wire.to(server)
        sent = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n" + b"x" * 900
        await wire.send(sent[: len(sent) - cut])
        if cut:
            await until(lambda: server._door.body_bytes.total == 900 - cut)
        await wire.send(sent[len(sent) - cut :])

        assert (await wire.response())[0] == 200
        assert kept == [b""]


@pytest.mark.parametrize("head", [b"Content-Length: 900", b"Transfer-Encoding: chunked"])
async def test_a_stream_has_no_body_waiting_beside_it(head: bytes) -> None:
    """It is refused, with all of it or a part of it there; an empty one is none."""

    async def stream(door: Door, request: IncomingRequest) -> Answered:
        door.refuse_body(request)
        return door.reply_now(request, {})

    async with serving(stream) as server:
        for sent in (b"", b"3e8\r\n" + b"x" * 600):
            wire = await Wire.to(server)
            await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n" + head + b"\r\n\r\n" + sent)
            status, _, body = await wire.response()
            assert (status, json.loads(body)["code"]) == (400, "BadArguments")
        wire = await Wire.to(server)
        for none in (b"Content-Length: 0\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"):
            await wire.send(b"GET /x HTTP/1.1\r\nHost: h\r\n" + none)
            assert (await wire.response())[0] == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"Content-Length: 1001\r\n\r\n",
        b"Content-Length: 99999999999\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1_001 + b"\r\n0\r\n\r\n",
    ],
)
async def test_a_large_body_is_refused_unread(sent: bytes) -> None:
    """Over the limit is a 413, announced or not."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(b"POST /x HTTP/1.1\r\nHost: h\r\n" + sent)

        status, _, body = await wire.response()

        assert status == 413
        assert json.loads(body)["limit"] == 1_000


async def test_a_body_at_the_limit_is_taken_and_never_inflated() -> None:
    """The limit itself passes; a Content-Encoding is not undone."""
    async with serving() as server:
        wire = await Wire.to(server)
        await wire.send(
            b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\n"
            b"Content-Length: 1000\r\n\r\n" + b"\x1f" * 1_000
        )

        status, _, body = await wire.response()

        assert (status, json.loads(body)) == (200, {"bytes": 1_000})


async def test_a_client_that_asks_first_is_told() -> None:
    """100 Continue for what is welcome, 413 at once for what is not."""
    async with serving() as server:
        wire = await Wire.to(server)
        head = b"POST /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: "
        await wire.send(head + b"4\r\n\r\n")
        assert (await wire.response())[0] == 100
        await wire.send(b"body")
        assert (await wire.response())[2] == b'{"bytes":4}'

        await wire.send(head + b"1001\r\n\r\n")

        assert (await wire.response())[0] == 413
