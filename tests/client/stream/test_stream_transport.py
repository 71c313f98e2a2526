"""The stream's transport in virtual time, against members made of the codec."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import Response
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    ClientClosedError,
    ConnectionLostError,
    ShuttingDownError,
    UnavailableError,
    to_problem,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import A, Http, Network, Peer, echo, ended, get, linked, welcome
from tests.client.virtual_time import run


def silent(peer: Peer, frame: FromClient) -> None:
    """Say welcome, and answer no request."""
    if not peer.requests():
        echo(peer, frame)


def test_answers_go_to_whom_they_belong_in_any_order() -> None:
    """Many requests share a connection; the last one may be answered first."""

    def backwards(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Hello):
            welcome(peer)
        elif len(peer.requests()) == 5:
            for each in reversed(peer.requests()):
                peer.send(
                    frames.AnswerFrame(each.id, status=200, headers={}, body=each.target.encode())
                )

    async def scenario() -> None:
        network, transport = linked(backwards)
        calls = [transport.request(A, get(f"/{each}"), 1_000) for each in range(5)]

        answers = await asyncio.gather(*calls)

        assert [each.body for each in answers] == [b"/0", b"/1", b"/2", b"/3", b"/4"]
        assert answers[0].headers == {"content-type": "application/msgpack"}
        assert len(network.peers[A]) == 1
        assert network.peer(A).requests()[0].headers == {}
        await transport.close()

    run(scenario())


def test_the_frames_of_one_pass_leave_in_one_send() -> None:
    """A hundred requests of one pass are two pieces: the first at once, the others together."""
    pieces: list[bytes] = []

    class Counting(Peer):
        def data_received(self, data: bytes) -> None:
            pieces.append(data)
            super().data_received(data)

    async def scenario() -> None:
        network = Network()
        network.members[A] = lambda: Counting(echo)
        transport = StreamTransport(connect=network.connect)
        await transport.request(A, get("/"), 1_000)
        pieces.clear()
        await asyncio.gather(*[transport.request(A, get("/x"), 1_000) for _ in range(100)])
        assert len(pieces) <= 2
        await transport.close()

    run(scenario())


def test_a_member_that_refuses_connections_is_definite() -> None:
    """Nothing was sent."""

    async def scenario() -> None:
        transport = StreamTransport(connect=Network().connect)
        with pytest.raises(UnavailableError, match="cannot connect: Connection refused"):
            await transport.request(A, get("/"), 1_000)
        await transport.close()
        with pytest.raises(ClientClosedError):
            await transport.request(A, get("/"), 1_000)

    run(scenario())


def record(requests: int) -> bytes:
    """Return what the server says in a conversation of so many requests, and lines."""

    async def scenario() -> bytes:
        said = bytearray()

        class Recording(Peer):
            def send(self, *each: Any) -> None:
                said.extend(b"".join(map(frames.encoded, each)))
                super().send(*each)

        network = Network()
        network.members[A] = lambda: Recording(echo)
        transport = StreamTransport(connect=network.connect)
        await transport.request(A, get("/0"), 1_000)
        await asyncio.gather(
            *[transport.request(A, get(f"/{each}"), 1_000) for each in range(1, requests)]
        )
        await transport.close()
        return bytes(said)

    return run(scenario())


@pytest.mark.parametrize("is_member_gone", [True, False], ids=["gone", "there"])
def test_a_conversation_that_is_cut_at_any_byte(is_member_gone: bool) -> None:
    """A call that was answered whole returns, another that was sent is indefinite; none hangs.

    Cut before WELCOME was whole, nothing was sent.
    """
    whole = record(4)
    welcome_bytes = 4 + int.from_bytes(whole[:4], "big")

    async def scenario(cut: int) -> None:
        left = [cut]

        class Cut(Peer):
            def send(self, *each: Any) -> None:
                said = b"".join(map(frames.encoded, each))[: left[0]]
                left[0] -= len(said)
                self.transport.write(said)
                if left[0] == 0 and not self.transport.is_closing():
                    self.transport.close()
                    if is_member_gone:
                        network.members.clear()

        network, http = Network(), Http()
        network.members[A] = lambda: Cut(echo)
        transport = StreamTransport(connect=network.connect, http=http)
        first = await ended(transport.request(A, get("/0"), 1_000))
        if cut < welcome_bytes:
            assert isinstance(first, Response)
            assert (first.body, http.asked) == (b"by HTTP", ["/0"])
            await transport.close()
            return
        left_for_rest = left[0]
        calls = [ended(transport.request(A, get(f"/{each}"), 1_000)) for each in range(1, 4)]
        rest = await asyncio.gather(*calls)
        for target, found in zip(["/0", "/1", "/2", "/3"], [first, *rest], strict=True):
            if isinstance(found, Response):
                assert found.body in (target.encode(), b"by HTTP")
            elif isinstance(found, UnavailableError):
                assert is_member_gone
                assert target != "/0"
                assert left_for_rest == 0
            else:
                assert isinstance(found, ConnectionLostError)
                assert not found.definite
        seen = [each.target for peer in network.peers[A] for each in peer.requests()]
        assert len(seen) == len(set(seen)), "the transport sent something twice"
        await transport.close()

    for cut in range(1, len(whole)):
        run(scenario(cut))


def test_what_was_not_sent_when_the_connection_broke_is_definite() -> None:
    """It stood behind others in the same pass."""

    async def scenario() -> None:
        _, transport = linked(silent)
        first = asyncio.create_task(ended(transport.request(A, get("/sent"), 60_000)))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(ended(transport.request(A, get("/late"), 60_000)))
        await asyncio.sleep(0)
        connection = transport._ready[A]
        connection.connection_lost(ConnectionResetError("reset"))

        assert isinstance(await first, ConnectionLostError)
        found = await second
        assert isinstance(found, UnavailableError)
        assert "nothing was sent" in found.message
        await transport.close()

    run(scenario())


def test_a_member_that_never_answers() -> None:
    """A call ends when its time is over; when the member shows nothing, the connection does too."""

    async def scenario() -> None:
        def deaf(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.Hello):
                welcome(peer)

        network, loop = Network(), asyncio.get_running_loop()
        network.add(A, deaf)
        transport = StreamTransport(connect=network.connect)
        began_s = loop.time()
        with pytest.raises(ConnectionLostError, match="no answer within 200 ms"):
            await transport.request(A, get("/"), 200)
        assert 0.2 <= loop.time() - began_s < 0.26
        slow = asyncio.create_task(ended(transport.request(A, get("/"), 5_000)))

        found = await slow

        assert isinstance(found, ConnectionLostError)
        assert "said nothing" in found.message
        assert loop.time() - began_s < 1.1
        await asyncio.sleep(0.3)
        peer = network.peer(A)
        assert [each.id for each in peer.received if isinstance(each, frames.Cancel)] == [1, 2]
        assert peer.is_lost
        await transport.close()

    run(scenario())


def test_a_member_that_is_only_slow_keeps_its_connection() -> None:
    """It answers PING, so only the late request is given up."""

    def slow(peer: Peer, frame: FromClient) -> None:
        if not isinstance(frame, frames.RequestFrame) or frame.target == "/quick":
            echo(peer, frame)

    async def scenario() -> None:
        network, transport = linked(slow)
        late = await ended(transport.request(A, get("/slow"), 100))
        await asyncio.sleep(3)
        network.peer(A).send(frames.AnswerFrame(1, status=200, headers={}, body=b"too late"))
        answer = await transport.request(A, get("/quick"), 100)

        assert isinstance(late, ConnectionLostError)
        assert answer.body == b"/quick"
        assert len(network.peers[A]) == 1
        await transport.close()

    run(scenario())


def test_a_cancelled_call_says_so() -> None:
    """The server is told, and its answer that crosses is skipped."""

    def late(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Cancel):
            peer.send(frames.AnswerFrame(frame.id, status=200, headers={}, body=b""))
        elif not isinstance(frame, frames.RequestFrame) or frame.target != "/a":
            echo(peer, frame)

    async def scenario() -> None:
        network, transport = linked(late)
        call = asyncio.create_task(transport.request(A, get("/a"), 1_000))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert (await transport.request(A, get("/b"), 1_000)).body == b"/b"
        assert frames.Cancel(1) in network.peer(A).received
        await transport.close()

    run(scenario())


def test_goaway_in_the_middle() -> None:
    """What is under way is answered; the next request goes to another connection."""

    async def scenario() -> None:
        held: list[frames.RequestFrame] = []

        def leaving(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.RequestFrame) and frame.target == "/under-way":
                held.append(frame)
            else:
                echo(peer, frame)

        network, transport = linked(leaving)
        under_way = asyncio.create_task(transport.request(A, get("/under-way"), 10_000))
        await asyncio.sleep(0.1)
        first = network.peer(A)
        first.send(frames.GoAway(to_problem(ShuttingDownError("stopping"))))
        await asyncio.sleep(0.1)

        assert (await transport.request(A, get("/next"), 1_000)).body == b"/next"
        assert len(network.peers[A]) == 2
        first.send(frames.AnswerFrame(held[0].id, status=200, headers={}, body=b"done"))
        assert (await under_way).body == b"done"
        await asyncio.sleep(0.1)
        assert first.is_lost
        await transport.close()

    run(scenario())


def test_requests_beyond_what_a_connection_takes_get_another() -> None:
    """WELCOME says how many may be under way."""

    def narrow(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.Hello):
            welcome(peer, requests_max=2)

    async def scenario() -> None:
        network, transport = linked(narrow)
        calls = [asyncio.create_task(transport.request(A, get("/"), 5_000)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert [len(each.requests()) for each in network.peers[A]] == [2, 2, 1]
        for peer in network.peers[A]:
            for each in peer.requests():
                peer.send(frames.AnswerFrame(each.id, status=200, headers={}, body=b""))
        await asyncio.gather(*calls)
        await asyncio.sleep(60)  # idle_ms: by then each was pinged, or closed as a spare one
        assert len(transport._connections[A]) == 1
        assert transport._ready[A] in transport._connections[A]
        await transport.close()

    run(scenario())


@pytest.mark.parametrize(
    "mistake",
    [
        b"\0\0\0\1\xc0",
        frames.encoded(frames.AnswerFrame(9, status=200, headers={}, body=b"")),
        frames.encoded(frames.Welcome(1, frames.WelcomeSettings("n1"))),
        b"\xff\xff\xff\xff",
    ],
    ids=["no frame", "an id that was never sent", "a second welcome", "a length over the limit"],
)
def test_a_mistake_of_the_server_ends_the_connection(mistake: bytes) -> None:
    """What is under way is indefinite."""

    def wrong(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame):
            peer.transport.write(mistake)
        else:
            echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(wrong)
        with pytest.raises(ConnectionLostError, match="stream: expected"):
            await transport.request(A, get("/"), 1_000)
        await transport.close()

    run(scenario())


def test_a_connection_without_requests_is_kept() -> None:
    """PING goes out before the server takes it for idle."""

    async def scenario() -> None:
        network = Network()

        def impatient(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.Hello):
                welcome(peer, idle_ms=3_000)
            else:
                echo(peer, frame)

        network.add(A, impatient)
        transport = StreamTransport(connect=network.connect)
        await transport.request(A, get("/"), 1_000)
        await asyncio.sleep(10)
        pings = [each for each in network.peer(A).received if isinstance(each, frames.PingFrame)]
        assert 9 <= len(pings) <= 11
        await transport.close()

    run(scenario())


def test_closing_ends_what_is_under_way() -> None:
    """Nobody waits for ever."""

    async def scenario() -> None:
        _, transport = linked(silent)
        call = asyncio.create_task(ended(transport.request(A, get("/"), 60_000)))
        await asyncio.sleep(0.1)
        await transport.close()
        assert isinstance(await call, ConnectionLostError)

    run(scenario())


def test_a_heartbeat_does_not_wait_behind_a_long_answer_for_ever() -> None:
    """What is late while other bytes come is sent again on another connection."""

    async def scenario() -> None:
        network, long = Network(), b"x" * 100_000

        def respond(peer: Peer, frame: FromClient) -> None:
            if network.peers[A][0] is not peer or isinstance(frame, frames.Hello):
                echo(peer, frame)
            elif isinstance(frame, frames.RequestFrame) and frame.target == "/long":
                drips.append(asyncio.create_task(drip(peer, frame.id)))

        async def drip(peer: Peer, number: int) -> None:
            sent = frames.encoded(frames.AnswerFrame(number, status=200, headers={}, body=long))
            for at in range(0, len(sent), 1_000):
                peer.transport.write(sent[at : at + 1_000])
                await asyncio.sleep(0.05)
            for each in peer.received:
                if isinstance(each, frames.PingFrame):
                    peer.send(frames.Pong(each.number))

        drips: list[asyncio.Task[None]] = []
        network.add(A, respond)
        transport = StreamTransport(connect=network.connect)
        reading = asyncio.create_task(ended(transport.request(A, get("/long"), 30_000)))
        await asyncio.sleep(0.5)
        late = await ended(transport.request(A, get("/beat"), 500))
        answer = await transport.request(A, get("/beat"), 500)

        assert isinstance(late, ConnectionLostError)
        assert answer.body == b"/beat"
        assert not reading.done()
        found = await reading
        assert isinstance(found, Response)
        assert found.body == long
        assert len(network.peers[A]) == 2
        await transport.close()

    run(scenario())


def test_a_target_that_the_stream_does_not_take_ends_no_connection() -> None:
    """It would be a mistake of the client, for which all its requests would pay."""

    async def scenario() -> None:
        network, transport = linked(silent)
        under_way = asyncio.create_task(ended(transport.request(A, get("/a"), 1_000)))
        await asyncio.sleep(0.1)
        with pytest.raises(UnavailableError, match="longer than it takes"):
            await transport.request(A, get("/" + "b" * 8_192), 1_000)

        assert not under_way.done()
        assert len(network.peer(A).requests()) == 1
        await transport.close()
        await under_way

    run(scenario())
