"""Rows 11, 13, 14 and 15: disks that fail or are slow, and wall clocks that lie."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

from tests.cluster import marks
from tests.cluster.faults.process_rows import Row
from tests.cluster.faults.shim import Shim, build
from tests.cluster.faults.storage_rows import replace, starts
from tests.cluster.faults.world import SETTINGS, Phase, Plan, Tally, World
from tests.cluster.processes import ProcessCluster

_FAILS_WITHIN_S = 30.0
_STOPS_WITHIN_S = 30.0
_STOPPED = "stopped after the call that failed"
_STOPPED_MARK_S = 2.0
"""The matrix says "at once"; a bound of ours, for what is under way is answered first."""
_LOOP_MARK_S = 0.1
_LOOP_S_MAX = 1.0
"""More than the mark, for a busy machine is late by itself; far less than a slow sync."""
_DELAYS_MS = (100, 1_000, 10_000)


class ShimmedCluster(ProcessCluster):
    """Each member with a shim of its own; ``shims`` by member id."""

    def __init__(self, directory: Path, members: int) -> None:
        super().__init__(directory, members, SETTINGS)
        library = build(directory)
        self.shims = {
            each: Shim(library, directory / f"shim-{each}", self.data_dir(each))
            for each in self.ids
        }

    def start(self, *member_ids: str, env: Mapping[str, str] | None = None) -> None:
        for each in member_ids or tuple(self.ids):
            super().start(each, env={**(env or {}), **self.shims[each].environment})

    def stop(self) -> None:
        for shim in self.shims.values():
            shim.calm()
        super().stop()


def shims(world: World) -> dict[str, Shim]:
    assert isinstance(world.cluster, ShimmedCluster)
    return world.cluster.shims


async def row_13(plan: Plan, tally: Tally) -> None:
    """fsync EIO once"""
    await _disk_errors(plan, tally, ("sync_failures",))


async def row_14(plan: Plan, tally: Tally) -> None:
    """write EIO, rename EIO"""
    await _disk_errors(plan, tally, ("write_failures", "rename_failures"))


async def _disk_errors(plan: Plan, tally: Tally, fields: tuple[str, ...]) -> None:
    for members, numbers in plan.shares(3):
        async with World(plan, tally, members=members, make=ShimmedCluster) as world:
            for number in numbers:
                await world.calm()
                is_leader = number % 2 == 0
                victim = await world.leader() if is_leader else await world.follower()
                await _fail(world, victim, fields[number % len(fields)])
                tally.faults += 1
    stopped = tally.measured_s.get(_STOPPED, [])
    tally.marks.append(marks.within(_STOPPED, stopped, _STOPPED_MARK_S, tally.calm))


async def _fail(world: World, victim: str, field: str) -> None:
    """One error: the member ends, acknowledges nothing any more, and comes back or is replaced."""
    shim, process = shims(world)[victim], world.cluster.processes[victim]
    shim.set(**{field: 1})
    at = await asyncio.to_thread(_failed_at, shim)
    try:
        code = await asyncio.to_thread(process.wait, _STOPS_WITHIN_S)
    except Exception:
        world.expect(False, f"H member {victim} goes on after {field} ({shim.get('failed')} done)")
        world.cluster.kill(victim)
        code = -9
    world.tally.measured(_STOPPED, time.monotonic() - at)
    world.expect(code != 0, f"member {victim} ended with 0 after {field}")
    world.expect(shim.get("failed") == 1, f"{field}: {shim.get('failed')} calls failed, not 1")
    after = shim.get("writes_after")
    world.expect(after == 0, f"H member {victim} wrote {after} times after {field}")
    log = world.cluster.log_path(victim).read_text(errors="replace")
    world.expect("Input/output error" in log, f"member {victim} does not say why it stopped")
    shim.calm()
    await world.flowing()
    if not await starts(world, victim):
        await replace(world, victim)


def _failed_at(shim: Shim) -> float:
    """Wait for the call that fails; return when that was."""
    end = time.monotonic() + _FAILS_WITHIN_S
    while not shim.get("failed") and time.monotonic() < end:
        time.sleep(0.005)
    return time.monotonic()


async def row_15(plan: Plan, tally: Tally) -> None:
    """slow disk: sync 100 ms, 1 s, 10 s"""
    for members, numbers in plan.shares(3):
        async with World(plan, tally, members=members, make=ShimmedCluster) as world:
            for number in numbers:
                await _slow(world, _DELAYS_MS[number % len(_DELAYS_MS)])
                tally.faults += 1


async def _slow(world: World, delay_ms: int) -> None:
    leader, name = await world.leader(), f"live-{delay_ms}"
    world.watch_machine(name, world.cluster.url(leader) + "/health/live")
    calm = await world.calm(4.0, 4.0)
    began = time.monotonic()
    shims(world)[leader].set(sync_delay_ms=delay_ms)
    await asyncio.sleep(max(4.0, 1.6 * delay_ms / 1000))
    slow = (began, time.monotonic())
    now_leads = await world.leader()
    moved = "leadership moved" if now_leads != leader else "leadership stayed"
    written = sum(r.is_write and r.called_at > began for r in world.load.readings)
    world.tally.notes.append(f"{delay_ms} ms a sync: {moved}, {written} writes meanwhile")
    _judge_loop(world, name, calm, slow)
    if delay_ms >= 10_000:
        world.expect(now_leads != leader, "A a leader whose disk takes 10 s a sync stays")
        world.expect(written > 0, "A no write while one disk takes 10 s a sync")
    shims(world)[leader].calm()
    await world.flowing()


def _judge_loop(world: World, name: str, calm: Phase, slow: Phase) -> None:
    """The loop answers as quickly as ever; asked by a process of its own, as the load's is busy."""
    in_calm = [tick.took_s for tick in world.ticks(name, calm)]
    times = [tick.took_s for tick in world.ticks(name, slow)]
    what = f"/health/live, {name[5:]} ms a sync"
    world.tally.marks.append(marks.as_in_calm(what, times, _LOOP_MARK_S, in_calm))
    world.expect(bool(times), "A nothing is answered while syncs are slow")
    worst_s = max(times, default=0.0)
    world.expect(worst_s < _LOOP_S_MAX, f"A the loop stood still for {worst_s:.1f} s")


async def row_11(plan: Plan, tally: Tally) -> None:
    """wall clock ±1 s to ±1 day, 1.5 times its speed, on each member by itself"""
    for members, numbers in plan.shares(5):
        options = plan.load(session_s=4.0)
        async with World(
            plan, tally, members=members, make=ShimmedCluster, options=options
        ) as world:
            for _ in numbers:
                for shim in shims(world).values():
                    size_ms = world.random.choice((1_000, 60_000, 3_600_000, 86_400_000))
                    shim.set(
                        wall_offset_ms=world.random.choice((-1, 1)) * size_ms,
                        wall_rate_ppm=world.random.choice((0, 500_000, -500_000)),
                    )
                await world.pause(1.5, 3.0)
                tally.faults += 1
            lost = world.load.sessions_lost
            world.expect(lost == 0, f"E {lost} sessions ended while only wall clocks jumped")


ROWS: dict[int, Row] = {11: row_11, 13: row_13, 14: row_14, 15: row_15}
