"""One real member in a metered loop, and peers that say to it what a test wants.

The member has its disk, its sockets and its whole service. Its peers are transports of their own
loop, so what they do is not counted: they show an incarnation, acknowledge and vote, and else do
what they are told. Nobody's time runs out while a test prepares what it measures.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgpack  # type: ignore[import-untyped]

from coordinator.clock import SystemClock
from coordinator.node.config import ClusterConfig, Config, MemberAddress, MemberConfig, RaftConfig
from coordinator.node.server import facts_to_agree_on
from coordinator.raft.entries import REGULAR
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.network.transport import TcpTransport
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.raft.rejoin.incarnation_record import INCARNATIONS_KEPT
from coordinator.service.member import Member
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Operation
from coordinator.testing.ports import ReservedPorts
from tests.loop_meter import Metered, metered
from tests.patience import patient

logger = logging.getLogger(__name__)

T = TypeVar("T")

RAFT = replace(
    RaftConfig(),
    election_timeout_ms_min=2_000,
    election_timeout_ms_max=3_500,
    snapshot_every_entries=1_000_000_000,
    snapshot_every_bytes=1024**4,
)
"""Nobody stands for election by itself, and no snapshot is made while something is measured."""
_PROBE_S = 0.3
_SETTLED_S = 0.5
IN_AN_ENTRY = 500
_WITHIN_S = 15


class Peer:
    """Another member, as the one on stage hears it. It runs in the peers' loop."""

    def __init__(self, member_id: str, transport: TcpTransport) -> None:
        self.member_id = member_id
        self.transport = transport
        self.acknowledges = True
        self.confirms = True
        self.votes = True
        self.is_deaf = False
        """Whether it answers nothing but appends, probes and what ``Stage.ask`` asks."""
        self.has_been_seen = False
        self.heard: dict[type, Message] = {}
        """The last message of each kind."""
        self.replies: dict[int, say.Reply] = {}
        self.requests: list[say.MemberRequest] = []
        self.answers: dict[str, Callable[[bytes], bytes | None]] = {}
        """What it answers to a request of a kind; None: nothing."""
        ids = random.randbytes(8 * INCARNATIONS_KEPT)
        self.incarnation = say.Incarnation(
            number=INCARNATIONS_KEPT,
            ids=ids,
            life_id=ids[:8],
            is_proven=True,
            is_asking=False,
            proof_term=0,
            proof_index=0,
        )
        """As many ids as any member has."""

    def send(self, message: Message) -> None:
        assert self.transport.send("1", message), type(message).__name__

    @property
    def unsent_bytes(self) -> int:
        """What the line to the member has not taken yet."""
        peer = self.transport._peers["1"]
        assert peer.link is not None
        assert peer.link._stream is not None
        return peer.lanes.waiting_bytes + peer.link._stream.get_write_buffer_size()

    def show(self) -> None:
        # Of two connections that are made at once one goes; it is shown on the other.
        self.transport.send("1", self.incarnation)

    def on_connected(self, _member_id: str) -> None:
        self.show()

    def on_disconnected(self, _member_id: str) -> None:
        self.has_been_seen = False

    def on_message(self, _member_id: str, message: Message) -> None:
        self.heard[type(message)] = message
        if self.is_deaf and not isinstance(message, say.Append | say.Probe | say.Reply):
            return
        if isinstance(message, say.Incarnation):
            self.show()
            self.send(say.IncarnationSeen(message.number))
        elif isinstance(message, say.IncarnationSeen):
            self.has_been_seen = True
        elif isinstance(message, say.Append) and self.acknowledges:
            self.acknowledge(message)
        elif isinstance(message, say.Probe) and self.confirms:
            self.send(say.ProbeReply(message.term, message.round_number))
        elif isinstance(message, say.VoteRequest) and self.votes:
            self.send(say.VoteGrant(message.term))
        elif isinstance(message, say.MemberRequest):
            self.requests.append(message)
            answer = self.answers.get(message.kind, lambda _: None)(message.payload)
            if answer is not None:
                self.send(
                    say.Reply(
                        request_id=message.request_id, status=say.REPLY_OK, code="", payload=answer
                    )
                )
        elif isinstance(message, say.Reply):
            self.replies[message.request_id] = message

    def acknowledge(self, append: say.Append) -> None:
        following = append.prev_index + len(append.entries) + 1
        self.send(
            say.Appended(
                term=append.term, epoch=append.epoch, next_index=following, is_success=True
            )
        )


class Stage:
    """Member 1, which is measured, and its peers, member 2 first."""

    def __init__(self, folder: Path, loop: Metered, member_count: int) -> None:
        self.loop = loop
        self._ports = ReservedPorts(member_count)
        secret_file = folder / "secret"
        secret_file.write_bytes(b"canary-0123456789abcdefghijklmnopqrstuvwxyzAB")
        secret_file.chmod(0o600)
        self.cluster = ClusterConfig(
            name="stage",
            secret_file=str(secret_file),
            members=tuple(
                MemberAddress(
                    str(number),
                    client_url="http://127.0.0.1:1",
                    member_host="127.0.0.1",
                    member_port=port,
                )
                for number, port in enumerate(self._ports.ports, 1)
            ),
        )
        self.clock = SystemClock()
        own = MemberConfig(member_id="1", data_dir=str(folder / "data"))
        self.config = Config(member=own, cluster=self.cluster, raft=RAFT)
        self.engine = PySyncObjEngine(
            self.cluster, own, RAFT, clock=self.clock, facts=facts_to_agree_on()
        )
        self.member = Member(self.config, self.engine, self.clock)
        self.failures: list[BaseException] = []
        self.member.on_failure(self.failures.append)
        self.peers: list[Peer] = []
        self._numbers = 0
        self._peers_loop = asyncio.new_event_loop()
        self._probing: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._peers_loop.run_forever, daemon=True)

    # --- life

    def start(self) -> None:
        self._thread.start()
        self.loop.run(self.member.start())
        for address in self.cluster.members[1:]:
            self.with_peers(self._start_peer(address.member_id))
        self.with_peers(self._keep_followed())
        self.until(self._have_met)
        # Of two connections made at once one is given up, and what was said over it is lost.
        self.with_peers(asyncio.sleep(_SETTLED_S))
        self.until(self._have_met)

    def _have_met(self) -> bool:
        incarnations = self.engine._passes.incarnations
        assert incarnations is not None
        return all(each.has_been_seen and incarnations.hears(each.member_id) for each in self.peers)

    async def _start_peer(self, member_id: str) -> None:
        transport = TcpTransport(
            self.cluster, MemberConfig(member_id=member_id), RAFT,
            clock=self.clock, random=random.Random(1),
        )  # fmt: skip
        transport.agree_on(self.engine._transport.identity.agreement.facts)  # type: ignore[attr-defined]
        peer = Peer(member_id, transport)
        await transport.start(peer)
        self.peers.append(peer)

    async def _keep_followed(self) -> None:
        async def probe() -> None:
            while True:
                await asyncio.sleep(_PROBE_S)
                if self.core.leader_id == "2" and self.peer.transport.is_connected("1"):
                    self.peer.send(say.Probe(self.core.term, 0))

        self._probing = asyncio.ensure_future(probe())

    async def _stop_probing(self) -> None:
        if self._probing is not None:
            self._probing.cancel()

    def stop(self) -> None:
        self.with_peers(self._stop_probing())
        try:
            self.loop.run(self.member.stop())
        finally:
            for peer in self.peers:
                self.with_peers(peer.transport.stop())
            self._peers_loop.call_soon_threadsafe(self._peers_loop.stop)
            self._thread.join(10)
            self._peers_loop.close()
            self._ports.release()

    # --- the peers

    @property
    def peer(self) -> Peer:
        """Member 2, which leads whenever member 1 does not."""
        return self.peers[0]

    def with_peers(self, task: Coroutine[Any, Any, T]) -> T:
        doing = asyncio.run_coroutine_threadsafe(task, self._peers_loop)
        return doing.result(2 * patient(_WITHIN_S))

    def say(self, *messages: Message, peer: Peer | None = None) -> None:
        """Have member 2, or another one, say this, all of it in one write."""

        async def all_of_it() -> None:
            for each in messages:
                (peer or self.peer).send(each)

        self.with_peers(all_of_it())

    def ask(self, kind: str, payload: bytes) -> say.Reply:
        """Have member 2 ask member 1; return the answer."""
        self._numbers += 1
        number = self._numbers
        self.say(say.MemberRequest(request_id=number, kind=kind, payload=payload))
        self.until(lambda: number in self.peer.replies)
        return self.peer.replies.pop(number)

    def until(self, is_true: Callable[[], object]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(patient(_WITHIN_S)):
                while not is_true() and not self.failures:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

        self.with_peers(wait())
        assert not self.failures, self.failures

    def settle(self) -> None:
        """Wait until member 1 has done what it was told: what is asked now is answered when all
        before it is taken; then until that is durable, and what is committed is applied."""
        self.ask("of no kind", b"")
        self.until(lambda: not self.engine._log.is_dirty)
        self.until(lambda: self.core.applied_index == self.core.commit_index)
        self.until(lambda: not self.engine._consensus.has_more_to_do())  # type: ignore[union-attr]

    def has_replied(self, expected: say.SnapshotReply) -> bool:
        """Whether that is the last reply to a piece, whatever its seal."""
        reply = self.peer.heard.get(say.SnapshotReply)
        return isinstance(reply, say.SnapshotReply) and reply._replace(seal=b"") == expected

    # --- member 1

    @property
    def core(self) -> Any:
        assert self.engine._consensus is not None
        return self.engine._consensus.core

    @property
    def last(self) -> tuple[int, int]:
        """(index, term) of the last entry of its log."""
        _, index, term = self.engine._log[-1]
        return index, term

    def follow(self) -> None:
        """Have it follow member 2 in a new term."""
        index, term = self.last
        new_term = max(self.core.term, term) + 1
        if not self.engine._consensus.recovering.is_proven:  # type: ignore[union-attr]
            self.say(say.VoteRequest(term=new_term, last_index=index, last_term=term, is_new=True))
            self.until(lambda: say.VoteGrant in self.peer.heard)
        self.say(
            say.Append(
                term=new_term, epoch=0, commit_index=0, prev_index=index, prev_term=term, entries=[]
            )
        )
        self.until(lambda: self.core.leader_id == "2" and self.core.term == new_term)

    def lead(self) -> None:
        """Have member 2 hand its leadership over to it, once its disk is fit for that."""
        elections = self.engine._consensus._elections  # type: ignore[union-attr]
        self.until(elections._may_lead)
        self.follow()
        self.say(say.StandNow(self.core.term))
        self.until(lambda: self.member._leadership.is_leader)

    def append(self, entries: Sequence[bytes], *, is_committed: bool = True) -> None:
        """Have it write these entries of the term of now, which it follows."""
        index, term = self.last
        now = self.core.term
        commit_index = index + len(entries) if is_committed else self.core.commit_index
        self.say(
            say.Append(
                term=now,
                epoch=0,
                commit_index=commit_index,
                prev_index=index,
                prev_term=term,
                entries=[(now, each) for each in entries],
            )
        )

    def have_applied(self, operations: Sequence[Operation]) -> None:
        """Have it apply these, as many of them in an entry as go."""
        packed = [encode_command(Command(each, 1)) for each in operations]
        groups = [
            entry_of(packed[start : start + IN_AN_ENTRY])
            for start in range(0, len(packed), IN_AN_ENTRY)
        ]
        for start in range(0, len(groups), 10):
            some = groups[start : start + 10]
            last = self.last[0] + len(some)
            self.append(some)
            self.until(lambda last=last: self.last[0] == last)  # what is asked goes ahead of it
            self.settle()

    def measured(self, act: Callable[[int], object]) -> float:
        """Return the longest pass while ``act(repetition)`` and what follows from it runs."""

        def act_and_settle(repetition: int) -> None:
            act(repetition)
            self.settle()

        held_ms = self.loop.held_ms(act_and_settle)
        logger.info("held for %.1f ms", held_ms)
        return held_ms

    def begin(self) -> None:
        """What was prepared is done: count from here on."""
        self.settle()
        self.loop.loop.longest_ms = 0.0


def entry_of(commands: Sequence[bytes]) -> bytes:
    """Return the entry of a group of encoded commands."""
    packed: bytes = REGULAR + msgpack.packb(list(commands))
    return packed


@contextmanager
def staged(folder: Path, member_count: int = 2) -> Iterator[Stage]:
    """Put a member on stage, for the length of a module of tests."""
    with metered() as loop:
        stage = Stage(folder, loop, member_count)
        stage.start()
        try:
            yield stage
        finally:
            stage.stop()


@contextmanager
def uncollected() -> Iterator[None]:
    """Run no full collection meanwhile: how long one takes is no matter of a message."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
