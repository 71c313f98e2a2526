"""Writes and linearizable reads go to the leader, if it is one of the endpoints and is reached."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from coordinator.client.calling.leader import KnownLeader
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    ThrottledError,
    to_problem,
)
from coordinator.wire.arrival import refusal
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import A, B, Http, Network, Peer, echo, get, welcome
from tests.client.virtual_time import run


def leading(url: str | None) -> Callable[[Peer, FromClient], None]:
    def respond(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Hello):
            welcome(peer, leader_url=url)
        else:
            echo(peer, frame)

    return respond


def test_the_leader_is_followed_once_it_is_reached() -> None:
    """WELCOME and LEADER name it; one that fails is left, and tried again after a while."""

    async def scenario() -> None:
        network, leader = Network(), KnownLeader([A, B])
        network.add(A, leading("HTTP://B:1/"))
        network.add(B, leading(B))
        transport = StreamTransport(leader, connect=network.connect)
        await transport.request(A, get("/"), 1_000)
        await asyncio.sleep(0.1)
        assert leader.url == B

        network.peer(B).transport.close()  # it dies
        del network.members[B]
        await asyncio.sleep(0.1)
        assert leader.url is None
        network.peer(A).send(frames.Leader(None), frames.Leader(A))
        await asyncio.sleep(0.1)
        assert leader.url == A

        network.add(B, leading(B))  # and leads again
        network.peer(A).send(frames.Leader(B))
        await asyncio.sleep(2)
        assert leader.url == B
        leader.leave(B)
        assert leader.url is None
        await asyncio.sleep(0.5)
        assert leader.url is None
        await asyncio.sleep(1)
        assert leader.url == B
        await transport.close()

    run(scenario())


def test_a_leader_that_cannot_be_reached_is_not_preferred() -> None:
    """It is down, or cut off from this client: requests go where they went. It is looked for again,
    ever more rarely, for whoever leads may not change when the network has healed."""

    async def scenario() -> None:
        network, leader, tried = Network(), KnownLeader([A, B]), 0

        async def connect(endpoint: str, make: Callable[[], asyncio.Protocol]) -> object:
            nonlocal tried
            tried += endpoint == B
            return await network.connect(endpoint, make)

        network.add(A, leading(B))
        transport = StreamTransport(leader, connect=connect)
        for _ in range(3):
            assert (await transport.request(A, get("/"), 1_000)).body == b"/"
        await asyncio.sleep(3_600)
        assert leader.url is None
        assert 60 <= tried <= 70
        network.add(B, leading(B))
        await asyncio.sleep(60)
        assert leader.url == B
        await transport.close()

    run(scenario())


@pytest.mark.parametrize("is_welcomed", [False, True])
def test_a_leader_that_is_full_is_not_asked_again_soon(is_welcomed: bool) -> None:
    """Thousands of clients of one address prefer one member, which takes two thousand: the others
    stay where they are. A spare connection of a full member is welcomed, and answered once."""
    asked = 0

    def full(peer: Peer, frame: FromClient) -> None:
        nonlocal asked
        error = ThrottledError("expected at most 2000 connections")
        if not is_welcomed:
            asked += 1
            peer.transport.write(refusal(error.message))
            peer.transport.close()
        elif isinstance(frame, frames.Hello):
            welcome(peer, leader_url=B)
        elif isinstance(frame, frames.RequestFrame):
            asked += 1
            body = encode(to_problem(error), Encoding.MSGPACK)
            peer.send(frames.AnswerFrame(frame.id, status=503, headers={}, body=body))
            peer.send(frames.GoAway(to_problem(error)))
            peer.transport.close()

    async def scenario() -> None:
        network, leader, http = Network(), KnownLeader([A, B]), Http()
        network.add(A, leading(B))
        network.add(B, full)
        transport = StreamTransport(leader, connect=network.connect, http=http)
        for _ in range(100):
            answer = await transport.request(leader.url or A, get("/"), 1_000)
            if answer.status == 503:
                leader.leave(B)
            await asyncio.sleep(0.1)
        assert asked == 1
        assert http.asked == []

        network.add(B, leading(B))
        await asyncio.sleep(100)
        assert leader.url == B
        await transport.close()

    run(scenario())


@pytest.mark.parametrize("announced", [B, "http://b", "https://a:1", "http://a:x", ""])
def test_nobody_but_an_endpoint_is_preferred(announced: str) -> None:
    """A client of a proxy, a forwarded port or TLS is not led around it, whatever is announced."""

    async def scenario() -> None:
        network, leader = Network(), KnownLeader([A])
        network.add(A, leading(announced))
        network.add(B, leading(B))
        network.add("http://b", leading(B))
        transport = StreamTransport(leader, connect=network.connect)
        await transport.request(A, get("/"), 1_000)
        await asyncio.sleep(5)
        assert (leader.url, list(network.peers)) == (None, [A])
        await transport.close()

    run(scenario())


@pytest.mark.parametrize(
    ("endpoint", "announced"),
    [
        ("http://n1", "http://N1:80/"),
        ("http://n1:80", "http://n1"),
        ("http://[::1]:7071", "http://[::1]:7071/"),
    ],
)
def test_one_url_is_spelt_in_several_ways(endpoint: str, announced: str) -> None:
    """The endpoint is what the user wrote, whatever the configuration of the cluster says."""
    leader = KnownLeader([endpoint])
    assert leader.endpoint_of(announced) == endpoint
