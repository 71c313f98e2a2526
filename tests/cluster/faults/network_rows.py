"""Rows 7, 8, 9, 10, 26, 28 and 29: links that are cut, one way or both, lossy, late or slow."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time

from tests.cluster import marks
from tests.cluster.faults.network import CLIENTS, NetworkCluster
from tests.cluster.faults.process_rows import Row
from tests.cluster.faults.world import Plan, Tally, World
from tests.cluster.wire import Wire
from tests.cluster.writers import Writers

ELECTION_TIMEOUT_S = 0.8
_HEALED_S_MAX = 10.0
_PROBES_S = 2.5
_ELECTIONS_S = 60.0


def network(world: World) -> NetworkCluster:
    assert isinstance(world.cluster, NetworkCluster)
    return world.cluster


async def healed(world: World) -> None:
    """Heal everything; every member must be ready and a write pass."""
    network(world).heal()
    at = time.monotonic()
    await world.ready()
    await world.flowing(at)
    world.tally.measured("healed", time.monotonic() - at)


def _judge_healed(tally: Tally) -> None:
    times = tally.measured_s.get("healed", [])
    tally.marks.append(marks.within("all ready and writing", times, _HEALED_S_MAX, tally.calm))


async def row_7(plan: Plan, tally: Tally) -> None:
    """partition: leader alone, halves, clients from one member"""
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members, make=NetworkCluster) as world:
            for number in numbers:
                await world.calm()
                await (_alone, _halves, _clients)[number % 3](world)
                await healed(world)
                tally.faults += 1
    for what in (REFUSED, DEPOSED):
        times = tally.measured_s.get(what, [])
        tally.marks.append(marks.within(what, times, 2 * ELECTION_TIMEOUT_S, tally.calm))
    _judge_healed(tally)


REFUSED = "the minority refuses"
"""Questions whose deadline is one election timeout; with a later one it waits for a leader."""
DEPOSED = "the cut-off leader says that it does not lead"


async def _alone(world: World) -> None:
    leader = await world.leader()
    deposed = asyncio.create_task(asyncio.to_thread(_deposed, world, leader))
    await _minority(world, [leader])
    world.tally.measured(DEPOSED, await deposed)


def _deposed(world: World, leader: str) -> float:
    """Return how long a member that is cut off from now on still says that it leads."""
    at = time.monotonic()
    while True:
        asked_at = time.monotonic()
        status = world.cluster.status(leader)
        if (status is not None and status["role"] != "leader") or asked_at > at + _HEALED_S_MAX:
            return asked_at - at
        time.sleep(0.02)


async def _halves(world: World) -> None:
    ids = world.cluster.ids
    minority = world.random.sample(ids, (len(ids) - 1) // 2)
    await _minority(world, minority)


async def _minority(world: World, minority: list[str]) -> None:
    """Cut them off: they refuse what needs a quorum, the others go on."""
    for inside in minority:
        for outside in world.cluster.ids:
            if outside not in minority:
                network(world).cut_both(inside, outside)
    at = time.monotonic()
    flowing = asyncio.create_task(world.flowing(at))
    await _refused(world, minority[0], at)
    world.tally.measured("the majority writes", await flowing)
    await world.pause(1.0, 3.0)


async def _refused(world: World, member_id: str, at: float) -> None:
    """Ask it again and again; measure when it began to refuse and had answered for the last time.

    Each question waits for its own answer, so that one that hangs does not hide the next."""
    wire = Wire(world.cluster.url(member_id))
    answered, refused = [at], []

    async def ask() -> None:
        asked_at = time.monotonic()
        answer = await wire.request("GET", "/v1/tree/load", timeout_s=ELECTION_TIMEOUT_S)
        if answer.code == "NoLeader":
            refused.append(time.monotonic())
        elif answer.status == 200:
            answered.append(asked_at)

    asking = []
    while time.monotonic() < at + _PROBES_S:
        asking.append(asyncio.create_task(ask()))
        await asyncio.sleep(0.05)
    await asyncio.gather(*asking)
    wire.close()
    world.expect(bool(refused), f"A member {member_id} refuses nothing {_PROBES_S:g} s later")
    if refused:
        world.tally.measured(REFUSED, max(min(refused), *answered) - at)


async def _clients(world: World) -> None:
    network(world).cut(CLIENTS, world.random.choice(world.cluster.ids))
    await world.pause(2.0, 4.0)


async def row_8(plan: Plan, tally: Tally) -> None:
    """one-way cut, bridge, ring"""
    hold_s, settle_s = 20.0, 10.0
    for members, numbers in plan.shares(10):
        async with World(plan, tally, members=members, make=NetworkCluster) as world:
            for number in numbers:
                await world.calm()
                name = await _partial(world, number)
                written = await _probe(world, hold_s)
                due = range(int(settle_s), int(hold_s))
                share = len(set(written) & set(due)) / len(due)
                early = len(set(written) & set(range(int(settle_s)))) / settle_s
                world.expect(share >= 0.9, f"A {name}: writes in {share:.0%} of the seconds")
                tally.notes.append(
                    f"{members} members, {name}: writes in {early:.0%} of the first 10 s, then "
                    f"{share:.0%}"
                )
                await healed(world)
                tally.faults += 1


async def _probe(world: World, seconds: float) -> list[int]:
    """Write at every member by turns, with little patience; return in which seconds one passed."""
    at = time.monotonic()
    passed: list[int] = []

    async def probe(url: str) -> None:
        wire = Wire(url)
        while time.monotonic() < at + seconds:
            body = {"data": "probe"}
            answer = await wire.request("PUT", "/v1/tree/load/p?create", body, timeout_s=0.9)
            if answer.status in (200, 201):
                passed.append(int(time.monotonic() - at))
            await asyncio.sleep(0.1)
        wire.close()

    await asyncio.gather(*(probe(url) for url in world.cluster.urls))
    return passed


async def _partial(world: World, number: int) -> str:
    net, ids = network(world), world.cluster.ids
    leader = await world.leader()
    others = [each for each in ids if each != leader]
    if number % 4 == 0:
        net.cut(leader, world.random.choice(others))
        return "one way from the leader to a follower"
    if number % 4 == 1:
        for each in others:
            net.cut(each, leader)
        return "the leader is heard and hears nobody"
    if number % 4 == 2 or len(ids) < 5:
        # A member in the middle that sees both sides, which do not see each other.
        middle = world.random.choice(others)
        rest = [each for each in ids if each != middle]
        world.random.shuffle(rest)
        half = len(rest) // 2
        for one, other in itertools.product(rest[:half], rest[half:]):
            net.cut_both(one, other)
        return "bridge"
    for first, second in itertools.combinations(range(len(ids)), 2):
        if (second - first) % len(ids) not in (1, len(ids) - 1):
            net.cut_both(ids[first], ids[second])
    return "ring"


async def row_9(plan: Plan, tally: Tally) -> None:
    """loss 1-30 %, delay 10-500 ms, jitter, reorder 25 %"""
    for members, numbers in plan.shares(5):
        async with World(plan, tally, members=members, make=NetworkCluster) as world:
            net = network(world)
            for number in numbers:
                await world.calm()
                loss, low_ms, high_ms, reordered = (
                    (0.05, 40, 60, 0.0), (0.01, 10, 20, 0.25), (0.3, 0, 0, 0.0),
                    (0.1, 10, 100, 0.25), (0.02, 100, 500, 0.25),
                )[number % 5]  # fmt: skip
                is_mark = (loss, low_ms) == (0.05, 40)
                before = await world.term()
                began_at, done = time.monotonic(), len(world.load.readings)
                net.lose(loss)
                if high_ms:
                    net.delay(low_ms, high_ms, reordered)
                await asyncio.sleep(_ELECTIONS_S if is_mark else 12.0)
                elections = await world.highest_term() - before
                net.undelay()
                await healed(world)
                writes = sum(r.is_write for r in world.load.readings[done:])
                tally.notes.append(
                    f"{members} members, loss {loss:.0%}, delay {low_ms}-{high_ms} ms, reordered "
                    f"{reordered:.0%}: {elections} elections and {writes} writes in "
                    f"{time.monotonic() - began_at:.0f} s"
                )
                if is_mark:
                    what = "elections in a minute of 5 % loss and 50 ms"
                    tally.marks.append(marks.at_most(what, elections, 1, world.calm_ticks))
                tally.faults += 1


async def row_10(plan: Plan, tally: Tally) -> None:
    """slow link of 1 Mbit/s during a snapshot's transfer"""
    for members, numbers in plan.shares(1):
        options = plan.load(per_second=60)
        make = NetworkCluster
        async with World(plan, tally, members=members, make=make, options=options) as world:
            for number in numbers:
                await _slow_transfer(world, f"big-{number}")
                tally.faults += 1


async def _slow_transfer(world: World, name: str) -> None:
    net, victim = network(world), await world.follower()
    world.cluster.kill(victim)
    wire = Wire(world.cluster.url(await world.leader()))
    for number in range(12):
        body = {"data": world.random.randbytes(40_000).hex()}
        answer = await wire.request("POST", f"/v1/tree/load/{name}-{number}", body)
        assert answer.status == 201, answer
    for _ in range(700):
        await wire.request("PUT", f"/v1/tree/load/{name}-0", {"data": "x"})
    before = await world.term()
    net.limit(victim, "1mbit")
    world.cluster.start(victim)
    at = time.monotonic()
    await world.ready(victim)
    world.tally.measured("caught up over 1 Mbit/s", time.monotonic() - at)
    if await world.term() != before:
        world.expect(False, "A the leader changed while a snapshot was sent")
    net.unlimit(victim)
    wire.close()


async def row_26(plan: Plan, tally: Tally) -> None:
    """swizzle: links cut one by one, healed in random order"""
    for members, numbers in plan.shares(2):
        async with World(plan, tally, members=members, make=NetworkCluster) as world:
            for _ in numbers:
                await world.calm()
                links = list(itertools.permutations(world.cluster.ids, 2))
                links = world.random.sample(links, world.random.randrange(2, len(links) + 1))
                for source, target in links:
                    network(world).cut(source, target)
                    await world.pause(0.1, 0.8)
                world.random.shuffle(links)
                for source, target in links:
                    network(world).heal(source, target)
                    await world.pause(0.1, 0.8)
                await healed(world)
                tally.faults += 1
    _judge_healed(tally)


async def row_28(plan: Plan, tally: Tally) -> None:
    """the leader's host vanishes without a word, for clients that began at each member"""
    for members, numbers in plan.shares(5):
        options = plan.load(per_second=80)
        make = NetworkCluster
        async with World(plan, tally, members=members, make=make, options=options) as world:
            with Writers(world.cluster.urls) as writers:
                await asyncio.to_thread(writers.wait)
                for _ in numbers:
                    await world.calm()
                    await _vanish(world, writers)
                    tally.faults += 1
                world.expect(not writers.errors, f"writes failed: {writers.errors[:3]}")
    times = tally.measured_s.get(VANISHED, [])
    tally.marks.append(marks.within(VANISHED, times, 1.0, tally.calm))
    _judge_healed(tally)


VANISHED = "a client writes again"


async def _vanish(world: World, writers: Writers) -> None:
    leader, at = await world.leader(), time.monotonic()
    network(world).vanish(leader)
    await asyncio.sleep(4.0)
    for pause_s in writers.pauses_s(at).values():
        world.tally.measured(VANISHED, pause_s)
    await healed(world)


async def row_29(plan: Plan, tally: Tally) -> None:
    """reads at a leader that was deposed while it was stopped and cut off"""
    for members, numbers in plan.shares(5):
        async with World(plan, tally, members=members, make=NetworkCluster) as world:
            for number in numbers:
                await world.calm()
                await _read_at_deposed(world, str(number))
                await healed(world)
                tally.faults += 1


async def _read_at_deposed(world: World, value: str) -> None:
    """It goes on where it was stopped, with reads in its sockets that were asked after another
    leader had acknowledged a write, and hears nothing of that one."""
    cluster, target = world.cluster, "/v1/tree/load/deposed"
    leader = await world.leader()
    others = [each for each in cluster.ids if each != leader]
    wires = [Wire(cluster.url(leader)) for _ in range(20)]
    await asyncio.gather(*(wire.request("GET", "/v1/status") for wire in wires))
    cluster.signal(leader, signal.SIGSTOP)
    try:
        for each in others:
            network(world).cut_both(leader, each)
        await _acknowledged(world, others, target, value)
        reads = [asyncio.create_task(wire.request("GET", target)) for wire in wires]
        await asyncio.sleep(0.1)  # they are in its sockets
    finally:
        cluster.signal(leader, signal.SIGCONT)
    for answer in await asyncio.gather(*reads):
        seen = answer.body["data"] if answer.status == 200 else value
        world.expect(seen == value, f"A read {seen} at a deposed leader after {value}")
    for wire in wires:
        wire.close()


async def _acknowledged(world: World, members: list[str], target: str, value: str) -> None:
    """Write at one of these members, as soon as one takes it."""
    end = time.monotonic() + _HEALED_S_MAX
    for member_id in itertools.cycle(members):
        wire = Wire(world.cluster.url(member_id))
        answer = await wire.request("PUT", f"{target}?create", {"data": value}, timeout_s=1.0)
        wire.close()
        if answer.status in (200, 201):
            return
        if time.monotonic() > end:
            raise TimeoutError(f"no write within {_HEALED_S_MAX:g} s")


ROWS: dict[int, Row] = {
    7: row_7, 8: row_8, 9: row_9, 10: row_10, 26: row_26, 28: row_28, 29: row_29,
}  # fmt: skip
