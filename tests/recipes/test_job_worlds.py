"""A simulated world of a job: whoever works dies, is cut off, loses answers; nothing runs twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient, Create
from coordinator.errors import CoordinatorError
from coordinator.recipes import Job, Jobs, Run
from coordinator.recipes.jobs.schedule import Schedule
from tests.recipes.storm import Life, Storm, storm

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
EVERY_MS = 2_000


@pytest.mark.parametrize("seed", SEEDS)
def test_each_interval_is_done_once_and_its_tokens_grow(seed: int) -> None:
    """What the ledger calls done was written with it; no interval is missing at the end."""
    working: list[tuple[int, int]] = []

    async def work(life: Life) -> None:
        async def one(run: Run[Any]) -> None:
            working.append((run.fencing_token, run.start_ms))
            run.also(Create(f"/done/{run.start_ms}", str(run.fencing_token).encode()))
            await asyncio.sleep(life.random.choice([0, 0.3, 1]))
            if life.random.random() < 0.25:
                raise RuntimeError("the work fails")

        job = Job(
            life.client, "tick", every="2s", catch_up="all", attempts_max=1_000_000, timeout=5,
            label=life.name,
        )  # fmt: skip
        while not life.storm.is_over:
            try:
                if await job.wait(3):
                    life.storm.met[(await job.run(one)).state] += 1
            except (CoordinatorError, RuntimeError) as error:
                life.storm.met[type(error).__name__] += 1
                await asyncio.sleep(life.random.random())

    async def begin(observer: AsyncClient) -> None:
        await observer.create("/done")

    async def judge(blown: Storm, observer: AsyncClient) -> None:
        async def rest(run: Run[Any]) -> None:
            run.also(Create(f"/done/{run.start_ms}"))

        await Job(
            observer, "tick", every="2s", catch_up="all", attempts_max=1_000_000, timeout=20
        ).run(rest)
        view = await Jobs(observer).look("tick")
        assert view is not None
        done = sorted(int(each) for each in (await observer.children("/done")).names)
        expected = range(done[0], view.ledger.settled_ms + 1, EVERY_MS)  # type: ignore[operator]
        assert done == list(expected)
        assert Schedule.of("2s").latest(view.now_ms) - done[-1] <= EVERY_MS
        by_token = [start for _, start in sorted(working)]
        assert by_token == sorted(by_token), "a later token for an earlier interval"
        blown.met["done"] = len(done)
        blown.met["again"] = len(working) - len({start for _, start in working})

    storm(seed, work, judge=judge, begin=begin).check(done=25, ran=3, kill=1, cut=1, again=1)
