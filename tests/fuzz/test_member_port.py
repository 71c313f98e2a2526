"""The member port itself, over real sockets: who is let in, and what is made of what they send.

1. Who does not prove to be a member hears nothing after the challenge; nor can such callers keep
   members from each other, however many they are.
2. What comes on a proved member's socket is a message, or the end of the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import random
import socket
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.clock import SystemClock
from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.network.agreement import Agreement
from coordinator.raft.network.frames import PayloadReader, frame
from coordinator.raft.network.handshake import Acceptor, Dialer, HandshakeError, Identity
from coordinator.raft.network.lanes import Joiner
from coordinator.raft.network.messages import (
    NEWEST,
    PROTOCOL_NEWEST,
    PROTOCOL_OLDEST,
    FrameError,
    Message,
    Ping,
)
from coordinator.raft.network.seals import SEAL_BYTES, Seals
from coordinator.raft.network.transport import UNPROVED_CALLERS_MAX, TcpTransport
from tests.cluster.processes import ProcessCluster
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged
from tests.fuzz.test_strangers import SECRET, recorded_in_thread
from tests.fuzz.watch import WALL_SECONDS, watching
from tests.patience import patient

PROTOCOLS = (PROTOCOL_OLDEST, PROTOCOL_NEWEST)
SHOWN = Agreement().shown()

# --- who takes part in the handshake, and is not who it should be


def hello(cluster: str, source: str, target: str, nonce: bytes) -> bytes:
    packed: bytes = msgpack.packb(("greeting", *PROTOCOLS, cluster, source, target, nonce))
    return packed


def wrong_introduction(target: str, draw: random.Random) -> bytes:
    """Return a hello that is sound but for one field: a member hangs up on it."""
    other = draw.choice([each for each in "123" if each != target])
    nonce = draw.randbytes(32)
    return draw.choice(
        (
            hello("another", other, target, nonce),
            hello("test", target, target, nonce),
            hello("test", "", target, nonce),
            hello("test", "x" * 200, target, nonce),
            hello("test", other, other, nonce),
            hello("test", other, target, nonce[:31]),
            hello("test", other, target, b""),
            msgpack.packb(("greeting", 0, 1, "test", other, target, nonce)),
            msgpack.packb(("greeting", 2, 1, "test", other, target, nonce)),
            msgpack.packb(("greeting", True, 1, "test", other, target, nonce)),
            msgpack.packb(("greeting", 1, "test", other, target, nonce)),
        )
    )


def wrong_answer(challenge: bytes, said: bytes, draw: random.Random) -> bytes | None:
    """Return what somebody without the secret answers to a challenge; None: nothing at all."""
    *_, nonce = msgpack.unpackb(challenge)
    cluster = msgpack.unpackb(said)[3]
    words = msgpack.packb(("dial", said, challenge, SHOWN))
    secret = draw.choice(
        (b"", SECRET[:-1], SECRET + b"\n", b"another-secret-of-22-b", cluster.encode())
    )
    forged = hmac.new(secret, words, hashlib.sha256).digest()
    return draw.choice(
        (
            msgpack.packb(("proof", SHOWN, forged)),
            msgpack.packb(("proof", SHOWN, nonce)),  # its own words back to it
            msgpack.packb(("proof", SHOWN, draw.randbytes(32))),
            msgpack.packb(("proof", SHOWN, forged[:31])),
            msgpack.packb(("proof", SHOWN, forged.hex())),
            msgpack.packb(("proof", SHOWN, None)),
            msgpack.packb(("proof", {"a": 1}, forged)),
            msgpack.packb(("proof", b"no map", forged)),
            msgpack.packb(("proof", SHOWN, forged, b"more")),
            msgpack.packb(("welcome", SHOWN, forged)),
            msgpack.packb(["challenge", nonce]),
            said,
            None,
        )
    )


async def frames_until_closed(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield what the member says, until it hangs up."""
    frames = PayloadReader(2**20)
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(4_096):
            frames.feed(data)
            while (payload := frames.next()) is not None:
                yield payload


async def knock(port: int, target: str, draw: random.Random) -> list[bytes]:
    """Take part in a handshake as one who may not; return what the member said."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    received: list[bytes] = []
    try:
        async with asyncio.timeout(WALL_SECONDS):
            if draw.random() < 0.4:
                said = wrong_introduction(target, draw)
            else:
                other = draw.choice([each for each in "123" if each != target])
                said = hello("test", other, target, draw.randbytes(32))
            writer.write(frame(said))
            async for payload in frames_until_closed(reader):
                received.append(payload)
                if len(received) == 1:
                    answer = wrong_answer(payload, said, draw)
                    if answer is not None:
                        cut = len(answer) + 4 if draw.random() < 0.8 else draw.randrange(4)
                        writer.write(frame(answer)[:cut])
    finally:
        writer.transport.abort()
    return received


class Ear:
    """Remembers what a transport tells its member."""

    def __init__(self) -> None:
        self.connected: list[str] = []
        self.messages: list[Message] = []

    def on_message(self, member_id: str, message: Message) -> None:
        self.messages.append(message)

    def on_connected(self, member_id: str) -> None:
        self.connected.append(member_id)

    def on_disconnected(self, member_id: str) -> None:
        self.connected.remove(member_id)


def transport_of(directory: Path, peer_port: int, raft: RaftConfig) -> tuple[TcpTransport, int]:
    """Return the transport of member 1 of two, and where it listens."""
    secret = directory / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    bound = socket.create_server(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    cluster = ClusterConfig(
        name="test",
        secret_file=str(secret),
        members=(
            MemberAddress(
                "1", client_url="http://127.0.0.1:1", member_host="127.0.0.1", member_port=port
            ),
            MemberAddress(
                "2", client_url="http://127.0.0.1:1", member_host="127.0.0.1", member_port=peer_port
            ),
        ),
    )
    transport = TcpTransport(
        cluster,
        MemberConfig("1", str(directory)),
        raft,
        clock=SystemClock(),
        random=random.Random(1),
        listening_socket=bound,
    )
    return transport, port


async def test_who_proves_nothing_is_not_let_in(fuzz: Fuzz, tmp_path: Path) -> None:
    """A wrong name, cluster, member or secret, half a handshake: no word after the challenge."""
    raft = replace(RaftConfig(), handshake_deadline_ms=100)
    transport, port = transport_of(tmp_path, 1, raft)
    ear = Ear()
    await transport.start(ear)
    loop = asyncio.get_running_loop()
    try:
        with watching(fuzz.of("handshakes")) as watch:
            for number in range(fuzz.count("handshakes")):
                draw = random.Random(f"{fuzz.seed} handshakes {number}")
                began = loop.time()
                heard = await knock(port, "1", draw)
                watch.took(loop.time() - began, f"seed {fuzz.seed}, number {number}")
                assert len(heard) <= 1, f"seed {fuzz.seed}, number {number}: {heard}"
                assert not any(SECRET in each for each in heard)
        assert ear.connected == []
    finally:
        await transport.stop()


async def impostor(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, draw: random.Random
) -> None:
    """Answer a member that dialled as one who is not the member it wants."""
    told = Acceptor(
        Identity("test", member_id="2", secret=b"another-secret-of-22-b"), draw.randbytes(32)
    )
    try:
        async for payload in frames_until_closed(reader):
            kind = draw.randrange(6)
            if kind == 0:
                writer.write(frame(msgpack.packb(("welcome",))))
            elif kind == 1:
                writer.write(
                    draw.choice((b"\xff" * 8, b"HTTP/1.1 200 OK\r\n\r\n", b"\x15\x03\x01"))
                )
            elif kind == 2:
                return
            elif kind == 3:
                writer.write(frame(payload))  # what it said itself
            else:
                try:
                    answer = told.receive(payload)
                except HandshakeError:
                    return
                assert answer is not None
                writer.write(frame(damaged(answer, draw) if kind == 4 else answer))
    finally:
        writer.close()


async def test_who_answers_in_a_members_place_is_not_believed(fuzz: Fuzz, tmp_path: Path) -> None:
    """A member that dials an impostor hangs up, and dials again."""
    raft = replace(
        RaftConfig(), handshake_deadline_ms=100, reconnect_delay_ms_min=1, reconnect_delay_ms_max=2
    )
    dials = 0
    draw = random.Random(f"{fuzz.seed} impostors")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal dials
        dials += 1
        await impostor(reader, writer, draw)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    transport, _ = transport_of(tmp_path, server.sockets[0].getsockname()[1], raft)
    ear = Ear()
    with watching(fuzz.of("handshakes"), due="at this member's proof") as watch:
        await transport.start(ear)
        try:
            while dials < fuzz.count("handshakes"):
                assert ear.connected == []
                await asyncio.sleep(0.01)
        finally:
            await transport.stop()
            server.close()
        watch.done.count += dials
    assert (ear.connected, ear.messages) == ([], [])


# --- a member's own socket


async def proved(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Return a connection on which member 2 has proved itself to member 1, and the key it writes
    with."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    dialer = Dialer(Identity("test", member_id="2", secret=SECRET), "1", random.randbytes(32))
    frames = PayloadReader(1_024)
    writer.write(frame(dialer.begin()))
    while not dialer.is_done:
        frames.feed(await reader.read(4_096))
        while (payload := frames.next()) is not None:
            answer = dialer.receive(payload)
            if answer is not None:
                writer.write(frame(answer))
    return reader, writer, dialer.keys().dialed


def spoken_badly(traffic: list[bytes], draw: random.Random, key: bytes) -> bytes:
    """Return some frames of real traffic with something wrong in them, or in how they are cut."""
    payloads = [
        damaged(payload, draw, others=traffic) if draw.random() < 0.3 else payload
        for payload in draw.choices(traffic, k=draw.choice((1, 3, 10)))
    ]
    seals = Seals(key)
    sent = b"".join(seals.sealed_frame(payload) for payload in payloads)
    match draw.randrange(6):
        case 0:
            at = draw.randrange(len(sent) + 1)
            return (
                sent[:at] + draw.choice((b"\xff" * 4, b"\x00" * 4, b"\x00\x40\x00\x01")) + sent[at:]
            )
        case 1:
            return sent[: draw.randrange(len(sent))]
        case 2:
            return damaged(sent, draw)
        case 3:
            length = draw.choice((2**22, 2**22 + 1, 2**31, 2**32 - 1))
            return length.to_bytes(4, "big") + draw.randbytes(draw.choice((0, 9, 60_000)))
        case 4:
            return sent + seals.sealed_frame(
                draw.choice((b"", b"\x78\x9c", b"\x1f\x8b\x08" + bytes(60), b"\x80\x04."))
            )
        case _:
            return sent


async def test_what_a_members_socket_brings_is_a_message_or_its_end(
    fuzz: Fuzz, tmp_path: Path
) -> None:
    """Oversize and half frames, other codecs, garbage among traffic; the next one is met again."""
    transport, port = transport_of(tmp_path, 1, replace(RaftConfig(), handshake_deadline_ms=1_000))
    traffic = [payload for _, _, payload in recorded_in_thread(fuzz.seed)]
    ear = Ear()
    await transport.start(ear)
    done = fuzz.of("frames")
    try:
        with watching(done) as watch:
            number = 0
            while done.count < fuzz.count("frames"):
                number += 1
                draw = random.Random(f"{fuzz.seed} frames {number}")
                reader, writer, key = await proved(port)
                sent = spoken_badly(traffic, draw, key)
                shown = f"seed {fuzz.seed}, number {number}: {sent[:400]!r}"
                writer.write(sent)
                writer.write_eof()
                began = asyncio.get_running_loop().time()
                async with asyncio.timeout(WALL_SECONDS):
                    async for _ in frames_until_closed(reader):
                        pass  # its own pings
                writer.transport.abort()
                watch.took(asyncio.get_running_loop().time() - began, shown)
                expected = list(understood(sent, key))
                assert ear.messages == expected, shown
                done.count += len(expected)
                done.accepted += len(expected)
                ear.messages.clear()
    finally:
        await transport.stop()


def understood(sent: bytes, key: bytes) -> list[Message]:
    """Return the messages before the first thing that is none; pings are the transport's own."""
    frames = PayloadReader(RaftConfig().frame_bytes_max + SEAL_BYTES)
    seals = Seals(key)
    frames.feed(sent)
    joiner = Joiner(RaftConfig().frame_bytes_max)
    found: list[Message] = []
    with contextlib.suppress(FrameError):
        while (payload := frames.next()) is not None:
            whole = joiner.take(seals.open(payload))
            if whole is not None and not isinstance(message := NEWEST.decode(whole), Ping):
                found.append(message)
    return found


# --- many who say nothing


class Crowd:
    """Connections to one member port that say nothing; those that are closed come again."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._tasks = [asyncio.create_task(self._stay()) for _ in range(count)]
        self.calls = 0

    async def _stay(self) -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
                self.calls += 1
                try:
                    writer.write(b"\x00\x00\x00")  # the beginning of a length
                    await reader.read()
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.05)

    async def go(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def write(cluster: ProcessCluster, member_id: str) -> float:
    """Have one write done; return how long it took."""
    began = time.monotonic()
    request = urllib.request.Request(
        cluster.url(member_id) + "/v1/tree/said?create",
        data=json.dumps({"data": "x"}).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=WALL_SECONDS) as reply:
        assert reply.status in (200, 201)
    return time.monotonic() - began


@pytest.mark.slow
async def test_many_who_say_nothing_do_not_part_the_members(fuzz: Fuzz, tmp_path: Path) -> None:
    """Idle calls to every member port, over and over: bounded, and a killed member comes back."""
    cluster = ProcessCluster(tmp_path, 3)
    done = fuzz.of("idle")
    count = fuzz.count("idle") // 3
    await asyncio.to_thread(cluster.start)
    crowds: list[Crowd] = []
    try:
        await asyncio.to_thread(cluster.wait_ready)
        leader = await asyncio.to_thread(cluster.leader)
        victim = next(each for each in cluster.ids if each != leader)
        pid = cluster.processes[leader].pid
        before = descriptors(pid)
        began = time.monotonic()
        with watching(done, pid) as watch:
            crowds += [Crowd(cluster.member_ports[each], count) for each in cluster.ids]
            while sum(crowd.calls for crowd in crowds) < fuzz.count("idle"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            watch.took(await asyncio.to_thread(write, cluster, leader), "a write", patient(5.0))
            assert descriptors(pid) <= before + UNPROVED_CALLERS_MAX + 20

            await asyncio.to_thread(cluster.kill, victim)
            await asyncio.to_thread(cluster.start, victim)
            await asyncio.to_thread(cluster.wait_ready, victim, deadline_s=20.0)
            watch.took(await asyncio.to_thread(write, cluster, victim), "a write", patient(5.0))
            done.count += sum(crowd.calls for crowd in crowds)
            lines = cluster.log_path(leader).read_text().count("\n")
            assert lines < 20 + 3 * (time.monotonic() - began), "a flood of the log"
        assert not cluster.tracebacks()
    finally:
        for crowd in crowds:
            await crowd.go()
        await asyncio.to_thread(cluster.stop)
