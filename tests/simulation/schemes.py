"""Faults that wait for the worst moment, or set a stage: each is a known way to lose a promise.

``faults`` draws at random; what needs three things at once would hardly ever happen there. A scheme
brings them about, in any world, and still leaves the rest to the seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from coordinator.raft.network.messages import Appended, Message, VoteGrant
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.simulation.loop import NOBODY
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

SAFE_TAIL_BYTES = 3_000
"""What is last in a log may look like a write that was torn, and is cut off then."""
OVERHEARD_S = 3.0
"""How long a scheme listens for the moment it waits for."""


class Schemes:
    """Those of one world."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)

    # --- dying just after a promise was given

    async def die_after_vote(self) -> None:
        """All begin anew at once, over slow links; whoever gives its vote dies of it, for a moment.

        It must still know, when the next candidate of that term asks. (Raft paper, 5.2.)
        """
        world, draw = self._world, self._random
        world.network.weather = replace(world.calm_weather, delay_ms=(20.0, 150.0))
        up = [member for member in world.members if member.is_up]
        for member in up:
            member.kill(is_power_cut=True)
        with self._mortal(VoteGrant, (0.1, 20.0)):
            for member in up:
                await asyncio.sleep(draw.uniform(0.0, 0.05))
                world.boot(member)
            await asyncio.sleep(OVERHEARD_S / 2)
        world.network.weather = replace(world.calm_weather)

    async def die_after_append(self) -> None:
        """Followers on slow disks die just after they acknowledged something."""
        slowed = self._slow_disks(self._random.choice((5.0, 50.0)))
        with self._mortal(Appended, (5.0, 400.0)):
            await asyncio.sleep(self._random.uniform(0.3, OVERHEARD_S))
        self._quicken(slowed)

    async def die_in_snapshot(self) -> None:
        """A member dies while it makes a snapshot; it must start with what it had."""
        world, draw = self._world, self._random
        slowed = self._slow_disks(draw.choice((20.0, 200.0)))
        doomed: list[str] = []

        def on_snapshot(who: str) -> None:
            for member in world.members:
                if member.who == who and not doomed:
                    doomed.append(who)
                    self._kill_soon(member, draw.uniform(0.0, 2 * member.sync_ms_max) / 1000, 0.3)

        world.record.on_snapshot.append(on_snapshot)
        try:
            await asyncio.sleep(OVERHEARD_S)
        finally:
            world.record.on_snapshot.remove(on_snapshot)
        self._quicken(slowed)

    async def begin_from_snapshot(self) -> None:
        """All lose power just after one made a snapshot while something stands that ends by itself.

        Whoever leads next has what it is to end from that snapshot only.
        """
        world, draw = self._world, self._random
        record = world.record
        made: list[str] = []

        def on_snapshot(who: str) -> None:
            if record.locks.delays or any(record.locks.bounded()):
                made.append(who)

        record.on_snapshot.append(on_snapshot)
        try:
            for _ in range(round(2 * OVERHEARD_S / 0.1)):
                await asyncio.sleep(0.1)
                if made:
                    break
        finally:
            record.on_snapshot.remove(on_snapshot)
        if not made:
            return
        await asyncio.sleep(draw.choice((0.05, 0.3)))
        up = [member for member in world.members if member.is_up]
        for member in up:
            member.kill(is_power_cut=True)
        await asyncio.sleep(0.05)
        for member in up:
            world.boot(member)

    # --- the leader and few others

    async def lean_quorum(self) -> None:
        """The leader's disk is slow, and a bare quorum hears it; then it dies with all of those.

        It comes back with the others only: what was committed is on its own disk, or gone. (Raft
        thesis, 10.2.1: it may write in parallel, never count itself before.)
        """
        world, draw = self._world, self._random
        leader = self._leader()
        if leader is None:
            return
        others = [member for member in world.members if member is not leader]
        draw.shuffle(others)
        quorum = len(world.members) // 2
        near, far = others[:quorum], others[quorum:]
        leader.sync_ms_max = draw.choice((200.0, 800.0))
        cuts = both_ways([leader, *near], far)
        for source, target in cuts:
            world.network.cut(source, target)
        await asyncio.sleep(draw.uniform(0.2, 1.2))
        for member in (leader, *near):
            member.kill(is_power_cut=True)
        leader.sync_ms_max = world.calm_sync_ms
        for source, target in cuts:
            world.network.mend(source, target)
        await asyncio.sleep(draw.uniform(0.0, 0.2))
        for member in (leader, *far):
            world.boot(member)
        await asyncio.sleep(draw.uniform(2.0, 4.0))
        for member in near:
            world.boot(member)

    async def wake_up_alone(self) -> None:
        """A leader sleeps, is cut off meanwhile, and wakes up with some clients on its side.

        It believes that it leads; whatever it tells them before it asks a quorum is out of date.
        """
        world, draw = self._world, self._random
        leader = self._leader()
        if leader is None:
            return
        alone = leader.member_id
        others = [member for member in world.members if member is not leader]
        here = {client.name for client in world.live_clients() if draw.random() < 0.6}
        cuts = both_ways([leader], others)
        away = {(name, member.member_id) for name in sorted(here) for member in others}
        away |= {(each.name, alone) for each in world.live_clients() if each.name not in here}
        life = leader.owner
        life.pause()
        world.client_cuts |= away
        for source, target in cuts:
            world.network.cut(source, target)
        try:
            await asyncio.sleep(draw.choice((0.5, 1.0, 1.8)))
            life.resume()
            await asyncio.sleep(draw.uniform(1.0, 4.0))
        finally:
            life.resume()
            world.client_cuts -= away
        for source, target in cuts:
            world.network.mend(source, target)

    async def stand_still(self) -> None:
        """All members stop at once, as on a host that is suspended, and go on together."""
        world, draw = self._world, self._random
        owners = [member.owner for member in world.members if member.is_up]
        for owner in owners:
            owner.pause()
        try:
            await asyncio.sleep(draw.choice((0.3, 0.9, 1.5, 3.0)))
        finally:
            for owner in owners:
                owner.resume()

    async def late_heartbeats(self) -> None:
        """Clients fall silent, their last heartbeats are long under way, and disks are slow.

        Some of them come just while the end of their session is being decided.
        """
        world, draw = self._world, self._random
        world.link_weather = replace(world.calm_link_weather, stragglers=0.7)
        slowed = list(world.members)
        for member in slowed:
            member.sync_ms_max = draw.choice((50.0, 200.0, 400.0))
        await asyncio.sleep(draw.uniform(0.5, 1.5))
        silent = [client.owner for client in world.live_clients() if draw.random() < 0.5]
        for owner in silent:
            owner.pause()
        world.link_weather = replace(world.calm_link_weather)
        try:
            await asyncio.sleep(draw.uniform(2.0, 5.0))
        finally:
            for owner in silent:
                owner.resume()
        self._quicken(slowed)

    # --- what is on a disk

    async def lose_disk(self) -> None:
        """One member comes back with nothing, while all the others hold what they promised."""
        world = self._world
        member = self._random.choice(world.members)
        if not all(each.is_proven for each in world.members if each is not member):
            return  # it would be one lost disk too many
        member.kill(is_power_cut=True)
        member.replace_disk(SimulatedDisk(self._random.randrange(1 << 30)))
        await asyncio.sleep(self._random.choice((0.05, 0.5, 2.0)))
        world.boot(member)

    async def rot_at_rest(self) -> None:
        """A bit of a member's log is flipped while it is down: it refuses to start, by name.

        Unless that bit does not matter any more. Its disk is replaced then, and it begins anew.
        """
        world, draw = self._world, self._random
        member = draw.choice(world.members)
        if not all(each.is_proven for each in world.members if each is not member):
            return  # it would be one lost disk too many
        member.kill(is_power_cut=False)
        logs = [  # of each what its records take; nothing needs the zeros behind them
            (f"{directory}/{name}", inode, len(inode.data.rstrip(b"\0")))
            for directory, found in sorted(member.disk.directories.items())
            for name, inode in sorted(found.names.items())
            if name.endswith(".log") and len(inode.data.rstrip(b"\0")) > SAFE_TAIL_BYTES
        ]
        if logs:
            path, inode, size = draw.choice(logs)
            at, bit = draw.randrange(size - SAFE_TAIL_BYTES), 1 << draw.randrange(8)
            inode.data[at] ^= bit
            if at < len(inode.stable):
                inode.stable[at] ^= bit
            member.rotten_path = path
        await asyncio.sleep(draw.choice((0.05, 0.5)))
        world.boot(member)
        await asyncio.sleep(1.0)
        world.boot(member)

    # --- inside

    @contextmanager
    def _mortal(self, kind: type[Message], down_ms: tuple[float, float]) -> Iterator[None]:
        """Whoever sends a message of ``kind`` loses power at once, for so long; a few of them."""
        world, draw = self._world, self._random
        left = [draw.randint(1, len(world.members))]

        def on_sent(member_id: str, message: Message) -> None:
            if type(message) is not kind or draw.random() < 0.5 or left[0] == 0:
                return
            if isinstance(message, Appended) and not message.is_success:
                return
            left[0] -= 1
            member = next(each for each in world.members if each.member_id == member_id)
            self._kill_soon(member, draw.uniform(0.0, 0.002), draw.uniform(*down_ms) / 1000)

        world.network.on_sent.append(on_sent)
        try:
            yield
        finally:
            world.network.on_sent.remove(on_sent)

    def _kill_soon(self, member: SimulatedMember, after_s: float, down_s: float) -> None:
        """Cut its power in this life, and boot it again; between two callbacks, as always."""
        loop, life = self._world.loop, member.life

        def kill() -> None:
            if member.is_up and member.life == life:
                member.kill(is_power_cut=True)
                loop.call_later(down_s, boot, context=NOBODY)

        def boot() -> None:
            if not member.is_up:
                self._world.boot(member)

        loop.call_later(after_s, kill, context=NOBODY)

    def _slow_disks(self, sync_ms: float) -> list[SimulatedMember]:
        slowed = [each for each in self._world.members if self._random.random() < 0.7]
        for member in slowed:
            member.sync_ms_max = sync_ms
        return slowed

    def _quicken(self, members: list[SimulatedMember]) -> None:
        for member in members:
            member.sync_ms_max = self._world.calm_sync_ms

    def _leader(self) -> SimulatedMember | None:
        leading = [member for member in self._world.members if member.is_up and member.is_leading]
        return self._random.choice(leading) if leading else None


def both_ways(
    here: list[SimulatedMember], there: list[SimulatedMember]
) -> list[tuple[str, str]]:
    pairs = [(one.member_id, other.member_id) for one in here for other in there]
    return pairs + [(other, one) for one, other in pairs]
