"""What goes wrong, drawn from the seed: one table of faults, each with how it ends.

A fault begins, lasts for a while and is undone. Any number may overlap, so a quorum may be away for
some time; ``heal`` ends everything.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.simulation import (
    beginnings,
    changed_settings,
    differences,
    forgeries,
    more_faults,
    quotas,
    recoveries,
    rights,
)
from tests.simulation.members import SimulatedMember
from tests.simulation.schemes import Schemes

if TYPE_CHECKING:
    from tests.simulation.world import World

Fault = Callable[[], Coroutine[Any, Any, None]]

GAP_S = (0.2, 3.0)


class Faults:
    """The one who breaks things."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        schemes = Schemes(world, self._random.randrange(1 << 60))
        table: list[tuple[Fault, float]] = [
            (self._crash_one, 5),
            (self._kill_one, 2),
            (self._tear_a_write, 3),
            (self._crash_all, 1),
            (self._pause, 4),
            (self._cut_off, 3),
            (self._cut_off_with_clients, 3),
            (self._split, 3),
            (self._one_way, 3),
            (self._bridge, 2),
            (self._storm, 3),
            (self._client_storm, 3),
            (self._cut_clients, 2),
            (self._duplicate_connections, 2),
            (self._slow_disk, 3),
            (self._full_disk, 2),
            (self._sync_error, 2),
            (self._step_wall_clock, 2),
            (self._lonely_clients, 3),
            (self._kill_client, 2),
            (self._pause_client, 3),
            (self._crash_quorum, 2),
            (schemes.die_after_vote, 1),
            (schemes.die_after_append, 2),
            (schemes.die_in_snapshot, 2),
            (schemes.lean_quorum, 2),
            (schemes.wake_up_alone, 3),
            (schemes.stand_still, 1),
            (schemes.late_heartbeats, 1),
            (schemes.lose_disk, 1),
            (schemes.rot_at_rest, 1),
            (schemes.begin_from_snapshot, 2),
        ]
        # Each run has a taste of its own: some faults often, some never.
        self._faults = [fault for fault, _ in table]
        self._weights = [weight * self._random.choice((0, 0.5, 1, 1, 3)) for _, weight in table]
        if only := world.settings.only_faults:
            self._weights = [float(fault.__name__.strip("_") in only) for fault in self._faults]
        others = {*more_faults.NAMES, *changed_settings.NAMES, *differences.NAMES}
        others |= {*forgeries.NAMES, *beginnings.NAMES, *recoveries.NAMES}
        others |= {*quotas.NAMES, *rights.NAMES}
        if not any(self._weights) and not set(only) & others:
            self._weights[0] = 1
        self._pace = self._random.choice((0.6, 1.0, 2.0))

    async def run(self) -> None:
        """Break things until cancelled."""
        while any(self._weights):
            await asyncio.sleep(self._random.uniform(*GAP_S) * self._pace)
            fault = self._random.choices(self._faults, self._weights)[0]
            name = fault.__name__.strip("_")
            faults = self._world.record.tally.faults
            faults[name] = faults.get(name, 0) + 1
            self._world.record.trace.add("fault", name)
            self._tasks.append(asyncio.create_task(fault(), name=name))

    async def heal(self) -> None:
        """Undo everything; return when all members run."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        world = self._world
        world.record.trace.add("fault", "heal")
        world.network.heal()
        world.network.weather = replace(world.calm_weather)
        world.link_weather = replace(world.calm_link_weather)
        world.client_cuts.clear()
        for client in world.live_clients():
            client.owner.resume()
        for member in world.members:
            member.sync_ms_max = world.calm_sync_ms
            member.disk.faults.clear()
            member.disk.capacity_bytes = None
            member.disk.crash_at_step = None
            if member.is_up:
                member.owner.resume()
                if not member.is_started:  # it met a fault while it booted, and has not said so
                    member.kill(is_power_cut=False)

    # --- members

    async def _crash_one(self) -> None:
        member = self._one_up()
        if member is not None:
            await self._down(member, is_power_cut=True)

    async def _kill_one(self) -> None:
        member = self._one_up()
        if member is not None:
            await self._down(member, is_power_cut=False)

    async def _tear_a_write(self) -> None:
        """The power goes in the middle of one of the next writes."""
        member = self._one_up()
        if member is not None:
            member.disk.crash_at_step = member.disk.step_count + self._random.randint(1, 12)
            await asyncio.sleep(self._random.uniform(1.0, 3.0))
            # If the step was met where nobody noticed, the machine is off all the same.
            if member.is_up and member.disk.crash_at_step is not None:
                member.kill(is_power_cut=True)

    async def _crash_all(self) -> None:
        up = [member for member in self._world.members if member.is_up]
        for member in up:
            member.kill(is_power_cut=True)
        await asyncio.sleep(self._random.uniform(0.1, 3.0))
        for member in up:
            await asyncio.sleep(self._random.uniform(0.0, 0.5))
            self._world.boot(member)

    async def _crash_quorum(self) -> None:
        """All lose power; a bare quorum comes back, without the leader, long before the others.

        What was acknowledged is now on the disks of those, or it is lost.
        """
        up = [member for member in self._world.members if member.is_up]
        self._random.shuffle(up)
        up.sort(key=lambda member: member.is_leading)  # the leader last
        for member in up:
            member.kill(is_power_cut=True)
        quorum = len(self._world.members) // 2 + 1
        for member in up[:quorum]:
            await asyncio.sleep(self._random.uniform(0.0, 0.2))
            self._world.boot(member)
        await asyncio.sleep(self._random.uniform(1.0, 4.0))
        for member in up[quorum:]:
            self._world.boot(member)

    async def _down(self, member: SimulatedMember, *, is_power_cut: bool) -> None:
        member.kill(is_power_cut=is_power_cut)
        await asyncio.sleep(self._random.choice((0.05, 0.5, 2.0, 6.0)))
        self._world.boot(member)

    async def _pause(self) -> None:
        member = self._one_up(prefers_leader=True)
        if member is None:
            return
        owner = member.owner
        owner.pause()
        await asyncio.sleep(self._random.choice((0.1, 0.6, 1.5, 4.0, 8.0)))
        owner.resume()

    # --- the network between members

    async def _cut_off(self) -> None:
        """One member hears and is heard by nobody."""
        ids = self._ids()
        alone = self._random.choice(ids)
        await self._cut(
            [(alone, other) for other in ids if other != alone]
            + [(other, alone) for other in ids if other != alone]
        )

    async def _cut_off_with_clients(self) -> None:
        """One member, the leader if there is one, with some clients on its side of the cut."""
        world, draw, ids = self._world, self._random, self._ids()
        member = self._one_up(prefers_leader=True) or draw.choice(world.members)
        alone = member.member_id
        others = [other for other in ids if other != alone]
        cuts: set[tuple[str, str]] = set()
        for client in world.live_clients():
            away = others if draw.random() < 0.5 else [alone]
            cuts |= {(client.name, each) for each in away}
        world.client_cuts |= cuts
        try:
            is_paused_first = draw.random() < 0.3
            if is_paused_first:
                member.owner.pause()
                await asyncio.sleep(draw.uniform(0.3, 4.0))
                member.owner.resume()
            await self._cut(
                [(alone, other) for other in others] + [(other, alone) for other in others]
            )
        finally:
            world.client_cuts -= cuts

    async def _split(self) -> None:
        ids = self._ids()
        self._random.shuffle(ids)
        size = self._random.randint(1, len(ids) - 1)
        here, there = ids[:size], ids[size:]
        await self._cut(
            [(one, other) for one in here for other in there]
            + [(other, one) for one in here for other in there]
        )

    async def _one_way(self) -> None:
        """One member is heard by nobody, or hears nobody, or one direction of one link is dead."""
        ids = self._ids()
        one, other = self._random.sample(ids, 2)
        others = [each for each in ids if each != one]
        await self._cut(
            self._random.choice(
                (
                    [(one, other)],
                    [(one, each) for each in others],
                    [(each, one) for each in others],
                )
            )
        )

    async def _bridge(self) -> None:
        """Two groups that only one member can reach."""
        ids = self._ids()
        self._random.shuffle(ids)
        rest = ids[1:]
        half = max(1, len(rest) // 2)
        pairs = [(one, other) for one in rest[:half] for other in rest[half:]]
        await self._cut(pairs + [(other, one) for one, other in pairs])

    async def _cut(self, directions: list[tuple[str, str]]) -> None:
        network = self._world.network
        for source, target in directions:
            network.cut(source, target)
        await asyncio.sleep(self._random.choice((0.3, 1.0, 3.0, 8.0)))
        for source, target in directions:
            network.mend(source, target)

    async def _storm(self) -> None:
        world, draw = self._world, self._random
        world.network.weather = replace(
            world.calm_weather,
            delay_ms=draw.choice(((0.2, 2.0), (1.0, 40.0), (50.0, 250.0))),
            loss=draw.choice((0.0, 0.02, 0.2)),
            stragglers=draw.choice((0.0, 0.02)),
            duplicates=draw.choice((0.0, 0.1)),
        )
        await asyncio.sleep(draw.uniform(0.5, 6.0))
        world.network.weather = replace(world.calm_weather)

    async def _duplicate_connections(self) -> None:
        for _ in range(self._random.randint(1, 6)):
            one, other = self._random.sample(self._ids(), 2)
            self._world.network.duplicate_connection(one, other)
            await asyncio.sleep(self._random.uniform(0.0, 0.5))

    # --- disks

    async def _slow_disk(self) -> None:
        members = [each for each in self._world.members if self._random.random() < 0.5]
        slow_ms = self._random.choice((5.0, 50.0, 400.0, 3_000.0))
        for member in members:
            member.sync_ms_max = slow_ms
        await asyncio.sleep(self._random.uniform(0.5, 6.0))
        for member in members:
            member.sync_ms_max = self._world.calm_sync_ms

    async def _full_disk(self) -> None:
        """It goes on without writing, and with it again when there is room; it may not start."""
        member = self._one_up()
        if member is None:
            return
        disk = member.disk
        disk.capacity_bytes = 0
        disk.capacity_bytes = -disk.room_bytes() + self._random.choice((0, 100, 5_000))
        member.may_fail = member.may_fail or not member.is_started
        await asyncio.sleep(self._random.uniform(0.5, 5.0))
        disk.capacity_bytes = None
        life = member.life
        await asyncio.sleep(self._random.uniform(1.0, 2.0))
        if self._is_stuck(member, life):
            # It may have been paused, or its disk slow, a moment ago; not twice in a row.
            await asyncio.sleep(2.0)
            if self._is_stuck(member, life):
                self._world.record.violate("goes on with room", f"{member.who} still has none")
        self._world.boot(member)

    @staticmethod
    def _is_stuck(member: SimulatedMember, life: int) -> bool:
        """Whether it does not write in this life although nothing keeps it from that."""
        is_running = member.life == life and member.is_started and member.failure is None
        is_hindered = member.owner.is_paused or member.sync_ms_max > 100
        has_room = member.disk.capacity_bytes is None
        return is_running and has_room and not is_hindered and member.engine.real._log.is_full

    async def _sync_error(self) -> None:
        """A sync fails once; the member must stop, and may begin anew."""
        member = self._one_up()
        if member is None:
            return
        member.may_fail = True
        operation = self._random.choice(("sync", "sync", "sync_directory", "write"))
        life = member.life
        # Only a sync that finds no room has failed; a write is tried again.
        fault_error = self._random.choice((errno.EIO, errno.ENOSPC))
        if operation == "write":
            fault_error = errno.EIO
        member.disk.fail(operation, error=fault_error, skip=self._random.randint(0, 3))
        fault = member.disk.faults[-1]
        await asyncio.sleep(self._random.uniform(0.5, 4.0))
        is_same_life = member.life == life and member.is_started and not member.owner.is_paused
        if fault.count == 0 and is_same_life and member.failure is None:
            self._world.record.violate(
                "stops when its disk fails", f"{member.who} goes on after a failed {operation}"
            )
        if fault in member.disk.faults:
            member.disk.faults.remove(fault)
        self._world.boot(member)

    async def _step_wall_clock(self) -> None:
        member = self._random.choice(self._world.members)
        member.clock.wall_offset_ms += self._random.choice((-3_600_000, -5_000, 700, 86_400_000))

    # --- clients

    async def _client_storm(self) -> None:
        world, draw = self._world, self._random
        world.link_weather = replace(
            world.calm_link_weather,
            delay_ms=draw.choice(((0.1, 3.0), (1.0, 60.0), (20.0, 300.0))),
            loss=draw.choice((0.0, 0.05, 0.3)),
            reply_loss=draw.choice((0.0, 0.1, 0.4)),
            duplicates=draw.choice((0.0, 0.2)),
            resets=draw.choice((0.0, 0.1)),
            stragglers=draw.choice((0.0, 0.0, 0.1)),
        )
        await asyncio.sleep(draw.uniform(0.5, 6.0))
        world.link_weather = replace(world.calm_link_weather)

    async def _cut_clients(self) -> None:
        """Some clients cannot reach some members."""
        world, draw = self._world, self._random
        cuts = {
            (client.name, member.member_id)
            for client in world.live_clients()
            for member in world.members
            if draw.random() < 0.4
        }
        world.client_cuts |= cuts
        await asyncio.sleep(draw.choice((0.5, 2.0, 6.0)))
        world.client_cuts -= cuts

    async def _lonely_clients(self) -> None:
        """Answers come late to everybody; then some clients reach nobody, until leases have ended.

        Whoever counts its lease from the answer believes too long then.
        """
        world, draw = self._world, self._random
        world.link_weather = replace(world.calm_link_weather, delay_ms=(20.0, 150.0))
        await asyncio.sleep(draw.uniform(1.0, 2.0))
        cuts = {
            (client.name, member.member_id)
            for client in world.live_clients()
            if draw.random() < 0.4
            for member in world.members
        }
        world.client_cuts |= cuts
        world.link_weather = replace(world.calm_link_weather)
        await asyncio.sleep(draw.choice((1.5, 3.0, 5.0)))
        world.client_cuts -= cuts

    async def _kill_client(self) -> None:
        clients = self._world.live_clients()
        if clients:
            client = self._random.choice(clients)
            client.kill()
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
            self._world.replace_client(client)

    async def _pause_client(self) -> None:
        clients = self._world.live_clients()
        if clients:
            owner = self._random.choice(clients).owner
            owner.pause()
            await asyncio.sleep(self._random.choice((0.3, 1.0, 3.0, 6.0)))
            owner.resume()

    # --- inside

    def _ids(self) -> list[str]:
        return [member.member_id for member in self._world.members]

    def _one_up(self, *, prefers_leader: bool = False) -> SimulatedMember | None:
        up = [member for member in self._world.members if member.is_up]
        leading = [member for member in up if member.is_leading]
        if leading and (prefers_leader or self._random.random() < 0.4):
            return self._random.choice(leading)
        return self._random.choice(up) if up else None
