"""A cluster that can have no leader any more is begun again from one member's data, by an operator.

In the middle of worlds of their own (``RECOVERIES_EVERY``): votes are lost while all disks are
whole, or the disks of a majority are lost, maybe while those that stay were cut off and lag. Nobody
may lead then, and the members must say why. The operator stops all of them for longer than any
lease, and does what docs/recovery.md says, rarely with worse data than the best; members come
late and are cut off again, and one may be forgotten that keeps its former data: it must be refused.

Where the best data hold everything, nothing may be lost, and all is judged as one history. What is
lost with others is forgotten by the judgement, too, which begins again from what was kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator.node.recovery import begin_again
from coordinator.raft.engine import Replace
from coordinator.raft.rejoin import recovering, refounding
from coordinator.raft.rejoin.refounding import HeldData, Position
from coordinator.raft.storage.ownership import CLUSTER_ID_BYTES, Owner
from coordinator.service.base.replica import MachineReplica
from coordinator.state.machine import StateMachine
from coordinator.state.outcomes import Outcome
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.simulation.beginnings import Meddler, expect_leader
from tests.simulation.lost import go_on_from
from tests.simulation.members import SimulatedMember
from tests.simulation.record import HELD
from tests.simulation.schemes import both_ways

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("begin_again",)
LAG_S = (0.5, 3.0)
WITHOUT_LEADER_S = 4.0
OPERATOR_S = (6.0, 9.0)
"""Longer than any session of a client lives without a heartbeat, and than a message is late."""
REFUSED_S = 4.0
MEDDLED_S = (0.5, 5.0)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A command in the data of a member, and what it comes to."""

    index: int
    term: int
    payload: bytes
    outcome: Outcome


class Held:
    """The replica of a member that does not run; what is replayed into it is kept."""

    def __init__(self) -> None:
        self._replica = MachineReplica(StateMachine())
        self.replayed: list[Replayed] = []

    @property
    def machine(self) -> StateMachine:
        """The state."""
        return self._replica.machine

    def apply(self, index: int, term: int, command: bytes) -> Outcome:
        """Apply one entry of the log."""
        outcome = self._replica.apply(index, term, command)
        self.replayed.append(Replayed(index, term, command, outcome))
        return outcome

    def snapshot(self) -> Iterator[bytes]:
        """Yield the state as it is now."""
        return self._replica.snapshot()

    def prepare_restore(self, pieces: Iterable[bytes]) -> Replace:
        """Decode a state; return what puts it in the place of this one."""
        return self._replica.prepare_restore(pieces)


class Recovery:
    """That of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/recovery")

    async def run(self) -> None:
        """Return when the cluster has a leader again, or should have one."""
        world, draw = self._world, self._random
        members = list(world.members)
        draw.shuffle(members)
        if not all(each.is_proven for each in members):
            world.record.trace.add("fault", "no recovery: somebody else has no vote")
            return
        world.record.count_fault("begin_again")
        left = await (self._lose_disks if draw.random() < 0.6 else self._lose_votes)(members)
        await self._expect_no_leader()
        world.is_stopped = True
        for member in members:
            member.kill(is_power_cut=draw.random() < 0.5)
        await asyncio.sleep(draw.uniform(*OPERATOR_S))
        founder, held, at = self._best(left)
        self._found(founder, held, at)
        others = [each for each in members if each is not founder]
        forgotten = [each for each in others if each in left and draw.random() < 0.4][:1]
        for member in others:
            if member not in forgotten:
                self._empty(member)
        world.is_stopped = False
        await self._start([founder, *others], forgotten)
        self._expect_note(founder)

    # --- what is lost

    async def _lose_disks(self, members: list[SimulatedMember]) -> list[SimulatedMember]:
        """A majority comes back with nothing; return the members that hold something."""
        world, draw = self._world, self._random
        lost = members[: len(members) // 2 + draw.choice((1, 1, 1 + len(members) // 4))]
        left = [each for each in members if each not in lost]
        cuts = both_ways(left, lost) if draw.random() < 0.7 else []
        for source, target in cuts:
            world.network.cut(source, target)
        await asyncio.sleep(draw.uniform(*LAG_S))
        for member in members:
            member.kill(is_power_cut=draw.random() < 0.5)
        for source, target in cuts:
            world.network.mend(source, target)
        for member in lost:
            self._empty(member)
        world.record.trace.add("fault", f"{[each.who for each in lost]} have lost their disks")
        await self._boot(members)
        return left

    async def _lose_votes(self, members: list[SimulatedMember]) -> list[SimulatedMember]:
        """As if all had been accused of older copies: what they promised is there."""
        await asyncio.sleep(self._random.uniform(*LAG_S))
        for member in members:
            member.kill(is_power_cut=self._random.random() < 0.5)
        for member in members:
            stage = recovering.RecoveryStage.JOINING.encode()
            recovering.replace_file(member.disk, "data", recovering.NAME, stage)
        self._world.record.trace.add("fault", "all have lost their votes")
        await self._boot(members)
        return members

    async def _expect_no_leader(self) -> None:
        world = self._world
        await asyncio.sleep(WITHOUT_LEADER_S)
        for member in world.members:
            if member.is_leading:
                what = f"{member.who} leads without the votes of a quorum"
                world.record.violate("one leader", what)
            obstacle = member.engine.status().obstacle if member.is_started else ""
            if "have no vote" not in obstacle:
                what = f"{member.who} says of a cluster without votes: {obstacle!r}"
                world.record.violate("members say what is missing", what)

    # --- the operator

    def _best(self, left: list[SimulatedMember]) -> tuple[SimulatedMember, Held, Position]:
        """Return the member with the highest last term and, of those, the highest last entry."""
        draw, found = self._random, []
        for member in left:
            held, data = Held(), HeldData(member.disk, "data")
            found.append((data.replay(held), member, held))
            data.close()
        found.sort(key=lambda each: (each[0].term, each[0].index))
        is_best = len(found) < 2 or draw.random() < 0.8
        at, member, held = found[-1] if is_best else draw.choice(found)
        self._world.record.trace.add(member.who, f"is the one to begin with: {at}, of {len(found)}")
        is_whole = is_best and len(found) == len(self._world.members)
        wall_ms = member.clock.wall_ms()
        go_on_from(self._world, held.replayed, held.machine, at, wall_ms, may_lose=not is_whole)
        return member, held, at

    def _found(self, founder: SimulatedMember, held: Held, at: Position) -> None:
        """Do what ``coordinator recover`` does, on a simulated disk."""
        world, disk = self._world, SimulatedDisk(self._random.randrange(1 << 30))
        count, record = len(held.replayed), world.record
        at, _ = begin_again(
            held, at, founder.clock.wall_ms(), by="the operator", reason="no leader"
        )
        for each in held.replayed[count:]:
            part = record.parts_at(each.index)
            record.note_applied(HELD, each.index, part, each.term, each.payload, each.outcome)
        cluster = world.config_of(founder.member_id).cluster
        ids = tuple(sorted(each.member_id for each in cluster.members))
        new_id = self._random.randbytes(CLUSTER_ID_BYTES)
        owner = Owner(cluster.name, member_id=founder.member_id, cluster_id=new_id, member_ids=ids)
        note = {"by": "the operator", "zxid": held.machine.zxid}
        refounding.write(disk, "data", owner, at, held.snapshot(), note)
        disk.crash()
        founder.replace_disk(disk)
        founder.disks_before.clear()

    def _empty(self, member: SimulatedMember) -> None:
        member.replace_disk(SimulatedDisk(self._random.randrange(1 << 30)))

    def _expect_note(self, founder: SimulatedMember) -> None:
        if not refounding.read_note(founder.disk, "data"):
            what = f"{founder.who} does not say that its cluster was begun again"
            self._world.record.violate("a recovery is said", what)

    # --- the first election after it

    async def _boot(self, members: list[SimulatedMember]) -> None:
        for member in members:
            self._world.boot(member)
            await asyncio.sleep(self._random.uniform(0.0, 0.3))

    async def _start(
        self, members: list[SimulatedMember], forgotten: list[SimulatedMember]
    ) -> None:
        world, draw = self._world, self._random
        draw.shuffle(members)
        for member in forgotten:
            world.boot(member)
            member.may_fail = True
            world.record.count_fault("forget_a_member")
        meddler = Meddler(world, draw)
        meddler.begin(draw.uniform(*MEDDLED_S))
        await self._boot([each for each in members if each not in forgotten])
        await meddler.end()
        for member in forgotten:
            await self._expect_refused(member)
        await expect_leader(world, "a cluster begins again")

    async def _expect_refused(self, member: SimulatedMember) -> None:
        """It keeps to the former cluster: with it nothing begins, and it gets nothing."""
        world = self._world
        await asyncio.sleep(REFUSED_S)
        for other in world.members:
            if other.is_leading:
                what = f"{other.who} leads, and {member.who} has the data of before"
                world.record.violate("the former life is refused", what)
        said = member.engine.status().refused if member.is_started else {}
        if not any("the cluster's id" in why for why in said.values()):
            world.record.violate("the former life is refused", f"{member.who} says {said}")
        member.kill(is_power_cut=False)
        self._empty(member)
        world.boot(member)
