"""The relay in front of a member: it knows who dials, drops what is cut, and closes what lost."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.cli.learn_members import RELAYED_HOST, can_relay
from coordinator.cli.member_relay import MemberRelay
from coordinator.raft.network.handshake import Dialer, Identity

pytestmark = pytest.mark.skipif(not can_relay(), reason="127.0.0.2 is not loopback here")
HOST = "127.0.0.1"


def hello(caller: str) -> bytes:
    """What member ``caller`` says first when it dials member 1."""
    payload = Dialer(Identity("dev", member_id=caller, secret=b"s" * 32), "1", b"n" * 32).begin()
    return struct.pack(">I", len(payload)) + payload


class Echo:
    """A member that sends back what it gets."""

    def __init__(self) -> None:
        self.heard = bytearray()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1_000):
            self.heard += data
            writer.write(data)
        writer.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[MemberRelay, int]]:
    echo = await asyncio.start_server(Echo().serve, RELAYED_HOST, 0)
    port = echo.sockets[0].getsockname()[1]
    relay = MemberRelay("1", host=HOST, target_host=RELAYED_HOST, port=port)
    await relay.start()
    try:
        yield relay, port
    finally:
        await relay.stop()
        echo.close()


async def dial(port: int, caller: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(hello(caller))
    return reader, writer


async def test_what_is_not_cut_goes_through() -> None:
    async with relayed() as (_, port):
        reader, writer = await dial(port, "2")
        assert await reader.readexactly(len(hello("2"))) == hello("2")
        writer.write(b"more")
        assert await reader.readexactly(4) == b"more"
        writer.close()


@pytest.mark.parametrize("cut", ["1", "2"])
async def test_a_cut_at_either_end_drops_what_comes(cut: str) -> None:
    """The link of members 1 and 2; that of 3 to 1 is cut only with 1. The links stay open."""
    async with relayed() as (relay, port):
        reader, writer = await dial(port, "2")
        other_reader, other = await dial(port, "3")
        await reader.readexactly(len(hello("2")))
        await other_reader.readexactly(len(hello("3")))
        relay.cut_off = frozenset({cut})
        writer.write(b"lost")
        other.write(b"other")
        if cut == "2":
            assert await other_reader.readexactly(5) == b"other"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await reader.readexactly(1)
        relay.heal()
        assert await reader.read() == b""  # it has lost bytes, and is closed
        writer.close()
        other.close()


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">I", 3) + msgpack.packb([1])[:3] + b"  "]
)
async def test_who_does_not_say_who_it_is_is_hung_up_on(said: bytes) -> None:
    async with relayed() as (_, port):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(said)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
