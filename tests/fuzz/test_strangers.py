"""Callers at the member port who have listened and know no secret: broken and repeated traffic.

They change nothing and learn nothing: no term, no log, no memory, no flood of the log. Those who
take part in the handshake are in ``test_member_port``.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from coordinator.clock import SystemClock
from coordinator.errors import CoordinatorError
from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network.frames import frame
from coordinator.raft.network.handshake import Acceptor, Dialer, HandshakeError, Identity
from coordinator.raft.network.transport import TcpTransport
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged, repacked
from tests.fuzz.test_members import recorded
from tests.fuzz.watch import WALL_SECONDS, watching
from tests.raft.simulated_cluster import ListReplica

SECRET = b"canary-0123456789abcdefghijklmnopqrstuvwxyzAB"


class Members:
    """Three engines over real sockets, with a secret."""

    def __init__(self, directory: Path) -> None:
        secret = directory / "secret"
        secret.write_bytes(SECRET)
        secret.chmod(0o600)
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.cluster = ClusterConfig(
            name="test",
            secret_file=str(secret),
            members=tuple(
                MemberAddress(
                    str(n),
                    client_url="http://127.0.0.1:1",
                    member_host="127.0.0.1",
                    member_port=bound.getsockname()[1],
                )
                for n, bound in enumerate(self.sockets, 1)
            ),
        )
        raft = replace(RaftConfig(), handshake_deadline_ms=300)
        self.replicas = [ListReplica() for _ in range(3)]
        self.engines = [
            PySyncObjEngine(
                self.cluster,
                member := MemberConfig(str(n), str(directory / str(n))),
                raft,
                clock=SystemClock(),
                random=random.Random(n),
                transport=TcpTransport(
                    self.cluster,
                    member,
                    raft,
                    clock=SystemClock(),
                    random=random.Random(n),
                    listening_socket=bound,
                ),
            )
            for n, bound in enumerate(self.sockets, 1)
        ]

    def port(self, number: int) -> int:
        return self.cluster.members[number].member_port

    async def leader(self) -> PySyncObjEngine:
        async with asyncio.timeout(20):
            while True:
                for engine in self.engines:
                    status = engine.status()
                    if status.role is Role.LEADER and status.is_ready:
                        return engine
                await asyncio.sleep(0.01)

    async def propose(self, command: bytes) -> None:
        """Have ``command`` applied everywhere, through a change of leader if there is one."""
        async with asyncio.timeout(30):
            while not all(command in replica.commands for replica in self.replicas):
                try:
                    async with asyncio.timeout(3):
                        await (await self.leader()).propose(command)
                except (CoordinatorError, TimeoutError):
                    pass
                await asyncio.sleep(0.05)


@asynccontextmanager
async def members(directory: Path) -> AsyncIterator[Members]:
    cluster = Members(directory)
    for engine, replica in zip(cluster.engines, cluster.replicas, strict=True):
        await engine.start(replica)
    try:
        yield cluster
    finally:
        for engine in cluster.engines:
            await engine.stop()


def overheard_handshake(identity: Identity, peer_id: str, chance: random.Random) -> list[bytes]:
    """Return both sides of a good handshake of another day, as somebody on the wire has them."""
    dialer = Dialer(identity, peer_id, chance.randbytes(32))
    acceptor = Acceptor(replace(identity, member_id=peer_id), chance.randbytes(32))
    said = [dialer.begin()]
    for side in (acceptor, dialer, acceptor):
        answer = side.receive(said[-1])
        assert answer is not None
        said.append(answer)
    return said


def stranger_payloads(heard: list[bytes], traffic: list[bytes], draw: random.Random) -> list[bytes]:
    """Return some frames of somebody who has listened, and knows no secret."""
    if draw.random() < 0.3:
        chosen = list(heard)  # a whole handshake, again
    else:
        chosen = draw.choices([*heard, *heard, *draw.sample(traffic, 4)], k=draw.choice((1, 2, 3)))
    return [
        payload if draw.random() < 0.4 else
        damaged(payload, draw, others=heard) if draw.random() < 0.5 else repacked(payload, draw, [])
        for payload in chosen
    ]  # fmt: skip


def stranger_bytes(payloads: list[bytes], draw: random.Random) -> bytes:
    """Frame them, sometimes wrongly."""
    kind = draw.random()
    if kind < 0.7:
        return b"".join(frame(payload) for payload in payloads)
    if kind < 0.8:
        return draw.choice((0, 1, 1_025, 2**20, 2**31, 2**32 - 1)).to_bytes(4, "big") + payloads[0]
    if kind < 0.9:
        return damaged(b"".join(frame(payload) for payload in payloads), draw)
    return draw.choice(
        (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\xa5", draw.randbytes(900), b"")
    )


async def call_as_stranger(port: int, sent: bytes, draw: random.Random) -> bytes:
    """Send; return what came back until the member hangs up, or we do."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(sent)
        if draw.random() < 0.9:
            writer.write_eof()
        async with asyncio.timeout(WALL_SECONDS):
            answer = await reader.read(4_096)
            while piece := await reader.read(4_096):
                answer += piece
    except TimeoutError:
        raise
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return answer


async def test_strangers_change_nothing_and_learn_nothing(fuzz: Fuzz, tmp_path: Path) -> None:
    """Replayed and broken handshakes, real traffic before any, lengths that lie."""
    heard_traffic = [payload for _, _, payload in recorded_in_thread(fuzz.seed)]
    done = fuzz.of("strangers")
    loop = asyncio.get_running_loop()
    async with members(tmp_path) as cluster:
        await cluster.propose(b"before")
        with watching(done) as watch:
            number = 0
            while done.count < fuzz.count("strangers"):
                number += 1
                draw = random.Random(f"{fuzz.seed} strangers {number}")
                target = draw.randrange(3)
                known = Identity(
                    "test",
                    member_id=draw.choice([i for i in "123" if i != str(target + 1)]),
                    secret=SECRET,
                )
                heard = overheard_handshake(known, str(target + 1), draw)
                payloads = stranger_payloads(heard, heard_traffic, draw)
                sent = stranger_bytes(payloads, draw)
                began = loop.time()
                answer = await call_as_stranger(cluster.port(target), sent, draw)
                watch.took(loop.time() - began, f"seed {fuzz.seed}, number {number}: {sent!r}")
                done.count += len(payloads) - 1
                done.accepted += bool(answer)
                assert SECRET not in answer
                assert b"welcome" not in answer, f"seed {fuzz.seed}, number {number}: let in"
        await cluster.propose(b"after")
        histories = [replica.commands for replica in cluster.replicas]
        for history in histories:
            assert set(history) == {b"before", b"after"}


def recorded_in_thread(seed: int) -> list[tuple[str, str, bytes]]:
    """Record beside the running loop, which a simulated one would not share."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(recorded, seed).result()


def test_a_broken_handshake_is_never_believed(fuzz: Fuzz) -> None:
    """Both sides, byte by byte: whatever is not the very proof ends the conversation."""
    chance = fuzz.random("handshake")
    identity = Identity("test", member_id="1", secret=SECRET)
    for _ in range(fuzz.count("strangers")):
        dialer = Dialer(identity, "2", chance.randbytes(32))
        acceptor = Acceptor(replace(identity, member_id="2"), chance.randbytes(32))
        said = dialer.begin()
        wrong_at = chance.randrange(4)
        try:
            for step, side in enumerate((acceptor, dialer, acceptor, dialer)):
                if step == wrong_at:
                    before = said
                    said = (damaged if chance.random() < 0.5 else repacked_alone)(said, chance)
                    if said == before:
                        break
                answer = side.receive(said)
                said = answer if answer is not None else b""
        except HandshakeError:
            pass
        else:
            # The hello may be changed and still be a hello (another nonce): its proof tells then.
            assert wrong_at == 3 or said == before or not (dialer.is_done and acceptor.is_done)


def repacked_alone(payload: bytes, chance: random.Random) -> bytes:
    return repacked(payload, chance, [])
