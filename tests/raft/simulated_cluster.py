"""Whole members in one process, on a simulated clock, network and disks; with what a test checks.

The replica is a list of commands: its whole history is its state, so that equal states mean equal
histories, and a snapshot carries everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

import msgpack

from coordinator.node.config import ClusterConfig, MemberAddress, MemberConfig, RaftConfig
from coordinator.raft.blocking import start_in_place
from coordinator.raft.engine import LeaderListener, Replace, RequestHandler, Role
from coordinator.raft.network.agreement import Fact
from coordinator.raft.network.messages import (
    Appended,
    Message,
    ProbeReply,
    SnapshotReply,
    VoteGrant,
    VoteRequest,
)
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from tests.met import Met
from tests.raft.left_syncs import LeftSync
from tests.raft.network.simulated_network import SimulatedNetwork, SimulatedTransport
from tests.raft.simulated_loop import SimulatedClock
from tests.raft.storage.simulated_disk import SimulatedDisk

Result = TypeVar("Result")

PIECE_COMMANDS = 50
PROMISES = (Appended, ProbeReply, SnapshotReply, VoteGrant, VoteRequest)
"""Messages that must not leave before what they rest on is durable."""


class ListReplica:
    """Remembers every command in order; ``apply`` returns how many there are."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.on_apply: Callable[[bytes], None] | None = None
        self.restored_total = 0
        self.let_go_total = 0
        """How often a snapshot that was read was not needed."""

    def apply(self, index: int, term: int, command: bytes) -> Any:
        if self.on_apply is not None:
            self.on_apply(command)
        self.commands.append(command)
        return len(self.commands)

    def snapshot(self) -> Iterator[bytes]:
        commands = tuple(self.commands)
        return (
            msgpack.packb(commands[start : start + PIECE_COMMANDS])
            for start in range(0, max(1, len(commands)), PIECE_COMMANDS)
        )

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        commands = [command for piece in pieces for command in msgpack.unpackb(piece)]

        def replace(*, is_needed: bool = True) -> None:
            if not is_needed:
                self.let_go_total += 1
                return
            assert len(commands) >= len(self.commands), "a restore never goes back"
            self.commands = commands
            self.restored_total += 1

        return replace


class Member:
    """One member through its lives; the disk stays."""

    def __init__(self, cluster: SimulatedCluster, member_id: str) -> None:
        self.cluster = cluster
        self.member_id = member_id
        self.disk = SimulatedDisk(cluster.random.randrange(1 << 30))
        self.replica = ListReplica()
        self.config = cluster.config
        """Who the members are, as this one has it in its file."""
        self.facts: tuple[Fact, ...] = ()
        """What else must be equal on all members, as this one has it."""
        self.engine: PySyncObjEngine = None  # type: ignore[assignment]
        self.transport: SimulatedTransport = None  # type: ignore[assignment]
        self.failures: list[BaseException] = []
        self.roles: list[tuple[Role, int]] = []
        self.handlers: dict[str, RequestHandler] = {}
        self.on_leader_change: LeaderListener | None = None
        self.on_said: Callable[[str, Message], None] | None = None
        """Sees (to, message) as it leaves."""
        self.is_up = False
        self.is_in_place = True
        """Whether this life's syncs are done in the pass that wrote."""
        self.sync_ms: float | None = None
        """What each sync of this member takes, where the cluster's are not in place."""
        self.clock = SimulatedClock(asyncio.get_running_loop(), cluster.random.randrange(1_000_000))

    async def start(self) -> None:
        cluster = self.cluster
        self.is_in_place = not (cluster.sync_ms_max or cluster.left_sync_ms_max)
        self.replica = ListReplica()
        self.clock.thaw()
        self._acknowledged = (0, 0)
        self.transport = SimulatedTransport(cluster.network, self.member_id)
        self.transport.on_send = self._check_promise
        self.engine = PySyncObjEngine(
            self.config,
            MemberConfig(member_id=self.member_id, data_dir="data"),
            cluster.raft,
            clock=self.clock,
            disk=self.disk,
            random=cluster.random_of(self.member_id),
            transport=self.transport,
            facts=self.facts,
            run_blocking=self._run_blocking,
            start_sync=self._left_sync if cluster.left_sync_ms_max else start_in_place,
            sync_in_place_ms_max=0.0 if cluster.sync_ms_max else 5.0,
        )
        self.engine.on_failure(self.failures.append)
        self.engine.on_role_change(lambda role, term: self.roles.append((role, term)))
        for kind, handler in self.handlers.items():
            self.engine.on_request(kind, handler)
        if self.on_leader_change is not None:
            self.engine.on_leader_change(self.on_leader_change)
        self.is_up = True
        await self.engine.start(self.replica)

    def _left_sync(self, call: Callable[[], None]) -> LeftSync:
        seconds = self.cluster.random.uniform(0, self.cluster.left_sync_ms_max) / 1000
        return LeftSync(call, seconds, self.cluster.met)

    async def _run_blocking(self, call: Callable[[], Result], /) -> Result:
        """Take simulated time over it, before and after the deed."""
        before, after = (self.cluster.random.uniform(0, self.cluster.sync_ms_max) for _ in "ab")
        if self.sync_ms is not None:
            before, after = self.sync_ms, 0.0
        await asyncio.sleep(before / 1000)
        result = call()
        await asyncio.sleep(after / 1000)
        return result

    def _check_promise(self, target: str, message: Message) -> None:
        """Nothing is promised before it is durable, and nothing promised is cut (rows 3 and 4)."""
        if self.on_said is not None:
            self.on_said(target, message)
        log = self.engine._log
        if isinstance(message, PROMISES) and self.is_in_place:
            # Files that nothing needs may still have to go; of a full disk's entries see below.
            is_synced = not log._pending and log._size_bytes == log._synced_bytes
            is_true = log.is_term_stable and (is_synced or log.is_full)
            self.check(is_true, f"{message} before its sync")
        if isinstance(message, Appended) and message.is_success and message.term == self.term:
            # What a snapshot holds is durable, also after it has taken the place of the log.
            durable_index = max(log.durable_index, self.engine.status().snapshot_index)
            is_durable = durable_index >= message.next_index - 1
            self.check(is_durable, f"{message} with {durable_index} durable")
        term, index = self._acknowledged
        if isinstance(message, Appended) and message.is_success:
            index = max(index if message.term == term else 0, message.next_index - 1)
            term = message.term
            self._acknowledged = (term, index)
        if self.engine.status().term == term:
            self.check(log.last_index >= index, f"entry {index} was acknowledged and cut")

    @property
    def term(self) -> int:
        return self.engine.status().term

    def check(self, is_true: bool, what: str) -> None:
        if not is_true:
            self.cluster.violations.append(f"member {self.member_id}: {what}")

    def pause(self) -> None:
        """Its clock stands still and it hears nothing, but what it has begun goes on."""
        self.clock.freeze()
        self.transport.pause()

    def resume(self) -> None:
        self.clock.thaw()
        self.transport.resume()

    async def stop(self) -> None:
        self.is_up = False
        await self.engine.stop()

    async def kill(self, *, is_power_cut: bool = True) -> None:
        """End it between two passes; a power cut loses what was not synced."""
        self.is_up = False
        self.transport.vanish()
        if is_power_cut:
            self.disk.crash()
        else:
            self.disk.kill()
        known = len(self.failures)
        log = self.engine._log
        for closing in ("sync", "_destroy") if log is not None else ():
            setattr(log, closing, lambda: None)  # who is killed does not close its log
        await self.engine.stop()
        del self.failures[known:]  # of a sync that was under way when it died

    async def lose_disk(self) -> None:
        """End it, and bring it back with an empty directory."""
        if self.is_up:
            await self.kill()
        self.disk = SimulatedDisk(self.cluster.random.randrange(1 << 30))
        self.failures.clear()

    @property
    def is_unproven(self) -> bool:
        """Whether its disk, whatever it is doing, says that it may have forgotten something."""
        directories = self.disk.directories
        return "data" not in directories or "unproven" in directories["data"].names

    @property
    def is_leading(self) -> bool:
        status = self.engine.status()
        return self.is_up and status.role is Role.LEADER and status.is_ready


class SimulatedCluster:
    """Some members and what lies between them."""

    def __init__(self, count: int = 3, seed: int = 0, **raft: Any) -> None:
        self.random = random.Random(seed)
        self.network = SimulatedNetwork(self.random.randrange(1 << 30))
        self.raft = replace(RaftConfig(), **raft)
        self.config = ClusterConfig(
            members=tuple(
                MemberAddress(
                    str(number),
                    client_url="http://127.0.0.1:1",
                    member_host="127.0.0.1",
                    member_port=number,
                )
                for number in range(1, count + 1)
            )
        )
        self.violations: list[str] = []
        self.random_of: Callable[[str], random.Random] = lambda _member_id: random.Random(
            self.random.randrange(1 << 30)
        )
        """What a member draws its election timeouts from, in its next life."""
        self.sync_ms_max = 0.0
        """Above zero, every sync takes up to twice that long, elsewhere than on the loop."""
        self.left_sync_ms_max = 0.0
        """Above zero, every sync of a log takes up to that long, and may be left to itself."""
        self.met = Met()
        self.members = [Member(self, str(number)) for number in range(1, count + 1)]

    async def start(self) -> SimulatedCluster:
        for member in self.members:
            await member.start()
        return self

    async def stop(self) -> None:
        for member in self.members:
            if member.is_up:
                await member.stop()
        assert not self.violations, self.violations

    async def kill(self) -> None:
        """Kill all members at once."""
        for member in self.members:
            await member.kill()

    def leaders(self) -> list[Member]:
        return [member for member in self.members if member.is_leading]

    async def leader(
        self, among: Iterable[Member] | None = None, within_ms: int = 10_000
    ) -> Member:
        """Wait until one of ``among`` leads and is ready."""
        chosen = self.members if among is None else list(among)
        await self.until(lambda: any(member.is_leading for member in chosen), within_ms)
        leading = [member for member in chosen if member.is_leading]
        return max(leading, key=lambda member: member.engine.status().term)

    def others(self, member: Member) -> list[Member]:
        return [other for other in self.members if other is not member]

    async def until(self, is_true: Callable[[], bool], within_ms: int = 10_000) -> None:
        for _ in range(within_ms):
            if is_true():
                return
            await asyncio.sleep(0.001)
        raise AssertionError(f"still not so after {within_ms} ms: {self.describe()}")

    async def equal(self, within_ms: int = 10_000) -> list[bytes]:
        """Wait until all that are up have applied the same; return that."""
        up = [member for member in self.members if member.is_up]

        def is_equal() -> bool:
            first = up[0].engine.status().applied_index
            return all(
                member.engine.status().applied_index == member.engine.status().last_index == first
                for member in up
            )

        await self.until(is_equal, within_ms)
        for member in up:
            assert member.replica.commands == up[0].replica.commands
        return up[0].replica.commands

    def describe(self) -> list[Any]:
        return [member.engine.status() for member in self.members]


async def settled(count: int = 3, **raft: object) -> tuple[SimulatedCluster, Member]:
    """Return a cluster that has a history, none of its members recovering, and its leader."""
    cluster = await SimulatedCluster(count, **raft).start()
    leader = await cluster.leader()
    for number in range(5):
        await leader.engine.propose(b"%d" % number)
    await cluster.equal()
    await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
    return cluster, leader


async def with_full_follower(left_bytes: int = 0) -> tuple[SimulatedCluster, Member, Member]:
    """Return a cluster with one entry, its leader, and a follower whose disk has been filled."""
    cluster = await SimulatedCluster(3).start()
    leader = await cluster.leader()
    full = cluster.others(leader)[0]
    await leader.engine.propose(b"before")
    await cluster.equal()
    full.disk.fill(left_bytes)
    return cluster, leader, full
