"""A member made of the codec, in memory: the test says what it answers and when."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from coordinator.client import Request, Response
from coordinator.client.in_process import PipeEnd, joined
from coordinator.client.stream.transport import StreamTransport
from coordinator.errors import (
    CoordinatorError,
)
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import PREFACE, FromClient, FromServer
from tests.patience import patient

A, B = "http://a:1", "http://b:1"

Respond = Callable[["Peer", FromClient], None]


class Peer(asyncio.Protocol):
    """The server's end of one connection; hands each frame to ``respond``."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._reader = frames.from_client(1 << 20)
        self._preface = b""
        self.transport: Any = None
        self.received: list[FromClient] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        if len(self._preface) < len(PREFACE):
            self._preface += data
            assert frames.begins_stream(self._preface) is not False
            data, self._preface = self._preface[len(PREFACE) :], self._preface[: len(PREFACE)]
        self._reader.feed(data)
        while taken := self._reader.take():
            for frame in taken:
                self.received.append(frame)
                self._respond(self, frame)

    def send(self, *said: FromServer) -> None:
        self.transport.write(b"".join(map(frames.encoded, said)))

    def requests(self) -> list[frames.RequestFrame]:
        return [each for each in self.received if isinstance(each, frames.RequestFrame)]


class Network:
    """Members by their URLs; what is not there refuses connections."""

    def __init__(self) -> None:
        self.members: dict[str, Callable[[], asyncio.Protocol]] = {}
        self.peers: dict[str, list[Any]] = {}
        self.pipes: list[PipeEnd] = []

    def add(self, url: str, respond: Respond) -> None:
        self.members[url] = lambda: Peer(respond)

    async def connect(self, endpoint: str, make: Callable[[], asyncio.Protocol]) -> object:
        serve = self.members.get(endpoint)
        if serve is None:
            raise ConnectionRefusedError(111, "refused")
        client, server = make(), serve()
        self.peers.setdefault(endpoint, []).append(server)
        self.pipes.append(joined(asyncio.get_running_loop(), client, server))
        return client

    def peer(self, url: str) -> Any:
        """Return the server's end of the latest connection to ``url``."""
        return self.peers[url][-1]


def welcome(
    peer: Peer, *, leader_url: str | None = None, requests_max: int = 1024, idle_ms: int = 60_000
) -> None:
    settings = frames.WelcomeSettings("n1", leader_url, requests_max=requests_max, idle_ms=idle_ms)
    peer.send(frames.Welcome(frames.VERSION, settings))


def echo(peer: Peer, frame: FromClient) -> None:
    """Welcome, answer each request with its target, and each PING."""
    match frame:
        case frames.Hello():
            welcome(peer)
        case frames.RequestFrame(number, _, target, _, _):
            peer.send(frames.AnswerFrame(number, status=200, headers={}, body=target.encode()))
        case frames.PingFrame(number):
            peer.send(frames.Pong(number))


def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline_s = time.monotonic() + patient(10)
    while not is_so():
        assert time.monotonic() < deadline_s, "it did not come to that"
        time.sleep(0.005)


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


async def ended(call: Any) -> Response | CoordinatorError:
    try:
        return await call  # type: ignore[no-any-return]
    except CoordinatorError as error:
        return error
