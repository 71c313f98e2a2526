"""Threads on the stream, over real sockets: one connection, no event loop in between."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator import connect
from coordinator.client import Client, RetryPolicy
from coordinator.client.stream import blocking_connection
from coordinator.client.stream.blocking_connection import BlockingConnection
from coordinator.client.stream.blocking_waiters import AnswerWaiter
from coordinator.client.transport import Request
from coordinator.clock import SystemClock
from coordinator.errors import (
    ClientClosedError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import PREFACE, FromClient
from tests.client.first_member import beginning_at
from tests.client.server_thread import serving
from tests.client.stream.listening import (
    STAT,
    in_threads,
    is_put,
    listening,
    scripted,
    serve,
    silent,
    written,
)
from tests.client.stream.scripted import Peer, until, welcome
from tests.patience import patient

URL = "http://member:1"
ONCE = RetryPolicy(tries=1)


def test_many_threads_write_on_one_connection() -> None:
    """Each write is applied once, whoever sends it."""
    with serving() as url, connect(url, transport="stream") as client:
        client.create("/count")

        def work(_: int) -> None:
            for _ in range(20):
                client.set("/count", b"x")

        in_threads(16, work)

        assert client.get("/count").stat.version == 320
        readers = [each for each in threading.enumerate() if f"stream {url}" in each.name]
        assert len(readers) == 1


def test_a_call_of_a_thread_renews_the_session_of_the_loop() -> None:
    """As one of the loop does; nobody else has to."""
    with serving() as url, connect(url, transport="stream") as client:
        session = client.session()
        sent_ms = session._lease.sent_ms
        session._lease = replace(session._lease, sent_ms=sent_ms - 2_000)
        client._core.delivery.renewing._last_ms = sent_ms - 2_000

        client.exists("/")

        assert session._lease.sent_ms >= sent_ms


def test_an_update_pauses_in_its_thread() -> None:
    """Between its tries it waits for no event loop, which may be busy or about to end."""
    with serving() as url, connect(url, transport="stream") as client:
        client.create("/a", b"0")
        is_busy, is_over = threading.Event(), threading.Event()

        async def busy() -> None:
            is_busy.set()
            assert is_over.wait(60)

        def change(data: bytes) -> bytes:
            if data == b"0":
                client.set("/a", b"1")
            return data + b"!"

        with ThreadPoolExecutor(2) as pool:
            occupied = pool.submit(lambda: client.call(busy()))
            assert is_busy.wait(10)
            try:
                pool.submit(client.update, "/a", change).result(patient(10))
            finally:
                is_over.set()
            occupied.result(10)
        assert client.get("/a").data == b"1!"


def test_answers_go_to_the_threads_that_asked() -> None:
    """In whatever order they come."""
    waiting: list[tuple[Peer, frames.RequestFrame]] = []

    def backwards(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame) and frame.method != "GET":
            # On a busy machine one may be sent again, also by another connection with ids from 1.
            waiting.append((peer, frame))
            if len({each.target for _, each in waiting}) == 8:
                for asked, each in reversed(waiting):
                    asked.send(written(each.id, each.target))
        else:
            serve(peer, frame)

    with scripted(backwards) as url, connect(url, transport="stream") as client:
        found = in_threads(8, lambda number: (number, client.set(f"/{number}", b"").path))

        assert sorted(found) == [(each, f"/v1/tree/{each}") for each in range(8)]


def test_a_connection_that_breaks_is_indefinite_and_a_closed_port_definite() -> None:
    """A write that was sent may have been done; one that was not, was not."""

    def breaks(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame) and frame.method == "PUT":
            peer.transport.abort()
        else:
            serve(peer, frame)

    with (
        scripted(breaks) as url,
        connect(url, transport="stream", retry=ONCE) as client,
        pytest.raises(OutcomeUnknownError),
    ):
        client.set("/a", b"")
    with (
        connect(url, transport="stream", retry=ONCE) as client,
        pytest.raises(UnavailableError, match="cannot connect: Connection refused"),
    ):
        client.set("/a", b"")


def test_a_member_without_the_stream_is_asked_by_http() -> None:
    """Through the client's event loop, as if it were nothing else."""
    body = msgpack.packb({"path": "/a", "stat": {**STAT, "ephemeral_owner": None}})

    class OnlyHttp(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self._transport, self._data = transport, b""

        def data_received(self, data: bytes) -> None:
            if data.startswith(b"\0"):
                self._transport.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                self._transport.close()
                return
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )

    with listening(OnlyHttp) as url, connect(url, transport="auto") as client:
        for _ in range(3):
            assert client.set("/a", b"").path == "/a"
    with (
        listening(OnlyHttp) as url,
        connect(url, transport="stream", retry=ONCE) as client,
        pytest.raises(UnavailableError, match="speaks the stream"),
    ):
        client.set("/a", b"")


def test_a_call_under_way_ends_when_its_client_is_closed() -> None:
    """At once, with what is known of it."""
    is_asked = threading.Event()

    def respond(peer: Peer, frame: FromClient) -> None:
        silent(peer, frame)
        if is_put(frame):
            is_asked.set()

    with scripted(respond) as url:
        client = connect(url, transport="stream").open()
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.extend(in_threads(1, set_a(client))))
        thread.start()
        assert is_asked.wait(patient(10))
        client.close()
        thread.join(20)

        assert isinstance(found[0], OutcomeUnknownError)
        with pytest.raises(ClientClosedError):
            client.set("/a", b"")


def set_a(client: Client) -> Any:
    return lambda _: client.set("/a", b"")


def test_a_silent_member_is_left_in_time() -> None:
    """One attempt ends, and its connection with it; the next one goes to another member."""
    with (
        scripted(silent) as deaf,
        scripted(serve) as well,
        connect([deaf, well], transport="stream", timeout=6) as client,
    ):
        for _ in range(4):
            assert client.set("/a", b"").path == "/v1/tree/a"


@pytest.mark.parametrize("is_endpoint", [True, False])
def test_the_leader_is_asked_if_it_is_an_endpoint(is_endpoint: bool) -> None:
    """Another member names it; it is connected to in the background, or never."""
    asked: list[str] = []

    def leads(peer: Peer, frame: FromClient) -> None:
        asked.append(type(frame).__name__)
        serve(peer, frame)

    with scripted(leads) as leader:

        def follows(peer: Peer, frame: FromClient) -> None:
            if isinstance(frame, frames.Hello):
                welcome(peer, leader_url=leader)
            else:
                serve(peer, frame)

        with scripted(follows) as url:
            first = [url, leader] if is_endpoint else [url]
            with connect(first, transport="stream", retry=beginning_at(url, first)) as client:
                deadline_s = time.monotonic() + (10 if is_endpoint else 0.3)
                while "RequestFrame" not in asked and time.monotonic() < deadline_s:
                    client.set("/a", b"")
    assert ("Hello" in asked, "RequestFrame" in asked) == (is_endpoint, is_endpoint)


def ignored(*_: Any) -> None:
    """What a connection without a transport reports."""


@contextmanager
def connected() -> Iterator[tuple[BlockingConnection, socket.socket]]:
    """A connection that was welcomed, and the server's end of its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    theirs.settimeout(10)
    connection = BlockingConnection(
        URL, connected=ours, clock=SystemClock(), on_leader=ignored, on_lost=ignored
    )
    connection.begin("test")
    theirs.sendall(frames.encoded(frames.Welcome(1, frames.WelcomeSettings("n1"))))
    assert connection.began.wait(10)
    try:
        yield connection, theirs
    finally:
        connection.close("the test is over")
        connection.join(10)
        theirs.close()


def asked_of(server: socket.socket, count: int) -> list[FromClient]:
    """Read so many frames, the first of them HELLO."""
    reader, found = frames.from_client(1 << 20), list[FromClient]()
    unread = len(PREFACE)
    while len(found) < count:
        data = server.recv(1 << 16)
        reader.feed(data[unread:])
        unread = max(0, unread - len(data))
        while taken := reader.take():
            found += taken
    return found


def test_answers_are_read_while_the_server_reads_nothing() -> None:
    """It waits for its answers to be taken; the thread that takes them must not wait for it."""
    with connected() as (connection, server):
        asked = AnswerWaiter()
        with connection._guard:
            connection.conversation.ask(Request("GET", "/a"), asked)
        connection._send(0)
        with connection._guard:  # of a thread that goes on to send it only later
            put = Request("PUT", target="/b", headers={}, body=bytes(900_000))
            for _ in range(20):
                connection.conversation.ask(put, AnswerWaiter())
        server.sendall(frames.encoded(frames.Pong(0)))
        server.sendall(
            frames.encoded(frames.AnswerFrame(1, status=200, headers={}, body=bytes(20_000_000)))
        )

        assert asked.lock.acquire(timeout=10)
        assert asked.response is not None
        assert len(asked.response.body) == 20_000_000
        assert connection.conversation.is_usable


def test_a_mistake_of_the_server_does_not_stop_the_reading_alone() -> None:
    """A request that is answered twice over fails; the connection goes on, or ends as a whole."""
    with connected() as (connection, server):
        head = frames.encoded(frames.Head(1, status=200, headers={}))
        twice = (
            head + head + frames.encoded(frames.AnswerFrame(1, status=200, headers={}, body=b""))
        )

        def answer() -> None:
            asked_of(server, 2)
            server.sendall(twice)
            assert isinstance(asked_after_hello(server), frames.RequestFrame)
            server.sendall(frames.encoded(frames.AnswerFrame(2, status=200, headers={}, body=b"2")))

        answering = threading.Thread(target=answer)
        answering.start()
        with pytest.raises(OutcomeUnknownError):
            connection.ask(Request("GET", "/a"), 5_000)
        assert connection.ask(Request("GET", "/b"), 5_000).body == b"2"
        answering.join(10)


def asked_after_hello(server: socket.socket) -> FromClient:
    """Read one more frame."""
    reader = frames.from_client(1 << 20)
    while True:
        reader.feed(server.recv(1 << 16))
        if taken := reader.take():
            return taken[0]


def test_a_call_ends_at_its_deadline_though_the_server_reads_nothing() -> None:
    """What it had sent in part is sent to the end by another thread; the connection goes on."""
    with connected() as (connection, server):
        long = Request("PUT", target="/a", headers={}, body=bytes(900_000))
        for _ in range(8):
            with pytest.raises(OutcomeUnknownError, match="no answer within 50 ms"):
                connection.ask(long, 50)
        assert connection.conversation.is_usable

        found = asked_of(server, 17)
        server.sendall(frames.encoded(frames.Pong(1)))

        asked_ids = [each.id for each in found if isinstance(each, frames.RequestFrame)]
        assert asked_ids == list(range(1, 9))
        assert {each.id for each in found if isinstance(each, frames.Cancel)} <= set(range(1, 9))
        answering = threading.Thread(
            target=lambda: (
                asked_after_hello(server),
                server.sendall(
                    frames.encoded(frames.AnswerFrame(9, status=200, headers={}, body=b"9"))
                ),
            )
        )
        answering.start()
        assert connection.ask(Request("GET", "/b"), 5_000).body == b"9"
        answering.join(10)


def test_who_let_a_deadline_pass_is_asked_before_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A member that is slow with one request, and alive, keeps its connection."""
    monkeypatch.setattr(blocking_connection, "_TICK_MS", 50)
    monkeypatch.setattr(blocking_connection, "PROOF_MS", 200)
    with connected() as (connection, server):
        with pytest.raises(OutcomeUnknownError):
            connection.ask(Request("GET", "/a"), 10)
        pings = [each for each in asked_of(server, 4) if isinstance(each, frames.PingFrame)]
        assert [each.number for each in pings] == [1]
        assert connection._proof_asked_ms is not None
        server.sendall(frames.encoded(frames.Pong(1)))
        until(lambda: connection._proof_asked_ms is None or connection.conversation.is_over)
        assert connection.conversation.is_usable

        with pytest.raises(OutcomeUnknownError):
            connection.ask(Request("GET", "/b"), 10)
        until(lambda: connection.conversation.is_over)
