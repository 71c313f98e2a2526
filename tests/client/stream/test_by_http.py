"""What the stream does not carry, and members that do not speak it, are asked by HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    BadArgumentsError,
    ShuttingDownError,
    UnavailableError,
    to_problem,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import A, Http, Network, Peer, echo, get, linked
from tests.client.virtual_time import run


def test_goaway_instead_of_welcome_is_what_it_says() -> None:
    """A member that is full, or stops, is no member without the stream."""

    def full(peer: Peer, frame: FromClient) -> None:
        peer.send(frames.GoAway(to_problem(ShuttingDownError("stopping"))))

    async def scenario() -> None:
        _, transport = linked(full, http=Http())
        with pytest.raises(ShuttingDownError, match="stopping"):
            await transport.request(A, get("/"), 1_000)
        await transport.close()

    run(scenario())


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", b"\0\0\0\1\xc0"])
def test_a_member_without_the_stream_is_asked_by_http(said: bytes) -> None:
    """It is asked for the stream again only after a while."""

    class OnlyHttp(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self._transport = transport

        def data_received(self, data: bytes) -> None:
            self._transport.write(said)
            self._transport.close()

    async def scenario() -> None:
        network, http = Network(), Http()
        network.members[A] = OnlyHttp
        transport = StreamTransport(connect=network.connect, http=http)
        for _ in range(3):
            assert (await transport.request(A, get("/"), 1_000)).body == b"by HTTP"
        assert len(network.peers[A]) == 1
        network.add(A, echo)
        await asyncio.sleep(61)
        assert (await transport.request(A, get("/"), 1_000)).body == b"/"
        await transport.close()
        alone = StreamTransport(connect=network.connect)
        network.members[A] = OnlyHttp
        with pytest.raises(UnavailableError, match="speaks the stream"):
            await alone.request(A, get("/"), 1_000)
        await alone.close()

    run(scenario())


def test_a_member_of_another_version_is_asked_by_http() -> None:
    """It says so by GOAWAY; nothing was sent but HELLO."""

    def refuse(peer: Peer, frame: FromClient) -> None:
        mistake = BadArgumentsError("stream: expected version 2, found 1")
        peer.send(frames.GoAway(to_problem(mistake)))
        peer.transport.close()

    async def scenario() -> None:
        _, transport = linked(refuse, http=Http())

        assert (await transport.request(A, get("/"), 1_000)).body == b"by HTTP"
        await transport.close()

    run(scenario())


def test_a_member_that_welcomes_nobody_is_asked_by_http() -> None:
    """What holds back the first bytes may be a proxy."""

    async def scenario() -> None:
        network, http = Network(), Http()
        network.add(A, lambda peer, frame: None)
        transport = StreamTransport(connect=network.connect, http=http)
        with pytest.raises(UnavailableError, match=r"cannot connect within 0\.5 s"):
            await transport.request(A, get("/"), 1_000)
        await asyncio.sleep(2)
        assert (await transport.request(A, get("/"), 1_000)).body == b"by HTTP"
        await transport.close()

    run(scenario())


def test_a_body_that_the_stream_does_not_take_goes_by_http() -> None:
    """Its limit is the frame's; what is too long anywhere is refused there."""

    def small(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Hello):
            settings = frames.WelcomeSettings("n1", frame_bytes_max=20_000)
            peer.send(frames.Welcome(frames.VERSION, settings))
        else:
            echo(peer, frame)

    async def scenario() -> None:
        network, http = Network(), Http()
        network.add(A, small)
        transport = StreamTransport(connect=network.connect, http=http)
        assert (await transport.request(A, get("/a", bytes(3_000)), 1_000)).body == b"/a"
        assert (await transport.request(A, get("/b", bytes(30_000)), 1_000)).body == b"by HTTP"
        await transport.close()

    run(scenario())
