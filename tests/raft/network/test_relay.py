"""Whoever is on the path between two members and knows no secret can cut the line, and no more.

A relay stands for it (spoofed ARP or DNS, a router, a sidecar). Each of its deeds is tried on each
kind of message there is: what arrives is what was sent, in order, each once, up to some point.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from coordinator.clock import SystemClock
from coordinator.errors import CoordinatorError
from coordinator.node.config import MemberConfig, RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.network.agreement import facts_of_cluster
from coordinator.raft.network.frames import frame
from coordinator.raft.network.handshake import Acceptor, Identity
from coordinator.raft.network.link import Link
from coordinator.raft.network.messages import NEWEST, Message
from coordinator.raft.network.seals import SEAL_BYTES, Seals
from coordinator.raft.network.transport import TcpTransport
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from tests.raft.network.message_table import EXAMPLES, kinds
from tests.raft.network.relay import TO_ACCEPTOR, TO_DIALER, Passage, Relay, pass_on
from tests.raft.network.test_transport import Ear, Network, until
from tests.raft.simulated_cluster import ListReplica

BEFORE, AFTER = say.TermNotice(1_000_001), say.TermNotice(1_000_002)
"""Around the message of which something is made."""


def test_every_kind_of_message_has_a_row() -> None:
    """A new kind without an example would not be tried."""
    assert {type(each) for each in EXAMPLES} == kinds()


class Pair:
    """Members 1 and 2; whatever they say to each other goes through a relay."""

    def __init__(self, one: TcpTransport, two: TcpTransport, relay: Relay) -> None:
        self.transports = {"1": one, "2": two}
        self.ears = {"1": Ear(), "2": Ear()}
        self.relay = relay

    async def meet(self) -> None:
        one, two = self.transports.values()
        await until(lambda: one.is_connected("2") and two.is_connected("1"))

    def heard(self, member_id: str) -> list[Message]:
        return [message for _, message in self.ears[member_id].messages]


@asynccontextmanager
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    network = Network(tmp_path)
    network.raft = replace(
        network.raft, reconnect_delay_ms_min=1, reconnect_delay_ms_max=5, handshake_deadline_ms=500
    )
    relay = Relay(network.port(2))
    first, second = network.cluster.members
    # Only 1 dials: of two connections it would be drawn which one stays.
    members = (replace(first, member_port=1), replace(second, member_port=await relay.start()))
    network.cluster = replace(network.cluster, members=members)
    found = Pair(network.make(1), network.make(2), relay)
    for member_id, transport in found.transports.items():
        transport.agree_on(facts_of_cluster(network.cluster))
        await transport.start(found.ears[member_id])
    try:
        await found.meet()
        yield found
    finally:
        await network.stop()
        await relay.stop()


# --- what the relay writes in the place of one frame; None: nothing more, ever

Made = list[bytes | None]


def forged(message: Message) -> Iterator[bytes]:
    """Yield frames of ``message`` as somebody without the secret makes them."""
    payload = NEWEST.encode(message)
    yield frame(payload)
    yield frame(payload, bytes(SEAL_BYTES))
    yield frame(payload, blake2b(payload, digest_size=SEAL_BYTES).digest())
    yield Seals(bytes(32)).sealed_frame(payload)


def flipped(whole: bytes) -> Iterator[bytes]:
    """Yield the frame with one bit changed: in its length, its payload, its seal."""
    for at in (3, 4, len(whole) - SEAL_BYTES, len(whole) - 1):
        wrong = bytearray(whole)
        wrong[at] ^= 1
        yield bytes(wrong)


def forgeries(whole: bytes, message: Message) -> list[Made]:
    before = [[made, whole] for made in forged(message)]
    return [*before, *([made] for made in forged(message))]


def payload_of(whole: bytes) -> bytes:
    return whole[4:-SEAL_BYTES]


DEEDS: dict[str, Callable[[bytes, Message], list[Made]]] = {
    "forged": forgeries,
    "changed": lambda whole, _: [[made] for made in flipped(whole)],
    "repeated": lambda whole, _: [[whole, whole]],
    "left out": lambda whole, _: [[]],
    "cut short": lambda whole, _: [[whole[:at], None] for at in (2, 5, len(whole) - 1)],
    "prolonged": lambda whole, _: [
        [frame(payload_of(whole), whole[-SEAL_BYTES:] + b"\0")],
        [whole + b"\0"],
        [frame(payload_of(whole) + b"\0", whole[-SEAL_BYTES:])],
    ],
    "cut in two": lambda whole, _: [
        [frame(whole[4:at]), frame(whole[at:])] for at in (5, len(whole) - SEAL_BYTES)
    ],
    "without its seal": lambda whole, _: [[frame(payload_of(whole))], [frame(b"")]],
}


class Once:
    """Does a deed to the frame of ``message`` that follows BEFORE; everything else passes."""

    def __init__(self, message: Message, make: Callable[[Passage, str, bytes], Made]) -> None:
        self._payload = NEWEST.encode(message)
        self._make = make
        self._has_begun = False
        self._is_cut = False
        self.is_done = False

    def __call__(self, passage: Passage, direction: str, whole: bytes) -> list[bytes]:
        if self._is_cut:
            return []
        payload = payload_of(whole)
        if payload == NEWEST.encode(BEFORE):
            self._has_begun = True
        elif self._has_begun and not self.is_done and payload == self._payload:
            self.is_done = True
            made = self._make(passage, direction, whole)
            self._is_cut = None in made
            if self._is_cut:
                asyncio.get_running_loop().call_soon(passage.cut)
            return [each for each in made if each is not None]
        return [whole]


async def attempt(pair: Pair, message: Message, deed: Once, sender: str = "1") -> None:
    """Say three things and have the relay do its deed; see that it cut the line, and no more."""
    receiver = "2" if sender == "1" else "1"
    await pair.meet()
    for ear in pair.ears.values():
        ear.messages.clear()
        ear.events.clear()
    pair.relay.deed = deed
    for said in (BEFORE, message, AFTER):
        pair.transports[sender].send(receiver, said)
        pair.transports[sender].flush()  # of what leaves at once, some goes first
    await until(lambda: deed.is_done and ("disconnected", sender) in pair.ears[receiver].events)
    pair.relay.deed = pass_on

    sent = [each for each in (BEFORE, message, AFTER) if not isinstance(each, say.Ping)]
    heard = pair.heard(receiver)
    assert heard == sent[: len(heard)], heard
    assert AFTER not in heard
    assert pair.heard(sender) == []


@pytest.mark.parametrize("name", DEEDS)
async def test_what_is_done_to_a_frame_ends_the_connection(tmp_path: Path, name: str) -> None:
    """Each deed on each kind: nothing is heard that was not said, in its order, once."""
    async with pair(tmp_path) as members:
        for message in EXAMPLES:
            whole = frame(NEWEST.encode(message), bytes(SEAL_BYTES))
            for number in range(len(DEEDS[name](whole, message))):

                def make(
                    _passage: Passage, _direction: str, whole: bytes, message=message, number=number
                ) -> Made:
                    return DEEDS[name](whole, message)[number]

                sender = "12"[number % 2]
                await attempt(members, message, Once(message, make), sender)
        await members.meet()


@pytest.mark.parametrize("sender", ["1", "2"])
@pytest.mark.parametrize("message", EXAMPLES, ids=lambda each: type(each).__name__)
async def test_frames_belong_to_their_place_direction_and_connection(
    tmp_path: Path, message: Message, sender: str
) -> None:
    """Moved, turned back, taken from the other direction or from an older connection."""
    async with pair(tmp_path) as members:
        kept: list[bytes] = []

        def moved(_passage: Passage, _direction: str, whole: bytes) -> Made:
            kept.append(whole)
            return []

        class Moved(Once):
            def __call__(self, passage: Passage, direction: str, whole: bytes) -> list[bytes]:
                was_done = self.is_done
                said = super().__call__(passage, direction, whole)
                return (
                    said + kept if was_done and payload_of(whole) == NEWEST.encode(AFTER) else said
                )

        await attempt(members, message, Moved(message, moved), sender)

        def older(_passage: Passage, _direction: str, _whole: bytes) -> Made:
            return [kept[0]]

        await attempt(members, message, Once(message, older), sender)

        def turned_back(passage: Passage, direction: str, whole: bytes) -> Made:
            other = TO_DIALER if direction == TO_ACCEPTOR else TO_ACCEPTOR
            passage.writers[other].write(whole)
            return []

        await attempt(members, message, Once(message, turned_back), sender)

        await members.meet()
        receiver = "2" if sender == "1" else "1"
        members.transports[receiver].send(sender, message)

        def of_the_other_direction(passage: Passage, direction: str, _whole: bytes) -> Made:
            other = TO_DIALER if direction == TO_ACCEPTOR else TO_ACCEPTOR
            return [passage.heard[other][-1]]

        if not isinstance(message, say.Ping):
            await until(lambda: message in members.heard(sender))
        await attempt(members, message, Once(message, of_the_other_direction), sender)


@pytest.mark.parametrize("sender", ["1", "2"])
async def test_the_first_word_of_a_connection_is_not_taken_for_the_other_ones(
    tmp_path: Path, sender: str
) -> None:
    """Both directions count from zero: a word turned back has the right number there, too."""
    receiver = "2" if sender == "1" else "1"
    async with pair(tmp_path) as members:
        for message in EXAMPLES[1:]:
            for ear in members.ears.values():
                ear.events.clear()
                ear.messages.clear()
            members.relay.cut()
            await until(lambda: members.ears[sender].events[-1:] == [("connected", receiver)])
            await members.meet()

            def turned_back(
                passage: Passage, direction: str, whole: bytes, message: Message = message
            ) -> list[bytes]:
                if not passage.is_sealed(direction) or payload_of(whole) != NEWEST.encode(message):
                    return [whole]
                other = TO_DIALER if direction == TO_ACCEPTOR else TO_ACCEPTOR
                passage.writers[other].write(whole)
                return []

            members.relay.deed = turned_back
            assert members.transports[sender].send(receiver, message)
            events = members.ears[sender].events
            await until(lambda: ("disconnected", receiver) in events[1:])  # noqa: B023
            members.relay.deed = pass_on
            assert members.heard(sender) == members.heard(receiver) == []


async def test_slow_and_chopped_bytes_are_no_harm(tmp_path: Path) -> None:
    """A relay that passes on late and byte by byte changes nothing."""
    async with pair(tmp_path) as members:

        def chopped(_passage: Passage, _direction: str, whole: bytes) -> list[bytes]:
            return [whole[at : at + 1] for at in range(len(whole))]

        members.relay.deed = chopped
        members.ears["2"].events.clear()
        members.relay.cut()
        await until(lambda: ("connected", "1") in members.ears["2"].events)
        await members.meet()
        for message in EXAMPLES:
            assert members.transports["1"].send("2", message)
            members.transports["1"].flush()
        sent = [each for each in EXAMPLES if not isinstance(each, say.Ping)]
        await until(lambda: len(members.heard("2")) == len(sent))

        assert members.heard("2") == sent


async def test_an_old_connection_said_again_is_not_believed(tmp_path: Path) -> None:
    """All bytes of one side of a whole connection, handshake and messages, to either member."""
    async with pair(tmp_path) as members:
        for message in EXAMPLES:
            for sender, receiver in ("12", "21"):
                members.transports[sender].send(receiver, message)
                members.transports[sender].flush()
        sent = [each for each in EXAMPLES if not isinstance(each, say.Ping)]
        await until(lambda: len(members.heard("2")) == len(members.heard("1")) == len(sent))
        recorded = [
            b"".join(heard)
            for passage in members.relay.passages
            for heard in passage.heard.values()
        ]
        for said in recorded:
            port = members.relay.target_port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            async with asyncio.timeout(5):
                with contextlib.suppress(ConnectionResetError):
                    while await reader.read(4_096):
                        pass
            writer.close()

        await members.meet()
        assert members.heard("1") == members.heard("2") == sent


class Clock:
    """Stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class Owner:
    """Whom one link tells; all members are known to it."""

    def __init__(self) -> None:
        self.raft = RaftConfig()
        self.clock = Clock()

    def link_made(self, link: Link) -> bool:
        return True

    def why_not_a_member(self, member_id: str) -> str:
        return ""

    def link_proved(self, link: Link) -> None: ...

    def link_refused(self, link: Link, why: str) -> None: ...

    def link_heard(self, now_ms: int) -> None: ...

    def link_writable(self, link: Link) -> None: ...

    def link_lost(self, link: Link, reason: str) -> None: ...


@pytest.mark.parametrize(("every_ms", "dead_after_ms"), [(None, 1_600), (1_000, 16_000)])
def test_a_line_that_is_held_back_is_found_dead(every_ms: int | None, dead_after_ms: int) -> None:
    """No byte, or a byte of an endless frame now and then: it ends, and is dialled again."""
    owner = Owner()
    link = Link(
        owner,
        Acceptor(Identity("c", member_id="1", secret=b""), b"a" * 32),
        lambda _link, _message: None,
    )
    while owner.clock.now_ms <= dead_after_ms:
        assert not link.is_silent()
        owner.clock.now_ms += 1
        if every_ms and owner.clock.now_ms % every_ms == 0:
            link.data_received(b"\0")

    assert link.is_silent()


async def test_a_relay_cannot_change_what_members_hold(tmp_path: Path) -> None:
    """The four attacks of a trial, on a running cluster: a claim, a term, an entry, a commit."""
    network = Network(tmp_path, count=3)
    relays = [Relay(network.port(number)) for number in (1, 2, 3)]
    ports = [await relay.start() for relay in relays]
    members = tuple(
        replace(each, member_port=port)
        for each, port in zip(network.cluster.members, ports, strict=True)
    )
    network.cluster = replace(network.cluster, members=members)
    replicas = [ListReplica() for _ in range(3)]
    failures: list[BaseException] = []
    engines = []
    for number, replica in enumerate(replicas, 1):
        engine = PySyncObjEngine(
            network.cluster,
            MemberConfig(member_id=str(number), data_dir=str(tmp_path / f"member-{number}")),
            network.raft,
            clock=SystemClock(),
            random=random.Random(number),
            transport=network.make(number),
        )
        engine.on_failure(failures.append)
        await engine.start(replica)
        engines.append(engine)

    def leading() -> list[PySyncObjEngine]:
        now = [engine.status() for engine in engines]
        return [
            engine
            for engine, status in zip(engines, now, strict=True)
            if status.is_ready and status.role is Role.LEADER
        ]

    async def have_done(command: bytes) -> None:
        """Propose it until all members have it: cut lines change leaders."""
        async with asyncio.timeout(20):
            while not all(command in replica.commands for replica in replicas):
                for leader in leading():
                    with contextlib.suppress(CoordinatorError, TimeoutError):
                        async with asyncio.timeout(2):
                            await leader.propose(command)
                await asyncio.sleep(0.02)

    for done, lie in enumerate((say.Append, say.TermNotice, say.Append, say.CommitNotice)):
        await have_done(b"true %d" % done)
        await until(lambda: bool(leading()))
        status = leading()[0].status()
        forgery: Message = say.TermNotice(2**63 - 1)
        if lie is say.Append:
            entries = ((status.term, b"\x00lie"),) if done else ()
            last = status.last_index
            forgery = say.Append(
                term=status.term,
                epoch=1,
                commit_index=last + 1,
                prev_index=last,
                prev_term=status.term,
                entries=entries,
            )
        elif lie is say.CommitNotice:
            forgery = say.CommitNotice(status.term, status.last_index + 9)
        forgeries = list(forged(forgery))

        def lied(
            passage: Passage, direction: str, whole: bytes, forgeries: list[bytes] = forgeries
        ) -> list[bytes]:
            is_one = passage.is_sealed(direction) and forgeries
            return [forgeries.pop(), whole] if is_one else [whole]

        for relay in relays:
            relay.deed = lied
        await until(lambda: not forgeries, 15)  # noqa: B023 (waited for in this round)
    for relay in relays:
        relay.deed = pass_on
    await have_done(b"last")

    def are_equal() -> bool:
        return replicas[0].commands == replicas[1].commands == replicas[2].commands

    await until(are_equal, 15)  # what was proposed twice may be on its way to the last of them
    assert set(replicas[0].commands) == {b"true 0", b"true 1", b"true 2", b"true 3", b"last"}
    assert failures == []
    assert all(engine.status().term < 1_000 for engine in engines)
    for engine in engines:
        await engine.stop()
    await network.stop()
    for relay in relays:
        await relay.stop()
