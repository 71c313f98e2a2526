"""The first election of a cluster whose members come late, one by one, and are cut from each other.

All members are needed for a first leader, and a vote given or got in vain has proven its member. So
whatever is lost meanwhile, and whoever dies: once all run and reach each other, one of them leads.
In worlds of their own (``BEGINNINGS_EVERY``), with draws of their own, before anything else goes
wrong. ``refounding`` meddles in the same way with clusters that begin again.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.raft.network.messages import Message, VoteGrant, VoteRequest
from tests.simulation.loop import NOBODY
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("begin_late",)
LATE_S = (0.0, 0.3, 2.0)
"""How long after the one before a member is started, at the most."""
MEDDLED_S = (1.0, 8.0)
LEADER_WITHIN_S = 15.0
TURN_S = 0.05


class Beginning:
    """That of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/beginning")

    async def run(self) -> None:
        """Return when there is a leader, or should be."""
        draw = self._random
        members = list(self._world.members)
        draw.shuffle(members)
        self._world.record.count_fault("begin_late")
        meddler = Meddler(self._world, draw)
        meddler.begin(draw.uniform(*MEDDLED_S))
        late_s = draw.choice(LATE_S)
        for member in members:
            self._world.boot(member)
            await asyncio.sleep(draw.uniform(0.0, late_s))
        await meddler.end()
        await expect_leader(self._world, "a new cluster gets a leader")


async def expect_leader(world: World, promise: str) -> None:
    """All members are there and nothing is in their way: soon one of them leads, and is ready."""
    for _ in range(round(LEADER_WITHIN_S / TURN_S)):
        if any(each.is_leading and each.service.is_ready for each in world.members):
            return
        await asyncio.sleep(TURN_S)
    said = [each.engine.status().obstacle for each in world.members if each.is_started]
    world.record.violate(promise, f"nobody leads after {LEADER_WITHIN_S} s: {said}")


class Meddler:
    """Cuts, losses and deaths for a while, and just when votes are asked for and given."""

    def __init__(self, world: World, draw: random.Random) -> None:
        self._world = world
        self._random = draw
        self._tasks: list[asyncio.Task[None]] = []
        self._cutting = draw.choice((0.0, 0.3, 0.7))
        """How likely a candidate is cut off once it has asked the first one for a vote."""
        self._dying = draw.choice((0.0, 0.0, 0.3))

    def begin(self, seconds: float) -> None:
        """Meddle for so long."""
        self._world.network.on_sent.append(self._on_sent)
        self._world.network.weather = replace(
            self._world.calm_weather,
            delay_ms=self._random.choice(((0.2, 2.0), (1.0, 40.0), (20.0, 150.0))),
            loss=self._random.choice((0.0, 0.05, 0.3)),
        )
        self._tasks.append(asyncio.create_task(self._meddle(seconds), name="meddle"))

    async def end(self) -> None:
        """Return when it is over; everything is mended, and all members run."""
        await self._tasks[0]
        world = self._world
        world.network.on_sent.remove(self._on_sent)
        await asyncio.gather(*self._tasks)
        world.network.heal()
        world.network.weather = replace(world.calm_weather)
        for member in world.members:
            world.boot(member)
        world.record.trace.add("fault", "nobody meddles any more")

    async def _meddle(self, seconds: float) -> None:
        draw, ends_s = self._random, self._world.loop.time() + seconds
        while self._world.loop.time() < ends_s:
            await asyncio.sleep(draw.uniform(0.05, 0.8))
            ids = [each.member_id for each in self._world.members]
            draw.shuffle(ids)
            here = ids[: draw.randint(1, len(ids) - 1)]
            pairs = [(one, other) for one in here for other in ids if other not in here]
            match draw.choice(("cut", "one way", "death", "nothing")):
                case "cut":
                    self._cut([*pairs, *((other, one) for one, other in pairs)])
                case "one way":
                    self._cut(pairs)
                case "death":
                    self._kill(draw.choice(self._world.members))

    def _cut(self, directions: list[tuple[str, str]]) -> None:
        self._world.record.count_fault("cut_in_election")
        self._tasks.append(asyncio.create_task(self._cut_for_a_while(directions)))

    async def _cut_for_a_while(self, directions: list[tuple[str, str]]) -> None:
        network = self._world.network
        for source, target in directions:
            network.cut(source, target)
        await asyncio.sleep(self._random.choice((0.05, 0.4, 1.5)))
        for source, target in directions:
            network.mend(source, target)

    def _kill(self, member: SimulatedMember) -> None:
        if member.is_up:
            self._world.record.count_fault("die_in_election")
            member.kill(is_power_cut=self._random.random() < 0.5)
            after_s = self._random.choice((0.01, 0.3, 2.0))
            self._world.loop.call_later(after_s, self._world.boot, member, context=NOBODY)

    def _on_sent(self, member_id: str, message: Message) -> None:
        """A candidate has asked one member, and the others may never hear of it; so for votes."""
        draw, loop = self._random, self._world.loop
        if not isinstance(message, VoteRequest | VoteGrant):
            return
        others = [each.member_id for each in self._world.members if each.member_id != member_id]
        if draw.random() < self._cutting:
            self._world.record.count_fault("cut_in_election")
            for other in others:
                self._world.network.cuts.add((member_id, other))
                loop.call_later(draw.choice((0.1, 1.0)), self._mend, member_id, other)
        elif draw.random() < self._dying:
            member = next(each for each in self._world.members if each.member_id == member_id)
            loop.call_soon(self._kill, member, context=NOBODY)

    def _mend(self, source: str, target: str) -> None:
        self._world.network.mend(source, target)
