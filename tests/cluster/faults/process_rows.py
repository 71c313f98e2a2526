"""Rows 1, 2, 3, 5, 6, 22, 25 and 27: processes that are killed, paused, restarted, repeated."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

from coordinator.errors import (
    LockLostError,
    OutcomeUnknownError,
    SessionExpiredError,
    UnavailableError,
)
from tests.cluster import marks
from tests.cluster.faults.world import Plan, Tally, World
from tests.cluster.fenced_store import FencedStore
from tests.cluster.scripts import Script
from tests.cluster.wire import Wire

_LATE = (LockLostError, OutcomeUnknownError, SessionExpiredError, UnavailableError)
"""What calls come to whose client, or whose members, hardly run: an acquire that ends at its
deadline is withdrawn, and then certainly had no effect."""


async def kill(world: World, *victims: str) -> None:
    """kill -9, start again, wait until all is well."""
    has_quorum = 2 * len(victims) < len(world.cluster.ids)
    at = time.monotonic()
    world.cluster.kill(*victims)
    if has_quorum:
        world.tally.measured("writes again", await world.flowing(at))
        world.cluster.start(*victims)
    else:
        at = time.monotonic()
        world.cluster.start(*victims)
        world.tally.measured("serving again", await world.flowing(at))
    await world.ready(*victims)
    world.tally.faults += 1


async def row_1(plan: Plan, tally: Tally) -> None:
    """leader kill -9"""
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm()
                await kill(world, await world.leader())
    again = tally.measured_s.get("writes again", [])
    tally.marks.append(marks.within("writes again", again, 2.0, tally.calm, share=0.5))
    tally.marks.append(marks.within("writes again", again, 3.0, tally.calm, share=0.99))


async def row_2(plan: Plan, tally: Tally) -> None:
    """follower kill -9"""
    in_fault: list[float] = []
    in_calm: list[list[float]] = []
    elections = 0
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                calm = await world.calm(3.0, 4.0)
                victim, term = await world.follower(), await world.term()
                at = time.monotonic()
                world.cluster.kill(victim)
                await world.pause(1.5, 2.5)
                world.cluster.start(victim)
                await world.ready(victim)
                ended, others = time.monotonic(), _others(world, victim)
                in_calm.append(_answer_times(others, *calm))
                in_fault += _answer_times(others, at, ended)
                elected = await world.term() - term
                elections += elected
                for wire in others:
                    failed = [what for when, what in wire.failures if at <= when < ended]
                    # Whose leader was replaced meanwhile has another reason; that is judged below.
                    is_well = not failed or elected > 0
                    world.expect(is_well, f"failed at {wire.url}: {failed[:3]}")
                tally.faults += 1
    what = "elections while a follower was killed"
    tally.marks.append(marks.at_most(what, elections, 0, tally.calm))
    tally.marks.append(marks.not_slower("answers of the others", in_fault, in_calm, 3.0))


def _others(world: World, victim: str) -> list[Wire]:
    return [wire for wire in world.load.wires if wire.url != world.cluster.url(victim)]


def _answer_times(wires: list[Wire], began: float, ended: float) -> list[float]:
    return [took for wire in wires for at, took in wire.answered if began <= at < ended]


async def row_3(plan: Plan, tally: Tally) -> None:
    """all members kill -9 at once"""
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm()
                await kill(world, *world.cluster.ids)
    again = tally.measured_s.get("serving again", [])
    tally.marks.append(marks.within("serving again", again, 10.0, tally.calm))


PAUSES_S = (1.0, 3.0, 7.0, 15.0, 30.0)
"""Sessions of the load last 3 s."""


async def row_5(plan: Plan, tally: Tally) -> None:
    """SIGSTOP of the leader beyond the leases"""
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members) as world:
            for number in numbers:
                await world.calm()
                await pause_leader(world, PAUSES_S[number % len(PAUSES_S)])


async def pause_leader(world: World, seconds: float) -> None:
    leader, at = await world.leader(), time.monotonic()
    world.cluster.signal(leader, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        world.cluster.signal(leader, signal.SIGCONT)
    world.tally.measured("writes again", await world.flowing(at))
    world.tally.faults += 1


async def row_6(plan: Plan, tally: Tally) -> None:
    """SIGSTOP of a lock's holder beyond its lease; it writes on"""
    for members, numbers in plan.shares(10):
        with FencedStore() as store:
            options = plan.load(per_second=60)
            async with World(plan, tally, members=members, options=options) as world:
                await _pause_holders(world, store, len(numbers))
        if store.tokens != sorted(store.tokens):
            tally.violations.append("M the fenced store took a lower token after a higher one")
        tally.notes.append(
            f"{members} members: {len(store.tokens)} fenced writes under "
            f"{len(set(store.tokens))} tokens, {store.refused_count} late ones refused"
        )


async def _pause_holders(world: World, store: FencedStore, count: int) -> None:
    endpoints = world.cluster.endpoints
    arguments = ("-m", "tests.cluster.holder", endpoints, "held", "1.0", store.address)
    holders = [Script(*arguments)]
    try:
        await asyncio.to_thread(holders[0].wait_for, "granted")
        holders.append(Script(*arguments))
        for _ in range(count):
            await world.calm(0.1, 0.5)
            await _pause_holder(world, *holders)
            holders.pop(0).end()
            holders.append(Script(*arguments))
            world.tally.faults += 1
    finally:
        for holder in holders:
            holder.end()


async def _pause_holder(world: World, first: Script, second: Script) -> None:
    first.signal(signal.SIGSTOP)
    granted = await asyncio.to_thread(second.wait_for, "granted")
    await asyncio.to_thread(second.wait_for, "step")
    first.signal(signal.SIGCONT)
    await asyncio.to_thread(first.wait_for, "lost")
    late = [line for line in first.lines
            if line["event"] == "step" and line["at_ms"] > granted["at_ms"]]  # fmt: skip
    world.expect(not late, f"M the paused holder went on: {late[:2]}")


async def row_22(plan: Plan, tally: Tally) -> None:
    """rolling restart by SIGTERM"""
    for members, numbers in plan.shares(2):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                for each in world.cluster.ids:
                    await world.calm(0.2, 0.8)
                    await restart(world, each)
                tally.faults += 1
            errors = world.load.client_errors
            late = sum(count for kind, count in errors.items() if issubclass(kind, _LATE))
            others = [kind.__name__ for kind in errors if not issubclass(kind, _LATE)]
            world.expect(not others, f"calls failed in the product's client: {others}")
            what = f"late calls of the product's client, {members} members"
            tally.marks.append(marks.at_most(what, late, 0, world.calm_ticks))
    # Nobody who waits for its election timeout is elected so soon: the leader handed over.
    next_one = tally.measured_s.get("from the end of a leader to the next", [])
    tally.marks.append(marks.within("the next leader is there", next_one, 0.3, tally.calm))


async def restart(world: World, member_id: str) -> None:
    was_leader, at = member_id == await world.leader(), time.monotonic()
    process = world.cluster.processes[member_id]
    process.terminate()
    code = await asyncio.to_thread(process.wait, 60)
    world.expect(code == 0, f"member {member_id} ended with {code} on SIGTERM")
    if was_leader:
        gone_at = time.monotonic()
        await world.leader()
        world.tally.measured("from the end of a leader to the next", time.monotonic() - gone_at)
        world.tally.measured("writes again after the leader left", await world.flowing(at))
    world.cluster.start(member_id)
    await world.ready(member_id)


async def row_25(plan: Plan, tally: Tally) -> None:
    """two or three faults at once"""
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members) as world:
            for _ in numbers:
                await world.calm()
                await _several(world)


async def _several(world: World) -> None:
    """Kill some, pause some, then bring everybody back in any order."""
    cluster = world.cluster
    victims = world.random.sample(cluster.ids, world.random.choice((2, 2, 3)))
    for victim in victims:
        if world.random.random() < 0.5:
            cluster.kill(victim)
        else:
            cluster.signal(victim, signal.SIGSTOP)
        await world.pause(0.0, 0.7)
    world.random.shuffle(victims)
    for victim in victims:
        await world.pause(0.0, 1.5)
        if cluster.is_running(victim):
            cluster.signal(victim, signal.SIGCONT)
            if world.random.random() < 0.3:
                cluster.kill(victim)
        if not cluster.is_running(victim):
            cluster.start(victim)
    at = time.monotonic()
    await world.ready()
    await world.flowing(at)
    world.tally.measured("all well again", time.monotonic() - at)
    world.tally.faults += 1


async def row_27(plan: Plan, tally: Tally) -> None:
    """client cut off, and again with the same request id"""
    for members, numbers in plan.shares(100):
        options = plan.load(per_second=80)
        async with World(plan, tally, members=members, options=options) as world:
            cluster = world.cluster
            killer = asyncio.create_task(_kill_now_and_then(world))
            acknowledged: list[tuple[str, str]] = []
            for number in numbers:
                acknowledged.append(await _cut_and_repeat(world, number))
                tally.faults += 1
            killer.cancel()
            await asyncio.gather(killer, return_exceptions=True)
            for each in cluster.ids:
                if not cluster.is_running(each):
                    cluster.start(each)
            await world.ready()
            await _once_each(world, [path for path, _ in acknowledged])


async def _once_each(world: World, paths: list[str]) -> None:
    wire = Wire(world.cluster.urls[0])
    listed = await wire.request("GET", "/v1/tree/load/once?children&limit=1000")
    wire.close()
    found = {f"/load/once/{name}" for name in listed.body["children"]}
    world.expect(len(set(paths)) == len(paths), "Q the same name was given to two requests")
    missing, extra = set(paths) - found, found - set(paths)
    world.expect(not missing, f"D acknowledged and gone: {sorted(missing)[:3]}")
    world.expect(not extra, f"D done twice: {sorted(extra)[:3]}")


async def _kill_now_and_then(world: World) -> None:
    while True:
        await world.pause(1.0, 3.0)
        await kill(world, await world.leader())
        world.tally.faults -= 1  # the row counts its repeated requests


async def _cut_and_repeat(world: World, number: int) -> tuple[str, str]:
    """Send, hang up at any moment, then ask other members until there is an answer."""
    client_id = f"{world.load.name}-once-{number}"
    headers = {"Coordinator-Client-Id": client_id, "Coordinator-Request-Number": "1"}
    body = {"data": client_id, "mode": "persistent_sequential", "parents": "persistent"}
    target, first = "/v1/tree/load/once/n-", None
    for patience_s in (world.random.uniform(0.0005, 0.02), world.random.uniform(0.001, 0.05)):
        wire = Wire(world.random.choice(world.cluster.urls))
        answer = await wire.request("POST", target, body, headers=headers, timeout_s=patience_s)
        wire.close()
        first = first or (answer.body["path"] if answer.status == 201 else None)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        wire = Wire(world.random.choice(world.cluster.urls))
        answer = await wire.request("POST", target, body, headers=headers, timeout_s=5)
        wire.close()
        if answer.status == 201:
            path = answer.body["path"]
            world.expect(first in (None, path), f"D {client_id}: first {first}, then {path}")
            return path, client_id
        await asyncio.sleep(0.05)
    raise TimeoutError(f"{client_id} was never answered")


Row = Callable[[Plan, Tally], Awaitable[None]]
ROWS: dict[int, Row] = {
    1: row_1, 2: row_2, 3: row_3, 5: row_5, 6: row_6, 22: row_22, 25: row_25, 27: row_27,
}  # fmt: skip
