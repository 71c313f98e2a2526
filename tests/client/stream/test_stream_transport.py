"""The stream's transport in virtual time, against members made of the codec."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.client import Request, Response
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    ConnectionLostError,
    CoordinatorError,
    ShuttingDownError,
    ThrottledError,
    UnavailableError,
    to_problem,
)
from coordinator.wire.arrival import refusal
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import Network, Peer, echo, welcome
from tests.client.virtual_time import run

A, B = "http://a:1", "http://b:1"


class Http:
    """What a request comes to that is sent by HTTP instead."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        self.asked.append(request.target)
        return Response(status=200, headers={}, body=b"by HTTP")

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is open."""


def get(target: str, body: bytes | None = None) -> Request:
    return Request("GET", target=target, headers={"Accept": "application/msgpack"}, body=body)


def linked(
    script: Callable[[Peer, FromClient], None], http: Any = None
) -> tuple[Network, StreamTransport]:
    """Return a network in which A answers by ``script``, and a transport into it."""
    network = Network()
    network.add(A, script)
    return network, StreamTransport(connect=network.connect, http=http)


def silent(peer: Peer, frame: FromClient) -> None:
    """Say welcome, and answer no request."""
    if not peer.requests():
        echo(peer, frame)


async def ended(call: Any) -> Response | CoordinatorError:
    try:
        return await call  # type: ignore[no-any-return]
    except CoordinatorError as error:
        return error


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
        assert loop.time() - began_s < 1.3
        peer = network.peer(A)
        assert [each.id for each in peer.received if isinstance(each, frames.Cancel)] == [1]
        await asyncio.sleep(0.1)
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


def test_lines_with_credit() -> None:
    """Lines come one after the other, empty ones aside; what was taken is credited."""

    def lines(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(frames.Head(number, status=200, headers={"coordinator-zxid": "7"}))
                peer.send(frames.Line(number, b""))
                for _ in range(3):
                    peer.send(frames.Line(number, bytes(100_000)))
                peer.send(frames.End(number))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(lines)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert stream.status == 200
            assert stream.headers["coordinator-zxid"] == "7"
            assert stream.watches_silence
            found = []
            while (line := await stream.line()) is not None:
                found.append(len(line))
        assert found == [100_000] * 3
        await transport.close()

    run(scenario())


def test_lines_that_go_on_are_credited_and_given_up() -> None:
    """Half of the window is given back when it was taken; leaving the block is a CANCEL."""

    def endless(peer: Peer, frame: FromClient) -> None:
        match frame:
            case frames.RequestFrame(number):
                peer.send(frames.Head(number, status=200, headers={}))
                peer.send(frames.Line(number, bytes(200_000)))
            case frames.Credit(number, amount):
                peer.send(frames.Line(number, amount.to_bytes(4, "big")))
            case _:
                echo(peer, frame)

    async def scenario() -> None:
        network, transport = linked(endless)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert len(await stream.line() or b"") == 200_000
            async with asyncio.timeout(10):
                assert await stream.line() == (200_000).to_bytes(4, "big")
        await asyncio.sleep(0.1)
        assert frames.Cancel(1) in network.peer(A).received
        await transport.close()

    run(scenario())


def test_a_stream_whose_member_falls_silent_breaks() -> None:
    """PING is sent while lines are waited for; without an answer the connection has failed."""

    async def scenario() -> None:
        is_dead = False

        def dies(peer: Peer, frame: FromClient) -> None:
            if is_dead:
                return
            if isinstance(frame, frames.RequestFrame):
                peer.send(frames.Head(frame.id, status=200, headers={}))
            else:
                echo(peer, frame)

        network, loop = Network(), asyncio.get_running_loop()
        network.add(A, dies)
        transport = StreamTransport(connect=network.connect)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            waiting = asyncio.create_task(ended(stream.line()))
            await asyncio.sleep(60)
            assert not waiting.done()
            is_dead, died_s = True, loop.time()
            found = await waiting
            assert isinstance(found, ConnectionLostError)
            assert 5 < loop.time() - died_s < 12
        await transport.close()

    run(scenario())


def test_a_problem_instead_of_lines_is_read_whole() -> None:
    """A stream that is refused is one answer."""

    def refuses(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame):
            peer.send(frames.AnswerFrame(frame.id, status=410, headers={}, body=b"problem"))
        else:
            echo(peer, frame)

    async def scenario() -> None:
        _, transport = linked(refuses)
        async with transport.stream(A, get("/watch"), 1_000) as stream:
            assert (stream.status, await stream.read()) == (410, b"problem")
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
