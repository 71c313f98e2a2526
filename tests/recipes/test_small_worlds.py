"""Simulated worlds of the small recipes: once for a key, a shared rate, reentry, exclusion."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError, LockTimeoutError, OutcomeUnknownError
from coordinator.recipes import (
    Grant,
    Once,
    ReentrantLock,
    TokenBucket,
    TokenChunk,
    execute_exclusive,
)
from coordinator.recipes.once import Attempt
from tests.recipes.storm import Life, Storm, left_below, storm

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
seeds = pytest.mark.parametrize("seed", SEEDS)
RATE, BURST, CHUNK = 20, 30, 10


def now() -> float:
    return asyncio.get_running_loop().time()


@seeds
def test_all_who_ask_for_a_key_get_the_same_result(seed: int) -> None:
    """Work is begun again only when the run before did not come to its end, by a higher token."""
    results: dict[str, int] = {}
    began: dict[str, list[int]] = defaultdict(list)

    async def work(life: Life) -> None:
        once = Once(life.client, timeout=3)
        while not life.storm.is_over:
            key = f"k{life.random.randrange(30)}"

            async def one(attempt: Attempt, key: str = key) -> int:
                assert key not in results, "begun after it was done"
                assert all(token < attempt.fencing_token for token in began[key])
                life.storm.met["again"] += attempt.number > 1
                began[key].append(attempt.fencing_token)
                await asyncio.sleep(life.random.choice([0, 0.2, 2]))
                if life.random.random() < 0.2:
                    raise RuntimeError("the work fails")
                return attempt.fencing_token

            try:
                done = await once.run(key, one)
                assert results.setdefault(key, done.result) == done.result
                life.storm.met["first" if done.is_first else "known"] += 1
            except (CoordinatorError, RuntimeError) as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.3)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for key, result in results.items():
            done = await Once(observer).look(key)
            assert done is not None
            assert done.result == result == began[key][-1], "not that of the last attempt"

    storm(seed, work, judge=judge).check(first=10, known=10, again=2, kill=1, cut=1)


@seeds
@pytest.mark.parametrize("is_in_chunks", [False, True], ids=["taken", "chunks"])
def test_a_rate_is_not_exceeded_whoever_dies(seed: int, is_in_chunks: bool) -> None:
    """Of all that was taken between any two moments; chunks by what each client has at hand."""
    times: list[float] = []
    clients = 4
    at_hand = clients * CHUNK if is_in_chunks else 0

    async def work(life: Life) -> None:
        bucket = TokenBucket(life.client, "mail", rate=RATE, burst=BURST)
        source: Any = bucket.chunk(CHUNK) if is_in_chunks else bucket
        while not life.storm.is_over:
            try:
                if await source.take(timeout=0.5):
                    times.append(now())
            except CoordinatorError as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.05)
        if isinstance(source, TokenChunk):
            try:
                await source.give_back()
            except CoordinatorError:
                life.storm.met["not given back"] += 1

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        for first in range(0, len(times), 10):
            for last in range(first, len(times), 10):
                # A permit may have been taken a moment before its caller was told.
                span_s = times[last] - times[first] + 6
                assert last - first + 1 <= BURST + span_s * RATE + at_hand
        blown.met["taken"] = len(times)

    storm(seed, work, judge=judge, clients=clients).check(taken=300, kill=1, cut=1)


@seeds
def test_only_one_owner_is_inside_however_often_it_enters(seed: int) -> None:
    """Two tasks of each client, each in up to three bodies at once, and cancelled now and then."""
    inside: dict[str, tuple[Life, Grant[AsyncClient]]] = {}

    async def enter(life: Life, owner: str, depth: int) -> None:
        async with ReentrantLock(life.client, "accounts", timeout=3) as grant:
            inside[owner] = (life, grant)
            try:
                for _ in range(life.random.randrange(4)):
                    others = [
                        each
                        for each, (other, held) in inside.items()
                        if each != owner and not other.is_dead and not held.is_lost
                    ]
                    assert not others, (owner, others)
                    await asyncio.sleep(0.1)
                if depth < 3 and life.random.random() < 0.7:
                    await enter(life, owner, depth + 1)
                    life.storm.met["within"] += 1
            finally:
                if depth == 1:
                    inside.pop(owner, None)  # before the release, whose answer may be late

    async def one(life: Life, owner: str) -> None:
        while not life.storm.is_over:
            try:
                async with asyncio.timeout(life.random.choice([0.3, 2, 20])):
                    await enter(life, owner, 1)
                    life.storm.met["entered"] += 1
            except (CoordinatorError, TimeoutError) as error:
                life.storm.met[type(error).__name__] += 1
            inside.pop(owner, None)
            await asyncio.sleep(life.random.random() * 0.5)

    async def work(life: Life) -> None:
        async with asyncio.TaskGroup() as both:
            for number in range(2):
                both.create_task(one(life, f"{life.name}/{number}"))

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert await left_below(observer, "/locks") == []

    storm(seed, work, judge=judge).check(entered=30, within=20, kill=1, cut=1)


@seeds
def test_a_function_runs_in_one_place_at_a_time(seed: int) -> None:
    """By the clock of each; a result is returned only if the function has come to its end."""
    inside: dict[str, tuple[Life, Grant[AsyncClient]]] = {}
    ended: set[str] = set()

    async def work(life: Life) -> None:
        count = 0
        while not life.storm.is_over:
            count += 1
            call = f"{life.name}-{count}"

            async def task(grant: Grant[AsyncClient], call: str = call) -> str:
                inside[call] = (life, grant)
                try:
                    for _ in range(life.random.randrange(8)):
                        others = [
                            other
                            for other, (its, held) in inside.items()
                            if other != call and not its.is_dead and not held.is_lost
                        ]
                        assert not others, (call, others)
                        await asyncio.sleep(0.1)
                    ended.add(call)
                    return call
                finally:
                    inside.pop(call)

            try:
                assert await execute_exclusive(life.client, "index", task, timeout=3) == call
                assert call in ended
                life.storm.met["ran"] += 1
            except LockTimeoutError:
                assert call not in ended, "it ran, and its caller was told that it had not"
            except (CoordinatorError, OutcomeUnknownError) as error:
                life.storm.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() * 0.3)

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        assert await left_below(observer, "/locks") == []

    storm(seed, work, judge=judge).check(ran=30, kill=1, cut=1)
