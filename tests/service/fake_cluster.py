"""Several members in one process over one log, with a leader that can be switched.

The engine here keeps the promises of ``coordinator.raft.engine`` and none of Raft: the log is a
list, and who leads is said by the test. Time is one ManualClock; ``advance`` moves it in steps of
a tick, so a test runs through minutes without waiting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from coordinator.clock import ManualClock
from coordinator.errors import ConnectionLostError, LeaderChangedError, NoLeaderError, NoSpaceError
from coordinator.node.config import (
    ClusterConfig,
    Config,
    MemberAddress,
    MemberConfig,
    SessionConfig,
)
from coordinator.raft.engine import (
    Applied,
    EngineStatus,
    LeaderListener,
    Replica,
    RequestHandler,
    Role,
)
from coordinator.service.member import Member
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, SetLimits
from coordinator.state.rules import RULES

T = TypeVar("T")

STEP_MS = 100
FAR_MS = 1_000_000_000
"""A deadline that does not pass in a test."""

Fault = Callable[[str, str, str], str | None]
"""(sender, receiver, kind) -> None, "unsent" (nothing was sent), "request" (it was lost on the way)
or "reply" (it was done, and the reply was lost); "frozen": it arrived, and no answer ever comes,
while the connection stands (the process was stopped)."""


class FakeEngine:
    """One member's end of the log."""

    def __init__(self, world: World, member_id: str) -> None:
        self._world = world
        self._member_id = member_id
        self._handlers: dict[str, RequestHandler] = {}
        self._role_listeners: list[Callable[[Role, int], None]] = []
        self._leader_listeners: list[LeaderListener] = []
        self._failure_listeners: list[Callable[[BaseException], None]] = []
        self._asked: list[tuple[str, asyncio.Future[bytes]]] = []
        self._under_way: set[asyncio.Future[Applied]] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.replica: Replica | None = None
        self.applied_index = 0
        self.is_applying = True
        self.confirm_count = 0
        self.barrier_count = self.patient_count = 0
        self.led_ms: int | None = None
        self.is_full = False
        self.figures: dict[str, float] = {}
        """What it says of its disk."""
        self.refused: dict[str, str] = {}
        self.halted: tuple[BaseException, str] | None = None

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def cluster_id(self) -> str:
        return "c1" * 16

    @property
    def is_leader(self) -> bool:
        return self._world.leader_id == self._member_id

    async def start(self, replica: Replica) -> None:
        self.replica = replica
        self.catch_up()

    async def stop(self) -> None:
        self.replica = None

    def halt(self, error: BaseException, note: str) -> None:
        self.halted = (error, note)
        self.replica = None
        if self.is_leader:
            self._world.elect(None)
        self._world.gone.add(self._member_id)

    async def propose(self, command: bytes, *, is_patient: bool = False) -> Applied:
        self.patient_count += is_patient
        if not self.is_leader:
            raise NoLeaderError(f"member {self._member_id} does not lead")
        if self.is_full:
            raise NoSpaceError(f"the disk of member {self._member_id}, which leads, is full")
        answer: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._under_way.add(answer)
        answer.add_done_callback(self._under_way.discard)
        if self._world.has_quorum:
            self._world.commit(command, answer)
        return await answer

    async def read_barrier(self) -> int:
        self.barrier_count += 1
        self._world.require_quorum()
        index = len(self._world.log)
        await self.wait_applied(index)
        return index

    async def confirm_leadership(self) -> int:
        if not self.is_leader:
            raise NoLeaderError(f"member {self._member_id} does not lead")
        self.confirm_count += 1
        await self._world.confirming.wait()
        self._world.require_quorum()
        if not self.is_leader:
            raise NoLeaderError(f"member {self._member_id} does not lead any more")
        return self._world.term

    async def wait_applied(self, index: int) -> None:
        if self.applied_index >= index:
            return
        if self.is_full:
            raise NoSpaceError(f"the disk of member {self._member_id} is full")
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, woken))
        await woken

    async def request(self, member_id: str, kind: str, payload: bytes) -> bytes:
        self._world.requests.append((self._member_id, member_id, kind))
        fault = self._world.fault(self._member_id, member_id, kind)
        if {member_id, self._member_id} & self._world.gone:
            fault = "unsent"
        if fault == "unsent":
            raise NoLeaderError(f"{kind} was not sent")
        await asyncio.sleep(0)
        if fault == "request":
            raise ConnectionLostError(f"{kind} was lost")
        handler = self._world.engines[member_id]._handlers[kind]
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if fault != "frozen":
            answer = asyncio.ensure_future(handler(self._member_id, payload))
        lost: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._asked.append((member_id, lost))
        try:
            await asyncio.wait((answer, lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._asked.remove((member_id, lost))
            if not answer.done():
                answer.cancel()
        if lost.done():
            raise LeaderChangedError(f"member {member_id} does not lead any more")
        if fault == "reply":
            raise ConnectionLostError(f"the reply of {kind} was lost")
        return answer.result()

    def on_request(self, kind: str, handler: RequestHandler, *, is_alone: bool = False) -> None:
        self._handlers[kind] = handler

    def on_role_change(self, listener: Callable[[Role, int], None]) -> None:
        self._role_listeners.append(listener)

    def on_leader_change(self, listener: LeaderListener) -> None:
        self._leader_listeners.append(listener)

    def on_failure(self, listener: Callable[[BaseException], None]) -> None:
        self._failure_listeners.append(listener)

    def fail(self, error: BaseException) -> None:
        for listener in self._failure_listeners:
            listener(error)

    def status(self) -> EngineStatus:
        world = self._world
        return EngineStatus(
            member_id=self._member_id,
            role=Role.LEADER if self.is_leader else Role.FOLLOWER,
            term=world.term,
            leader_id=world.leader_id,
            commit_index=len(world.log),
            applied_index=self.applied_index,
            last_index=len(world.log),
            snapshot_index=0,
            is_ready=self.replica is not None,
            is_reachable={
                other: world.has_quorum for other in world.engines if other != self._member_id
            },
            trouble="its disk is full" if self.is_full else "",
            refused=self.refused,
        )

    @property
    def term(self) -> int:
        return self._world.term

    @property
    def leader_id(self) -> str | None:
        return self._world.leader_id

    def contact_age_ms(self) -> int | None:
        world = self._world
        world.note_contact()
        return None if world.contact_ms is None else world.clock.monotonic_ms() - world.contact_ms

    def metrics(self) -> Mapping[str, float]:
        return {"commands_total": float(len(self._world.log)), **self.figures}

    # --- told by the world

    def catch_up(self) -> None:
        """Apply what is committed, unless held back."""
        while self.is_applying and self.replica and self.applied_index < len(self._world.log):
            term, command, answer = self._world.log[self.applied_index]
            self.applied_index += 1
            result = self.replica.apply(self.applied_index, term, command)
            if self.is_leader and answer is not None and not answer.done():
                answer.set_result(Applied(index=self.applied_index, term=term, result=result))
        for index, woken in self._waiting:
            if index <= self.applied_index and not woken.done():
                woken.set_result(None)
        self._waiting = [each for each in self._waiting if not each[1].done()]

    def install(self, pieces: Iterator[bytes], index: int) -> None:
        """Replace the state by a snapshot, as a member that fell behind gets one."""
        assert self.replica is not None
        self.replica.restore(pieces)
        self.applied_index = index

    def learn(self, old_id: str | None, leader_id: str | None, term: int) -> None:
        """Hear who leads now."""
        for asked_id, lost in self._asked:
            if asked_id == old_id and not lost.done():
                lost.set_result(b"")
        for listener in self._leader_listeners:
            listener(leader_id, term)

    def become(self, role: Role, term: int) -> None:
        if role is not Role.LEADER:
            for answer in list(self._under_way):
                if not answer.done():
                    answer.set_exception(LeaderChangedError("the leader changed"))
        for listener in self._role_listeners:
            listener(role, term)


class World:
    """The log, who leads, and what goes wrong.

    The log begins with the limits of ``config``, as that of a cluster which has had a leader;
    without them (``is_new``) the first leader has to set them.
    """

    def __init__(self, count: int, config: Config, seed: int = 1, *, is_new: bool = False) -> None:
        self.clock = ManualClock(monotonic_ms=1_000)
        first = SetLimits(config.first_limits.items(), expected_version=0, rules=RULES)
        self.log: list[tuple[int, bytes, asyncio.Future[Applied] | None]] = []
        if not is_new:
            self.log.append((0, encode_command(Command(first, 0)), None))
        self.requests: list[tuple[str, str, str]] = []
        self.leader_id: str | None = None
        self.term = 0
        self.has_quorum = True
        self.contact_ms: int | None = None
        """When the members last heard each other under a leader, as far as anybody looked."""
        self.gone: set[str] = set()
        """Members that halted."""
        self.fault: Fault = lambda _sender, _receiver, _kind: None
        self.confirming = asyncio.Event()
        self.confirming.set()
        self.engines = {str(n): FakeEngine(self, str(n)) for n in range(1, count + 1)}
        addresses = tuple(
            MemberAddress(
                n,
                client_url=f"http://127.0.0.1:{7070 + int(n)}",
                member_host="127.0.0.1",
                member_port=7170 + int(n),
            )
            for n in self.engines
        )
        self.members: dict[str, Member] = {}
        for number, (member_id, engine) in enumerate(self.engines.items()):
            own = replace(
                config,
                member=MemberConfig(member_id=member_id),
                cluster=ClusterConfig(members=addresses),
            )
            entropy = random.Random(seed + number)
            self.members[member_id] = Member(own, engine, self.clock, random=entropy)

    @property
    def leader(self) -> Member:
        assert self.leader_id is not None
        return self.members[self.leader_id]

    @property
    def follower(self) -> Member:
        """A member that does not lead: the last one."""
        return [each for key, each in self.members.items() if key != self.leader_id][-1]

    def deadline(self, in_ms: int = FAR_MS) -> int:
        return self.clock.monotonic_ms() + in_ms

    def commit(self, command: bytes, answer: asyncio.Future[Applied] | None = None) -> None:
        self.log.append((self.term, command, answer))
        for engine in self.engines.values():
            engine.catch_up()

    def require_quorum(self) -> None:
        if not self.has_quorum or self.leader_id is None:
            raise NoLeaderError("no quorum")

    def note_contact(self) -> None:
        if self.leader_id is not None and (self.has_quorum or len(self.engines) == 1):
            self.contact_ms = self.clock.monotonic_ms()

    def elect(self, member_id: str | None) -> None:
        """Make ``member_id`` the leader of a new term; None: nobody leads."""
        self.note_contact()
        old, self.leader_id = self.leader_id, member_id
        self.term += 1
        if old is not None:
            self.engines[old].become(Role.FOLLOWER, self.term)
        if member_id is not None:
            self.engines[member_id].become(Role.LEADER, self.term)
        for engine in self.engines.values():
            engine.learn(old, member_id, self.term)

    async def advance(self, by_ms: int) -> None:
        """Let time pass, tick by tick, and everything happen that follows from it."""
        for _ in range(by_ms // STEP_MS):
            self.note_contact()
            self.clock.advance(STEP_MS)
            self.note_contact()
            for member in self.members.values():
                member.tick(self.clock.monotonic_ms())
            await settle()


async def settle() -> None:
    """Let everything run that can run now."""
    for _ in range(25):
        await asyncio.sleep(0)


async def soon(work: Awaitable[T]) -> T:
    """Await ``work``, and fail the test instead of waiting for ever."""
    async with asyncio.timeout(5):
        return await work


def counted(member: Member, name: str) -> float:
    """Return a counter of the member's metrics, summed over its labels."""
    total = 0.0
    for family in member.metrics.registry.collect():
        for sample in family.samples:
            if sample.name == f"coordinator_{name}":
                total += sample.value
    return total


@asynccontextmanager
async def cluster(
    count: int = 3,
    *,
    config: Config | None = None,
    leader_id: str | None = "1",
    is_new: bool = False,
) -> AsyncIterator[World]:
    """Run ``count`` members, with a leader unless told otherwise, and stop them all."""
    config = config or Config(sessions=SessionConfig(timeout_ms_default=2_000))
    world = World(count, config, is_new=is_new)
    for member in world.members.values():
        await member.start()
    if leader_id is not None:
        world.elect(leader_id)
    try:
        yield world
    finally:
        for member in world.members.values():
            await member.stop()
