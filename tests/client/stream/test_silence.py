"""A member that falls silent while a request waits: it is asked, and the request goes elsewhere."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.stream.patience import ANSWER_MS, ASK_MS, PROOF_MS
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import ConnectionLostError, CoordinatorError
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.first_member import beginning_at
from tests.client.stream.listening import scripted, serve, written
from tests.client.stream.scripted import (
    A,
    B,
    Network,
    Peer,
    echo,
    ended,
    get,
    linked,
    until,
    welcome,
)
from tests.client.virtual_time import LoopClock, run

SILENCE_S = (ASK_MS + ANSWER_MS) / 1000
URL = "http://c:1"


class Host:
    """A member that serves, names ``leader_url`` as leader, and can vanish without a word."""

    def __init__(self, leader_url: str) -> None:
        self.leader_url: str | None = leader_url
        self.is_gone = False
        self.peers: list[Peer] = []
        self.numbers: list[str | None] = []
        """The request numbers of the writes that arrived."""

    def respond(self, peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame) and frame.method != "GET":
            self.numbers.append(frame.headers.get("coordinator-request-number"))
        if self.is_gone:
            return
        if isinstance(frame, frames.Hello):
            self.peers.append(peer)
            welcome(peer, leader_url=self.leader_url)
        elif isinstance(frame, frames.PingFrame):
            peer.send(frames.Pong(frame.number))
        elif isinstance(frame, frames.RequestFrame) and "locks" in frame.target:
            peer.send(frames.Head(frame.id, status=200, headers={}))  # it waits in the queue
        else:
            serve(peer, frame)

    def name_leader(self, url: str) -> None:
        self.leader_url = url
        for peer in self.peers:
            peer.send(frames.Leader(url))


async def led_by_a(network: Network, hosts: dict[str, Host], first: str) -> AsyncClient:
    """Return a client that began at ``first`` and sends its writes to A, the leader."""
    for url, host in hosts.items():
        network.add(url, host.respond)
    transport = StreamTransport(KnownLeader(), connect=network.connect)
    policy = beginning_at(first, list(hosts))
    clock = LoopClock(asyncio.get_running_loop())
    client = await connect(list(hosts), transport=transport, retry=policy, clock=clock)
    while not hosts[A].numbers:
        await client.set("/a", b"")
        await asyncio.sleep(0.1)
    return client


@pytest.mark.parametrize("first", [A, B, URL])
@pytest.mark.parametrize("led_again_s", [0.55, 0.8])
def test_a_write_goes_to_the_next_leader_as_soon_as_it_is_named(
    first: str, led_again_s: float
) -> None:
    """The leader's host vanishes; its writer, wherever it began, is answered within a second, and
    the repetition is the same request."""

    async def scenario() -> None:
        hosts, loop = {url: Host(A) for url in (A, B, URL)}, asyncio.get_running_loop()
        client = await led_by_a(Network(), hosts, first)
        hosts[A].is_gone = True
        began_s, before = loop.time(), len(hosts[A].numbers)
        for url in (B, URL):
            loop.call_later(led_again_s, hosts[url].name_leader, B)

        await client.set("/a", b"")

        assert loop.time() - began_s <= 1.0
        (lost,) = hosts[A].numbers[before:]
        assert lost in hosts[B].numbers + hosts[URL].numbers
        await client.close()

    run(scenario())


def test_what_waits_in_a_queue_goes_to_the_next_leader_as_well() -> None:
    """Lines that have begun wait for as long as it takes; not at a leader that is replaced."""

    async def scenario() -> None:
        network, hosts = Network(), {url: Host(A) for url in (A, B)}
        for url, host in hosts.items():
            network.add(url, host.respond)
        transport = StreamTransport(KnownLeader([A, B]), connect=network.connect)
        await transport.request(B, get("/"), 1_000)
        await asyncio.sleep(0.1)
        assert transport.leader.url == A
        async with transport.stream(A, get("/v1/locks/x"), 1_000) as lines:
            waiting = asyncio.ensure_future(lines.line())
            hosts[B].name_leader(B)
            await asyncio.sleep(1)
            assert not waiting.done(), "it was heard: it passes on what it is asked"
            hosts[B].name_leader(A)
            await asyncio.sleep(0.1)

            hosts[A].is_gone = True
            await asyncio.sleep(0.5)
            hosts[B].name_leader(B)
            await asyncio.sleep(0.5)

            with pytest.raises(ConnectionLostError, match="another member leads"):
                await waiting
        await transport.close()

    run(scenario())


def test_a_member_that_answers_pings_may_take_its_time() -> None:
    """A write waits for a quorum, a lock for its holder: only a silent member is left."""

    async def scenario() -> None:
        late: list[tuple[Peer, int]] = []

        def slow(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.RequestFrame):
                late.append((peer, frame.id))
            else:
                echo(peer, frame)

        network, transport = linked(slow)
        asking = asyncio.ensure_future(ended(transport.request(A, get("/"), 10_000)))
        await asyncio.sleep(5)
        assert not asking.done()
        peer, number = late[0]
        peer.send(frames.AnswerFrame(number, status=200, headers={}, body=b"late"))
        answer = await asking
        assert not isinstance(answer, CoordinatorError)
        assert answer.body == b"late"
        assert len(network.peers[A]) == 1
        await transport.close()

    run(scenario())


def test_a_member_that_wakes_keeps_its_connection_and_one_that_does_not_loses_it() -> None:
    """What waited went elsewhere; lines wait on, and new requests take another connection."""

    async def scenario(silent_s: float, is_kept: bool) -> None:
        host = Host(A)
        network, transport = linked(host.respond)
        loop = asyncio.get_running_loop()
        async with transport.stream(A, get("/v1/locks/x"), 1_000) as lines:
            waiting = asyncio.ensure_future(lines.line())
            host.is_gone = True
            began_s = loop.time()
            with pytest.raises(ConnectionLostError, match=r"the member said nothing for 1\.0 s"):
                await transport.request(A, get("/"), 10_000)
            assert loop.time() - began_s == pytest.approx(SILENCE_S, abs=0.01)
            await asyncio.sleep(silent_s)
            host.is_gone = False
            if not network.peers[A][0].is_lost:
                network.peers[A][0].send(frames.Pong(99))
            await asyncio.sleep(1)
            assert (await transport.request(A, get("/"), 1_000)).status == 200
            assert waiting.done() != is_kept
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await transport.close()

    run(scenario(PROOF_MS / 2000, True))
    run(scenario(PROOF_MS / 1000 + 0.1, False))


def test_a_frozen_member_is_not_taken_for_one_without_the_stream() -> None:
    """It takes connections, as its kernel does, and says nothing; awake it is asked as before."""

    async def scenario() -> None:
        host = Host(A)
        _network, transport = linked(host.respond)
        assert (await transport.request(A, get("/"), 1_000)).status == 200
        host.is_gone = True
        for _ in range(3):
            assert isinstance(await ended(transport.request(A, get("/"), 3_000)), CoordinatorError)
        host.is_gone = False
        await asyncio.sleep(2)  # longer than the handshake under way may take
        assert (await transport.request(A, get("/"), 1_000)).status == 200
        await transport.close()

    run(scenario())


def test_what_is_long_on_its_way_to_a_member_has_the_time_for_it() -> None:
    """An answer, and a PONG, come behind all that was sent: over a slow network, seconds later."""

    async def scenario() -> None:
        host = Host(A)
        _network, transport = linked(host.respond)
        assert (await transport.request(A, get("/"), 1_000)).status == 200
        host.is_gone = True
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(ConnectionLostError):
            await transport.request(A, get("/", bytes(900_000)), 60_000)
        assert 5 < loop.time() - began_s < 10
        await transport.close()

    run(scenario())


# --- threads


def silenced(is_gone: threading.Event, respond: Callable[[Peer, FromClient], None]) -> Any:
    """Return ``respond`` until ``is_gone`` is set."""
    return lambda peer, frame: None if is_gone.is_set() else respond(peer, frame)


def test_threads_leave_a_leader_that_is_silent_when_another_one_is_named() -> None:
    """Long before their deadline, and before the member is taken for dead."""
    is_gone, peers = threading.Event(), list[Peer]()
    numbers: list[str | None] = []

    def leads(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Hello):
            welcome(peer, leader_url=leader)
        elif isinstance(frame, frames.RequestFrame) and frame.method == "PUT":
            numbers.append(frame.headers.get("coordinator-request-number"))
            peer.send(written(frame.id))
        else:
            serve(peer, frame)

    with scripted(silenced(is_gone, leads)) as leader:

        def follows(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.Hello):
                peers.append(peer)
                welcome(peer, leader_url=leader)
            else:
                serve(peer, frame)

        with scripted(follows) as url:
            both = [url, leader]
            policy = beginning_at(url, both)
            with connect(both, transport="stream", timeout=60, retry=policy) as client:
                until(lambda: bool(client.set("/a", b"") and numbers))
                began_s = time.monotonic()
                is_gone.set()
                writing = threading.Thread(target=client.set, args=("/a", b""))
                writing.start()
                time.sleep(ASK_MS / 1000)
                loop = peers[0].transport._loop
                loop.call_soon_threadsafe(peers[0].send, frames.Leader(url))
                writing.join(60)
                took_s = time.monotonic() - began_s

    assert not writing.is_alive()
    assert took_s < 20 - 1, "a third of the deadline, as one attempt had before it went elsewhere"


def test_threads_leave_a_silent_member_after_a_second() -> None:
    """Nobody says who leads: the request goes to the next one."""
    is_gone = threading.Event()
    with scripted(silenced(is_gone, serve)) as deaf, scripted(serve) as well:
        both = [deaf, well]
        policy = beginning_at(deaf, both)
        with connect(both, transport="stream", timeout=60, retry=policy) as client:
            client.set("/a", b"")
            is_gone.set()
            began_s = time.monotonic()
            assert client.set("/a", b"").path == "/v1/tree/a"
            assert SILENCE_S <= time.monotonic() - began_s < 5 - 1, "one attempt has 5 s"
