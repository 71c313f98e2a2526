"""Members talking over real sockets on loopback: who is let in, what is refused, what survives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import struct
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import ConfigError
from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.network import messages as say
from coordinator.raft.network.agreement import Agreement, facts_of_cluster
from coordinator.raft.network.frames import PayloadReader, frame
from coordinator.raft.network.handshake import Acceptor, Dialer, HandshakeError, Identity
from coordinator.raft.network.lanes import Joiner
from coordinator.raft.network.messages import NEWEST, FrameError, Message
from coordinator.raft.network.seals import Seals
from coordinator.raft.network.transport import TURNED_AWAY, UNPROVED_CALLERS_MAX, TcpTransport
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from tests.patience import patient
from tests.ports import free_ports
from tests.raft.network.message_table import EXAMPLES
from tests.raft.simulated_cluster import ListReplica

SECRET = b"canary-0123456789abcdefghijklmnopqrstuvwxyzAB"


BEHIND_BYTES_MAX = 512 * 1024
"""What was written before a word: to the sockets of both ends, and as the next piece."""


class Ear:
    """Remembers what a transport tells."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Message]] = []
        self.events: list[tuple[str, str]] = []

    def on_message(self, member_id: str, message: Message) -> None:
        self.messages.append((member_id, message))

    def on_connected(self, member_id: str) -> None:
        self.events.append(("connected", member_id))

    def on_disconnected(self, member_id: str) -> None:
        self.events.append(("disconnected", member_id))


class Network:
    """Transports of one test, on ports bound before anybody is configured."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.secret_file = folder / "secret"
        self.secret_file.write_bytes(SECRET)
        self.secret_file.chmod(0o600)
        self.raft = replace(RaftConfig(), handshake_deadline_ms=300)
        self.sockets = [self.bind(free_ports(1)[0]) for _ in range(count)]
        self.cluster = ClusterConfig(
            name="test",
            secret_file=str(self.secret_file),
            members=tuple(
                MemberAddress(
                    str(number),
                    client_url="http://127.0.0.1:1",
                    member_host="127.0.0.1",
                    member_port=bound.getsockname()[1],
                )
                for number, bound in enumerate(self.sockets, 1)
            ),
        )
        self.transports: list[TcpTransport] = []

    def bind(self, port: int) -> socket.socket:
        bound = socket.socket()
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))  # some are bound again
        return bound

    def port(self, number: int) -> int:
        return self.cluster.members[number - 1].member_port

    def make(self, number: int, **changes: Any) -> TcpTransport:
        transport = TcpTransport(
            replace(self.cluster, **changes),
            MemberConfig(member_id=str(number)),
            self.raft,
            clock=SystemClock(),
            random=random.Random(number),
            listening_socket=self.sockets[number - 1],
        )
        self.transports.append(transport)
        return transport

    async def start(self, number: int, **changes: Any) -> tuple[TcpTransport, Ear]:
        ear = Ear()
        transport = self.make(number, **changes)
        transport.agree_on(facts_of_cluster(replace(self.cluster, **changes)))
        await transport.start(ear)
        return transport, ear

    async def stop(self) -> None:
        for transport in self.transports:
            await transport.stop()
        for bound in self.sockets:
            bound.close()


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Network]:
    network = Network(tmp_path)
    yield network
    await network.stop()


async def until(is_true: Callable[[], bool], within_s: float = 5.0) -> None:
    async with asyncio.timeout(patient(within_s)):
        while not is_true():  # noqa: ASYNC110 (there is nobody to set an event)
            await asyncio.sleep(0.002)


def write_secrets(network: Network, *secrets: bytes) -> None:
    network.secret_file.write_bytes(b"\n".join(secrets) + b"\n")


async def test_the_secret_is_replaced_without_a_stop(network: Network) -> None:
    """Both lines are believed, the first is proved; the former counts no more once it is gone."""
    new = secrets.token_hex(32).encode()
    network.raft = replace(network.raft, election_timeout_ms_min=20, reconnect_delay_ms_max=20)
    one, _ = await network.start(1)
    two, _ = await network.start(2)

    async def reconnected() -> None:
        for transport, other in ((one, "2"), (two, "1")):
            await until(lambda of=transport, to=other: of.is_connected(to))  # type: ignore[misc]
            transport.drop(other)
        await until(lambda: one.is_connected("2") and two.is_connected("1"))

    async def read(*expected: bytes) -> None:
        await until(lambda: {one.identity.secret, two.identity.secret} == {*expected})

    write_secrets(network, SECRET, new)
    await until(lambda: one.identity.former == (new,) == two.identity.former)
    await reconnected()
    two._secrets.maybe_reload = lambda: None  # type: ignore[method-assign]
    write_secrets(network, new, SECRET)
    await read(new, SECRET)
    await reconnected()
    del two._secrets.maybe_reload
    write_secrets(network, new)
    await read(new)
    await until(lambda: one.identity.former == () == two.identity.former)
    await reconnected()


async def test_a_connection_ends_with_the_secret_by_which_it_was_proved(
    network: Network, tmp_path: Path
) -> None:
    """A member that does not know the new one is out then, not when its connection breaks."""
    network.raft = replace(network.raft, election_timeout_ms_min=20, reconnect_delay_ms_max=20)
    stolen = tmp_path / "stolen"
    stolen.write_bytes(SECRET)
    stolen.chmod(0o600)
    new = secrets.token_hex(32).encode()
    one, ear = await network.start(1)
    two, _ = await network.start(2, secret_file=str(stolen))
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    write_secrets(network, new, SECRET)
    await until(lambda: one.identity.former == (SECRET,))
    assert ("disconnected", "2") not in ear.events
    write_secrets(network, new)
    await until(lambda: ("disconnected", "2") in ear.events)
    await until(lambda: one.disagreements() != {})

    assert not one.is_connected("2")


async def test_a_secret_that_is_none_leaves_the_former(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    """While it is written anew a file may be empty, or have too much in it."""
    network.raft = replace(network.raft, election_timeout_ms_min=20)
    one, _ = await network.start(1)
    for wrong in (b"", b"short", b"\n".join([SECRET] * 3)):
        caplog.clear()
        network.secret_file.write_bytes(wrong)
        await until(lambda: "the former secret stays in use" in caplog.text)
    assert one.identity.secret == SECRET
    assert one.secret_problem.startswith("cluster.secret_file: ")

    write_secrets(network, SECRET)
    await until(lambda: not one.secret_problem)


async def test_two_members_meet_and_talk_both_ways(network: Network) -> None:
    """Both dial at once; one connection stays, and messages cross it in order."""
    one, one_ear = await network.start(1)
    two, two_ear = await network.start(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))
    await asyncio.sleep(0.1)  # both have dialled by now, and one link has been given up

    for number in range(100):
        assert one.send("2", say.TermNotice(number))
    assert two.send(
        "1",
        say.Append(
            term=1,
            epoch=2,
            commit_index=3,
            prev_index=4,
            prev_term=5,
            entries=[(1, b"\x00x"), (2, b"\x01")],
        ),
    )
    await until(lambda: len(two_ear.messages) == 100 and len(one_ear.messages) == 1)

    assert [message for _, message in two_ear.messages] == [say.TermNotice(n) for n in range(100)]
    assert one_ear.messages == [
        (
            "2",
            say.Append(
                term=1,
                epoch=2,
                commit_index=3,
                prev_index=4,
                prev_term=5,
                entries=((1, b"\x00x"), (2, b"\x01")),
            ),
        )
    ]


@pytest.mark.parametrize("change", ["secret", "cluster", "member"])
async def test_strangers_are_refused_without_a_word_of_the_secret(
    network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """A wrong secret, cluster name or member id never connects, and no log line has the secret."""
    changes: dict[str, Any] = {}
    if change == "secret":
        other = tmp_path / "other-secret"
        other.write_bytes(SECRET[::-1] + b"canary")
        other.chmod(0o600)
        changes["secret_file"] = str(other)
    elif change == "cluster":
        changes["name"] = "another"
    else:
        first, second = network.cluster.members
        changes["members"] = (replace(first, member_id="9"), second)
    with caplog.at_level(logging.DEBUG):
        _one, one_ear = await network.start(1)
        _two, two_ear = await network.start(2, **changes)

        await until(lambda: "connection refused" in caplog.text)
        await asyncio.sleep(0.2)

    assert one_ear.events == two_ear.events == []
    assert "canary" not in caplog.text


async def test_a_wrong_secret_is_said_on_both_sides(
    network: Network, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever calls is hung up on without a word; it says why, until the secrets are the same."""
    other = tmp_path / "other-secret"
    other.write_bytes(SECRET[::-1])
    other.chmod(0o600)
    with caplog.at_level(logging.WARNING):
        one, _ = await network.start(1)
        two, _ = await network.start(2, secret_file=str(other))
        await until(lambda: one.disagreements() and two.disagreements())

    assert (one.disagreements(), two.disagreements()) == (
        {"2": TURNED_AWAY}, {"1": TURNED_AWAY},
    )  # fmt: skip
    for member_id in ("1", "2"):
        assert f"member {member_id} refused: it hung up at this member's proof" in caplog.text
    await two.stop()
    network.sockets[1] = socket.create_server(("127.0.0.1", network.port(2)))
    await network.start(2)
    await until(lambda: one.is_connected("2"))
    assert one.disagreements() == {}


async def test_a_peer_that_hangs_up_once_is_not_accused(network: Network) -> None:
    """It may have been stopped in that moment; only what it does again and again says anything."""
    one = network.make(1)
    peer = one._peers["2"]

    one._note_turned_away(peer)

    assert one.disagreements() == {}
    one._note_turned_away(peer)
    assert one.disagreements() == {"2": TURNED_AWAY}


async def test_garbage_before_the_handshake_is_dropped(network: Network) -> None:
    """A long frame, not msgpack, silence: each is closed, and members still meet afterwards."""
    one, ear = await network.start(1)
    for payload in (
        struct.pack(">I", 2**31) + b"x",
        frame(b"\xc1" * 10),
        frame(os.urandom(900)),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"",
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", network.port(1))
        writer.write(payload)
        async with asyncio.timeout(2):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()

    _two, _ = await network.start(2)
    await until(lambda: one.is_connected("2"))
    assert ear.messages == []


async def test_callers_that_prove_nothing_keep_no_member_out(network: Network) -> None:
    """However many hold a connection to both ports: one of them makes room for the next."""
    network.raft = replace(network.raft, handshake_deadline_ms=60_000)
    one, _ = await network.start(1)
    crowd = []
    for _ in range(UNPROVED_CALLERS_MAX):
        crowd.append(await asyncio.open_connection("127.0.0.1", network.port(1)))
    two, _ = await network.start(2)

    for number in (1, 2):
        for _ in range(UNPROVED_CALLERS_MAX + 9):
            crowd.append(await asyncio.open_connection("127.0.0.1", network.port(number)))
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    ends = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
    await until(lambda: sum(each.done() for each in ends) >= UNPROVED_CALLERS_MAX)
    for _, writer in crowd:
        writer.transport.abort()
    await asyncio.gather(*ends, return_exceptions=True)


async def test_callers_of_one_address_take_no_place_of_another(network: Network) -> None:
    """Those of the address with the most make room; the single one of another is not touched."""
    network.raft = replace(network.raft, handshake_deadline_ms=60_000)
    await network.start(1)
    alone, alone_writer = await asyncio.open_connection(
        "127.0.0.1", network.port(1), local_addr=("127.0.0.2", 0)
    )
    crowd = []
    for _ in range(3 * UNPROVED_CALLERS_MAX):
        crowd.append(await asyncio.open_connection("127.0.0.1", network.port(1)))
    ends = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
    await until(lambda: sum(each.done() for each in ends) >= 2 * UNPROVED_CALLERS_MAX)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await alone.read()
    for writer in (alone_writer, *(each for _, each in crowd)):
        writer.transport.abort()
    await asyncio.gather(*ends, return_exceptions=True)


async def test_a_flood_of_callers_keeps_no_member_out(network: Network) -> None:
    """From its own address, as fast as they can be made, at both ports, while it starts again."""
    one, _ = await network.start(1)
    calling, flood = True, []

    async def call(port: int) -> None:
        while calling:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                flood.append(writer.transport)
                if len(flood) > 4 * UNPROVED_CALLERS_MAX:
                    flood.pop(0).abort()

    callers = [asyncio.create_task(call(network.port(1 + each % 2))) for each in range(16)]
    await until(lambda: len(flood) > UNPROVED_CALLERS_MAX)
    two, _ = await network.start(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))
    calling = False
    await asyncio.gather(*callers)
    for each in flood:
        each.abort()


async def test_a_peer_that_vanishes_is_noticed_and_met_again(network: Network) -> None:
    """A closed connection is told at once; a new one is made when the peer is back."""
    one, one_ear = await network.start(1)
    two, _ = await network.start(2)
    await until(lambda: one.is_connected("2"))

    await two.stop()
    await until(lambda: one_ear.events[-1] == ("disconnected", "2"))
    assert not one.send("2", say.Ping())
    network.sockets[1] = socket.create_server(("127.0.0.1", network.port(2)))
    await network.start(2)

    await until(lambda: one.is_connected("2"))


@dataclass
class Dialed:
    """Member 2 by hand: it reads when it is asked to."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    dialer: Dialer

    @classmethod
    async def of(cls, network: Network) -> Dialed:
        facts = facts_of_cluster(network.cluster)
        identity = Identity("test", member_id="2", secret=SECRET, agreement=Agreement(facts))
        port = network.port(1)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**12)
        dialer, frames = Dialer(identity, "1", os.urandom(32)), PayloadReader(1024)
        writer.write(frame(dialer.begin()))
        while not dialer.is_done:
            frames.feed(await reader.read(1024))
            while (payload := frames.next()) is not None:
                if (answer := dialer.receive(payload)) is not None:
                    writer.write(frame(answer))
        return cls(reader, writer, dialer)

    async def messages(self) -> AsyncIterator[tuple[Message, int]]:
        """The messages that come, each with the number of bytes read until then."""
        seals, count = Seals(self.dialer.keys().accepted), 0
        frames, joiner = PayloadReader(2**20), Joiner(2**23)
        while data := await self.reader.read(4096):
            count += len(data)
            frames.feed(data)
            while (payload := frames.next()) is not None:
                if (whole := joiner.take(seals.open(payload))) is not None:
                    yield NEWEST.decode(whole), count


async def test_a_peer_that_reads_nothing_fills_no_memory(network: Network) -> None:
    """What waits in each lane is bounded: what is beyond is refused, and the connection stays."""
    network.raft = replace(network.raft, send_buffer_bytes_max=200_000)
    one, _ = await network.start(1)
    other = await Dialed.of(network)
    await until(lambda: one.is_connected("2"))

    for kind in (
        say.SnapshotPiece(1, 1, total_bytes=1, sha256=b"", offset=0, data=bytes(10_000)),
        say.MemberRequest(1, kind="k", payload=bytes(10_000)),
        say.MemberRequest(1, kind="k", payload=bytes(1_000)),
        say.Append(1, 1, commit_index=1, prev_index=1, prev_term=1, entries=[(1, bytes(10_000))]),
    ):
        taken = 0
        while one.send("2", kind):
            taken += 1
            one.flush()
            assert taken < 10_000
    assert one.is_connected("2")

    while one.send("2", say.Probe(1, 1)):
        one.flush()
    await until(lambda: not one.is_connected("2"))
    other.writer.close()


async def test_a_word_overtakes_megabytes(network: Network) -> None:
    """However much waits for a slow peer: of what was sent first little comes before the word."""
    one, _ = await network.start(1)
    other = await Dialed.of(network)
    await until(lambda: one.is_connected("2"))
    value = os.urandom(1_000_000)
    for number in range(8):
        assert one.send("2", say.MemberRequest(number, kind="k", payload=value))
        assert one.send(
            "2",
            say.Append(1, 1, commit_index=1, prev_index=number, prev_term=1, entries=[(1, value)]),
        )
    one.flush()
    heard = other.messages()
    first, begun = await anext(heard)
    assert isinstance(first, say.MemberRequest | say.Append)

    assert one.send("2", say.MemberRequest(99, kind="k", payload=b"short"))
    assert one.send("2", say.VoteRequest(9, last_index=9, last_term=9))
    order: list[Message] = [first]
    behind: dict[Message, int] = {}
    async for message, count in heard:
        order.append(message)
        behind[message] = count - begun
        if len(order) == 18:
            break

    assert behind[say.VoteRequest(9, last_index=9, last_term=9)] < BEHIND_BYTES_MAX
    assert behind[say.MemberRequest(99, kind="k", payload=b"short")] < BEHIND_BYTES_MAX
    appends = [each.prev_index for each in order if isinstance(each, say.Append)]
    assert appends == list(range(8)), "in their order"
    requests = [each for each in order if isinstance(each, say.MemberRequest)]
    assert all(each.payload == value for each in requests if each.request_id != 99)
    other.writer.close()


async def test_a_message_over_the_frame_limit_is_not_sent(network: Network) -> None:
    """What the other side would refuse never leaves."""
    network.raft = replace(network.raft, frame_bytes_max=5_000)
    one, _ = await network.start(1)
    two, _ear = await network.start(2)
    await until(lambda: one.is_connected("2") and two.is_connected("1"))

    assert not one.send("2", say.MemberRequest(request_id=1, kind="kind", payload=bytes(6_000)))
    assert one.is_connected("2")


def test_several_members_need_a_secret(network: Network, tmp_path: Path) -> None:
    """On loopback, too: a file that is private, and of a form that nobody thinks up."""
    network.make(1, secret_file=None, members=network.cluster.members[:1])

    with pytest.raises(ConfigError, match="`coordinator secret cluster-secret`"):
        network.make(1, secret_file=None)
    network.secret_file.chmod(0o644)
    with pytest.raises(ConfigError, match="0600"):
        network.make(1)
    network.secret_file.chmod(0o600)
    horse = "correct horse battery staple " * 3
    for weak in ("", "short", "password12345678", horse, "0" * 64, SECRET.hex() * 99):
        network.secret_file.write_text(weak)
        with pytest.raises(ConfigError, match=r"32 random bytes or more.*`coordinator secret /"):
            network.make(1)
    in_base64 = b64encode(os.urandom(32)).decode()
    for strong in (secrets.token_hex(32), secrets.token_urlsafe(32), in_base64):
        network.secret_file.write_text(strong + "\n")
        network.make(1)
    with pytest.raises(ConfigError, match="cannot read"):
        network.make(1, secret_file=str(tmp_path / "nowhere"))


def shake(dialer: Dialer, acceptor: Acceptor) -> None:
    payload: bytes | None = dialer.begin()
    while payload is not None:
        answer = acceptor.receive(payload)
        payload = None if answer is None else dialer.receive(answer)


def test_a_proof_is_useless_in_the_other_direction() -> None:
    """What an acceptor proves cannot be taken for a dialer's proof, nor replayed later."""
    one, two = (
        Identity("c", member_id="1", secret=SECRET),
        Identity("c", member_id="2", secret=SECRET),
    )
    dialer, acceptor = Dialer(one, "2", b"d" * 32), Acceptor(two, b"a" * 32)
    shake(dialer, acceptor)
    assert dialer.is_done
    assert acceptor.is_done

    def said_by_acceptor(acceptor: Acceptor) -> bytes:
        dialer = Dialer(one, "2", b"d" * 32)
        challenge = acceptor.receive(dialer.begin())
        assert challenge is not None
        proof = dialer.receive(challenge)
        assert proof is not None
        welcome = acceptor.receive(proof)
        assert welcome is not None
        return welcome

    stolen = said_by_acceptor(Acceptor(two, b"a" * 32))[-32:]
    for nonce in (b"a" * 32, b"b" * 32):
        victim = Acceptor(two, nonce)
        victim.receive(Dialer(one, "2", b"d" * 32).begin())
        with pytest.raises(HandshakeError, match="secret"):
            victim.receive(b"\x93\xa5proof\xc4\x00\xc4\x20" + stolen)


def test_a_stranger_gets_no_word_made_with_the_secret() -> None:
    """What an acceptor says before it was proved to is the same whatever the secret."""
    challenges = [
        Acceptor(Identity("c", member_id="2", secret=secret), b"a" * 32).receive(
            Dialer(Identity("c", member_id="1", secret=b""), "2", b"d" * 32).begin()
        )
        for secret in (SECRET, b"another-secret-of-22-b")
    ]

    assert challenges[0] == challenges[1] is not None


def test_every_message_survives_the_codec() -> None:
    """encode and decode are inverse for each kind."""
    for message in EXAMPLES:
        assert NEWEST.decode(NEWEST.encode(message)) == message
        assert type(NEWEST.decode(NEWEST.encode(message))) is type(message)


def test_mutated_messages_are_refused_or_are_messages() -> None:
    """Fifty thousand flips, cuts and insertions raise FrameError or decode to a valid message."""
    rng = random.Random(7)
    seeds = [
        NEWEST.encode(
            say.Append(
                term=1,
                epoch=2,
                commit_index=3,
                prev_index=4,
                prev_term=5,
                entries=((1, b"\x00abc"), (2, b"\x01")),
            )
        ),
        NEWEST.encode(say.MemberRequest(request_id=1, kind="kind", payload=b"payload")),
        NEWEST.encode(
            say.SnapshotPiece(
                term=1, snapshot_index=2, total_bytes=3, sha256=b"s" * 32, offset=4, data=b"data"
            )
        ),
    ]

    for _ in range(50_000):
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            position = rng.randrange(len(data))
            deed = rng.randrange(3)
            if deed == 0:
                data[position] = rng.randrange(256)
            elif deed == 1 and len(data) > 1:
                del data[position]
            else:
                data.insert(position, rng.randrange(256))
        try:
            message = NEWEST.decode(bytes(data))
        except FrameError:
            continue
        assert NEWEST.decode(NEWEST.encode(message)) == message


def test_frames_come_back_however_they_are_chopped() -> None:
    """Any chopping of the stream gives the same payloads; a length over the limit is refused."""
    rng = random.Random(3)
    payloads = [rng.randbytes(rng.randrange(0, 300)) for _ in range(200)]
    stream = b"".join(frame(payload) for payload in payloads)
    reader, found = PayloadReader(300), []

    while stream:
        count = rng.randrange(1, 700)
        reader.feed(stream[:count])
        stream = stream[count:]
        while (payload := reader.next()) is not None:
            found.append(payload)

    assert found == payloads
    reader.feed(struct.pack(">I", 301))
    with pytest.raises(FrameError, match="at most 300"):
        reader.next()


async def test_three_engines_over_tcp_elect_replicate_and_fail_over(tmp_path: Path) -> None:
    """Real sockets, real files: a leader, the same history everywhere, a successor in a moment."""
    network = Network(tmp_path, count=3)
    replicas = [ListReplica() for _ in range(3)]
    engines = [
        PySyncObjEngine(
            network.cluster,
            MemberConfig(member_id=str(number), data_dir=str(tmp_path / f"member-{number}")),
            network.raft,
            clock=SystemClock(),
            random=random.Random(number),
            transport=network.make(number),
        )
        for number in (1, 2, 3)
    ]
    for engine, replica in zip(engines, replicas, strict=True):
        await engine.start(replica)

    def leading() -> list[PySyncObjEngine]:
        return [one for one in engines if one.status().is_ready and one.status().role == "leader"]

    await until(lambda: bool(leading()))
    leader = leading()[0]
    await asyncio.gather(*(leader.propose(b"%d" % number) for number in range(200)))
    await asyncio.gather(*(engine.read_barrier() for engine in engines))
    assert replicas[0].commands == replicas[1].commands == replicas[2].commands
    assert len(replicas[0].commands) == 200

    await leader.stop()
    engines.remove(leader)
    await until(lambda: bool(leading()))
    await leading()[0].propose(b"after")
    for engine in engines:
        await engine.stop()
    await network.stop()
