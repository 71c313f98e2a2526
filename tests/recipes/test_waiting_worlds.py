"""Simulated worlds of what programs count and wait with: counters, flags, latches, barriers."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError, OutcomeUnknownError, UnavailableError
from coordinator.recipes import Barrier, Condition, Counter, DoubleBarrier, Flag, Latch
from tests.recipes.storm import Life, Storm, left_below, storm

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
seeds = pytest.mark.parametrize("seed", SEEDS)


def now() -> float:
    return asyncio.get_running_loop().time()


@seeds
def test_a_counter_counts_each_addition_once(seed: int) -> None:
    """No number is given out twice; the sum is that of what is known, and at most the unknown."""
    drawn: list[int] = []
    unknown: list[str] = []

    async def work(life: Life) -> None:
        counter = Counter(life.client, "ids")
        while not life.storm.is_over:
            unknown.append(life.name)
            try:
                number = await counter.add()
                assert number is not None
                drawn.append(number)
                unknown.pop(unknown.index(life.name))
            except OutcomeUnknownError:
                continue  # it may have been counted
            except CoordinatorError:
                unknown.pop(unknown.index(life.name))
            await asyncio.sleep(life.random.random() * 0.5)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        total = await Counter(observer, "ids").value()
        assert len(set(drawn)) == len(drawn)
        assert len(drawn) <= total <= len(drawn) + len(unknown)
        blown.met["drawn"] = len(drawn)

    storm(seed, work, judge=judge).check(drawn=100, kill=1, cut=1)


@seeds
def test_a_flag_wakes_all_and_a_closed_barrier_lets_nobody_pass(seed: int) -> None:
    """One client sets and closes; what it knows to be closed, nobody passes. And nobody is told
    that it was not in time at the end of a wait of what is known to be open then."""
    closed: list[tuple[float, float]] = []
    opened: list[tuple[float, float]] = []
    passed: list[tuple[float, float]] = []
    kept_out: list[tuple[float, float]] = []
    closed_s: list[float] = []
    opened_s: list[float] = []

    async def control(life: Life) -> None:
        barrier = Barrier(life.client, "b")
        while not life.storm.is_over:
            if opened_s:
                opened.append((opened_s.pop(), now()))
            await barrier.close()
            closed_s[:] = [now()]
            await asyncio.sleep(life.random.random() * 4)
            closed.append((closed_s.pop(), now()))
            await barrier.open()
            opened_s[:] = [now()]
            await asyncio.sleep(life.random.random() * 2)
        await barrier.open()
        await Flag(life.client, "end").set(b"over")

    async def work(life: Life) -> None:
        if life.number == 0:
            while True:
                try:
                    await control(life)
                    return
                except CoordinatorError:
                    closed_s.clear()
        while True:
            began, timeout_s = now(), life.random.choice([0, 1, 5])
            try:
                if await Barrier(life.client, "b").wait(timeout_s):
                    passed.append((began, now()))
                else:
                    kept_out.append((began + timeout_s, now()))
                if life.storm.is_over and await Flag(life.client, "end").wait(100):
                    return
            except CoordinatorError:
                life.storm.met["error"] += 1
            await asyncio.sleep(life.random.random())

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for began, ended in passed:
            inside = [each for each in closed if each[0] < began and ended < each[1]]
            assert not inside, "it passed what was closed all the time"
        for ends, ended in kept_out:
            around = [each for each in opened if each[0] < ends and ended < each[1]]
            assert not around, "it was open when the wait ended"
        blown.met["passed"] = len(passed)
        blown.met["kept out"] = len(kept_out)
        blown.met["opened"] = len(opened)
        blown.met["closed"] = len(closed)

    storm(seed, work, judge=judge).check(**{"passed": 20, "closed": 3, "opened": 3, "kept out": 5})


@seeds
def test_a_condition_misses_no_notification(seed: int) -> None:
    """A number that only grows is waited for; at the end all have seen the last."""
    seen: dict[int, int] = defaultdict(int)

    async def work(life: Life) -> None:
        counter, changed = Counter(life.client, "n"), Condition(life.client, "n")
        goal = 0

        async def is_there() -> bool:
            seen[life.number] = max(seen[life.number], await counter.value())
            return seen[life.number] >= goal

        while True:
            try:
                if life.number == 0:
                    await counter.add() if not life.storm.is_over else None
                    await changed.notify()
                    if life.storm.is_over:
                        return
                    await asyncio.sleep(life.random.random())
                    continue
                goal = seen[life.number] + 1
                if await changed.wait_for(is_there, 20):
                    life.storm.met["seen"] += 1
                elif life.storm.is_over:
                    return
            except CoordinatorError:
                life.storm.met["error"] += 1

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        last = await Counter(observer, "n").value()
        assert {seen[number] for number in (1, 2, 3)} == {last}

    storm(seed, work, judge=judge).check(seen=30)


@seeds
def test_a_latch_opens_when_each_part_was_counted(seed: int) -> None:
    """Workers die with a part done and not counted, or counted and not known to be."""
    done: set[int] = set()
    opened: list[int] = []
    parts = 30

    async def work(life: Life) -> None:
        latch = Latch(life.client, "import", parts)
        while True:
            try:
                if life.number == 0:
                    if await latch.wait(10):
                        opened.append(len(done))
                        return
                    continue
                part = life.random.randrange(parts)
                if life.storm.is_over:  # the rest, in order
                    part = next((each for each in range(parts) if each not in done), -1)
                    if part < 0:
                        return
                await latch.count_down(part)
                done.add(part)
            except (UnavailableError, OutcomeUnknownError):
                life.storm.met["error"] += 1
            await asyncio.sleep(life.random.random() * 3)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert await Latch(observer, "import", parts).left() == 0
        assert opened[-1] >= parts - 3  # a count whose answer was lost is not in ``done``
        assert (await observer.get("/latches/import")).stat.num_children == parts

    storm(seed, work, judge=judge)


@seeds
def test_a_double_barrier_begins_and_ends_together(seed: int) -> None:
    """Of a round nobody begins before all came, and nobody has left before all have, or died."""
    size = 3
    came: dict[str, float] = {}
    rounds: dict[str, dict[str, float]] = defaultdict(dict)
    left: dict[str, float] = {}
    ended: list[tuple[str, frozenset[str], float]] = []

    def note(gate: DoubleBarrier[AsyncClient], name: str) -> None:
        if not gate.is_in:  # its session is lost by its own clock, or it has left
            left.setdefault(name, now())

    async def work(life: Life) -> None:
        while not life.storm.is_over:
            gate = DoubleBarrier(life.client, "step", size)
            began = now()
            try:
                if not await gate.enter(life.random.choice([0, 1, 20])):
                    life.storm.met["not in time"] += 1
                    continue
                assert gate._mine is not None
                name, (directory, others) = gate._mine.path, gate._round
                came[name] = began
                rounds[directory][name] = now()
                gate._mine.session.on_state(lambda _, gate=gate, name=name: note(gate, name))
                assert len(others) == size - 1
                await asyncio.sleep(life.random.random() * 3)
                left.setdefault(name, now())
                everybody = frozenset(f"{directory}/{each}" for each in others)
                if await gate.leave(30):
                    ended.append((directory, everybody, now()))
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.2)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for entered in rounds.values():
            assert len(entered) <= size
            first = min(entered.values())
            assert all(came[name] <= first for name in entered)
        for _, others, at in ended:
            for name in others & left.keys():  # the others were killed
                assert left[name] <= at, name
        assert await left_below(observer, "/double-barriers") == []
        blown.met["rounds"] = len(rounds)
        blown.met["whole"] = sum(len(each) == size for each in rounds.values())

    storm(seed, work, judge=judge, clients=5).check(rounds=5, whole=2)
