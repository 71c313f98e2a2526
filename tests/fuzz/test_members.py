"""What comes in at the member port: from strangers, from a member that lies, late and again.

1. Strangers prove nothing and change nothing: no term, no log, no memory, no flood of the log.
2. A member that has proved who it is can say false things (the threat model admits it), but what it
   says is refused, or ends this member for a stated reason; never by a surprise.
3. What honest members said may come again and late, within a connection: nothing is lost by that.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from coordinator.clock import SystemClock
from coordinator.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.errors import CoordinatorError, StorageError
from coordinator.raft.engine import Role
from coordinator.raft.frames import frame
from coordinator.raft.handshake import Acceptor, Dialer, HandshakeError, Identity
from coordinator.raft.hardening import InvariantError
from coordinator.raft.messages import FrameError, Message, Ping, decode, encode
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.transport import TcpTransport
from tests.fuzz.budget import Fuzz
from tests.fuzz.mutation import damaged, repacked
from tests.fuzz.watch import WALL_SECONDS, watching
from tests.raft.simulated_cluster import ListReplica, SimulatedCluster
from tests.raft.simulated_disk import SimulatedDisk
from tests.raft.simulated_loop import SimulatedClock, run

SECRET = b"0123456789abcdef-canary"


def recorded(seed: int, seconds: float = 6.0) -> list[tuple[str, str, bytes]]:
    """Return (from, to, payload) of all that three honest members said through some troubles."""
    said: list[tuple[str, str, bytes]] = []

    def hear(source: str, target: str, message: Message) -> bool:
        said.append((source, target, encode(message)))
        return True

    async def live() -> None:
        cluster = SimulatedCluster(
            3, seed, snapshot_every_entries=20, keep_entries_after_snapshot=4
        )
        cluster.network.on_message = hear
        await cluster.start()
        for number in range(int(seconds)):
            leader = await cluster.leader()
            for other in cluster.members:
                if other.is_up:
                    await other.engine.read_barrier()
            for command in range(12):
                await leader.engine.propose(b"%d-%d" % (number, command))
            if number % 3 == 2:
                victim = cluster.random.choice(cluster.members)
                await victim.kill()
                leader = await cluster.leader(cluster.others(victim))
                for command in range(30):
                    await leader.engine.propose(b"%d+%d" % (number, command))
                await victim.start()
            await asyncio.sleep(0.3)
        await cluster.equal()
        await cluster.stop()

    run(live())
    return said


# --- strangers


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
                MemberAddress(str(n), "http://127.0.0.1:1", "127.0.0.1", bound.getsockname()[1])
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
        ids = frozenset("123")
        with watching(done) as watch:
            number = 0
            while done.count < fuzz.count("strangers"):
                number += 1
                draw = random.Random(f"{fuzz.seed} strangers {number}")
                target = draw.randrange(3)
                known = Identity("test", draw.choice([i for i in "123" if i != str(target + 1)]),
                                 SECRET, ids)  # fmt: skip
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
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(recorded, seed).result()


def test_a_broken_handshake_is_never_believed(fuzz: Fuzz) -> None:
    """Both sides, byte by byte: whatever is not the very proof ends the conversation."""
    chance = fuzz.random("handshake")
    identity = Identity("test", "1", SECRET, frozenset("123"))
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


# --- a member that lies


class Mouth:
    """A transport whose peers say what the test wants, and hear nothing."""

    def __init__(self) -> None:
        self.listener: Any = None
        self.sent_total = 0

    async def start(self, listener: Any) -> None:
        self.listener = listener
        for peer in "23":
            listener.on_connected(peer)

    async def stop(self) -> None: ...

    def send(self, member_id: str, message: Message) -> bool:
        self.sent_total += len(encode(message))
        return True

    def flush(self) -> None: ...

    def is_connected(self, member_id: str) -> bool:
        return True


class Victim:
    """One real engine, its disk, and two peers that lie; started anew when it has stopped."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.failures: list[BaseException] = []
        self.engine: PySyncObjEngine
        self.mouth: Mouth

    async def start(self) -> None:
        self.mouth = Mouth()
        self.failures = []
        self.engine = PySyncObjEngine(
            ClusterConfig(
                members=tuple(MemberAddress(i, "http://h:1", "127.0.0.1", int(i)) for i in "123")
            ),
            MemberConfig("1", "data"),
            replace(RaftConfig(), snapshot_every_entries=30, keep_entries_after_snapshot=5),
            clock=SimulatedClock(asyncio.get_running_loop()),
            disk=self.disk,
            random=self.random,
            transport=self.mouth,
            run_blocking=at_once,
        )
        self.engine.on_failure(self.failures.append)
        await self.engine.start(ListReplica())

    async def again(self) -> None:
        """End it as a kill does, and start it on what it left."""
        await self.engine.stop()
        self.disk.kill()
        try:
            await self.start()
        except StorageError:
            # Lies were logged as truth, and do not fit together: a new disk, as an operator would.
            self.disk = SimulatedDisk(self.random.randrange(2**30))
            await self.start()


async def at_once(call: Any, /) -> Any:
    await asyncio.sleep(0)
    return call()


REASONS = (InvariantError, CoordinatorError, FrameError)
"""Why a member may stop for what a proved member said: all of them say what was wrong."""


def lies(corpus: list[tuple[str, str, bytes]], draw: random.Random) -> list[tuple[str, bytes]]:
    """Return a conversation with one member as it was, from some point on, with lies in it."""
    target = draw.choice("123")
    others = [member_id for member_id in "123" if member_id != target]
    names = dict(zip(others, "23", strict=True))
    said = [(names[source], payload) for source, to, payload in corpus if to == target]
    start = draw.choice((0, 0, draw.randrange(len(said))))
    said = said[start : start + draw.choice((20, 100, 400))]
    payloads = [payload for _, payload in said]
    rate = draw.choice((0.02, 0.1, 0.5))
    told: list[tuple[str, bytes]] = []
    for source, payload in said:
        kind = draw.random() / rate
        if kind < 0.5:
            payload = repacked(payload, draw, DONORS)
        elif kind < 0.65:
            payload = damaged(payload, draw, others=payloads)
        elif kind < 0.75:
            payload = draw.choice(payloads)  # again, or too early
        elif kind < 0.85:
            source = draw.choice("23")  # said by the other one
        elif kind < 1.0:
            continue
        told.append((source, payload))
    return told


DONORS = [b"x", 1, (1, b"y"), ((1, b"z"),)]


def test_a_member_that_lies_is_refused_or_named(fuzz: Fuzz) -> None:
    """Real conversations with messages changed, repeated, missing, or said by the other one."""
    corpus = recorded(fuzz.seed)
    done = fuzz.of("liars")

    async def live() -> None:
        life = 0
        with watching(done) as watch:
            while done.count < fuzz.count("liars"):
                life += 1
                draw = random.Random(f"{fuzz.seed} liars {life}")
                victim = Victim(life)
                await victim.start()
                for source, payload in lies(corpus, draw):
                    shown = f"seed {fuzz.seed}, life {life}, {done.count}: {payload[:400]!r}"
                    with watch.each(shown):
                        try:
                            message = decode(payload)
                        except FrameError:
                            continue
                        done.accepted += 1
                        if not isinstance(message, Ping):  # the transport keeps those to itself
                            victim.mouth.listener.on_message(source, message)
                        await asyncio.sleep(draw.choice((0, 0, 0.001, 0.01)))
                    if victim.failures:
                        reason = victim.failures[0]
                        assert isinstance(reason, REASONS), f"{shown}: {reason!r}"
                        done.stopped += 1
                        # It logs with its traceback why it stops, which is no surprise here.
                        watch.trouble.lines.clear()
                        await victim.again()
                assert not watch.trouble.lines, (life, watch.trouble.lines[:3])
                await victim.again()
                await victim.engine.stop()

    run(live())


# --- late, and again


def test_what_comes_again_and_late_loses_nothing(fuzz: Fuzz) -> None:
    """Messages of the same connection, repeated any time later in any order, with members killed
    in between: every acknowledged command stays, once, and all histories are one."""
    done = fuzz.of("replays")

    async def live(seed: int) -> None:
        cluster = SimulatedCluster(
            3, seed, snapshot_every_entries=25, keep_entries_after_snapshot=5
        )
        heard: dict[tuple[str, str], list[Message]] = {}
        draw = random.Random(seed)
        is_replaying = False

        def hear(source: str, target: str, message: Message) -> bool:
            if not is_replaying:
                heard.setdefault((source, target), []).append(message)
            return True

        def replay(times: int) -> None:
            nonlocal is_replaying
            is_replaying = True
            for _ in range(times):
                if not heard:
                    break
                source, target = pair = draw.choice(list(heard))
                transport = cluster.network.members.get(target)
                if transport is not None and source in cluster.network.members and heard[pair]:
                    transport.listener.on_message(source, draw.choice(heard[pair]))
                    done.count += 1
            is_replaying = False

        def forget(member_id: str) -> None:
            for pair in list(heard):
                if member_id in pair:
                    del heard[pair]

        cluster.network.on_message = hear
        await cluster.start()
        acknowledged: list[bytes] = []
        for number in range(60):
            leader = await cluster.leader()
            try:
                async with asyncio.timeout(3):
                    command = b"%d" % number
                    await leader.engine.propose(command)
                    acknowledged.append(command)
            except (CoordinatorError, TimeoutError):
                pass
            replay(draw.choice((1, 5, 20)))
            if number % 20 == 19:
                victim = draw.choice(cluster.members)
                forget(victim.member_id)
                await victim.kill()
                replay(10)
                await asyncio.sleep(draw.choice((0.0, 1.0)))
                await victim.start()
            await asyncio.sleep(draw.choice((0.0, 0.01, 0.2)))
        commands = await cluster.equal()
        await cluster.stop()
        for member in cluster.members:
            assert not member.failures, f"seed {seed}: {member.failures}"
        for command in acknowledged:
            assert commands.count(command) == 1, f"seed {seed}: {command!r}"

    with watching(done):
        seed = fuzz.seed * 1_000
        while done.count < fuzz.count("replays"):
            seed += 1
            run(live(seed))
