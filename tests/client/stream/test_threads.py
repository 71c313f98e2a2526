"""Threads on the stream, over real sockets."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator import connect
from coordinator.client import Client, RetryPolicy
from coordinator.errors import (
    ClientClosedError,
    OutcomeUnknownError,
    UnavailableError,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
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
from tests.client.stream.scripted import Peer, welcome
from tests.patience import patient

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
        assert len(client.core.delivery._transport._connections[url]) == 1


def test_a_call_of_a_thread_renews_the_session() -> None:
    """So a program that is busy sends no heartbeats."""
    with serving() as url, connect(url, transport="stream") as client:
        session = client.session()
        sent_ms = session._lease.sent_ms
        session._lease = replace(session._lease, sent_ms=sent_ms - 2_000)
        client._core.delivery.renewing._last_ms = sent_ms - 2_000

        client.exists("/")

        assert session._lease.sent_ms >= sent_ms


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
    """As if there were nothing else."""
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
        if isinstance(frame, frames.Hello):
            welcome(peer, leader_url=leader)
        else:
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


def test_a_call_ends_at_its_deadline_though_the_server_reads_nothing() -> None:
    """What the socket does not take is kept by the client, and no thread waits for that."""

    def deaf(peer: Peer, frame: FromClient) -> None:
        if isinstance(frame, frames.RequestFrame) and frame.method == "PUT":
            peer.transport.pause_reading()
        else:
            serve(peer, frame)

    with (
        scripted(deaf) as url,
        connect(url, transport="stream", timeout=1, retry=ONCE) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        writes = [pool.submit(client.set, f"/{each}", bytes(900_000)) for each in range(8)]
        for each in writes:
            assert isinstance(each.exception(patient(20)), OutcomeUnknownError)
