"""Jobs, queues of work, elections and partitions in worlds of several real members.

Members crash, lose what was not synced, are cut off and paused, their clocks step; clients are
killed, paused and cut off. The members are judged as in every simulated world.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any

import pytest

from coordinator.client import AsyncClient, Create
from coordinator.errors import CoordinatorError, NodeExistsError, NoNodeError
from coordinator.recipes import Election, Grant, Job, Owned, Partitioner, Run, WorkQueue
from tests.simulation.recipe_world import Life, recipe_world

FAST = 3
MORE = (7, 13, 100_003, 100_007, 100_013, 100_017, 100_023)
"""From 100,000 on some clients speak the stream."""
seeds = pytest.mark.parametrize(
    "seed",
    [
        pytest.param(FAST, marks=pytest.mark.check),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE),
    ],
)


def still_believed(grants: dict[str, tuple[Life, Grant[AsyncClient]]], but: Life) -> list[str]:
    """Return whose grants the clock of their own process still says to hold."""
    return [
        name
        for name, (life, grant) in grants.items()
        if life is not but and not life.owner.is_dead and not grant.is_lost
    ]


@seeds
def test_nothing_of_a_queue_is_lost_and_what_is_acknowledged_is_gone(seed: int) -> None:
    """Each item is acknowledged at most once, and by its last delivery; the others are there."""
    put: set[bytes] = set()
    acked: dict[bytes, int] = {}
    tried: set[bytes] = set()
    tokens: dict[bytes, list[int]] = defaultdict(list)

    async def produce(life: Life) -> None:
        queue = WorkQueue(life.client, "q", length_max=50)
        for number in itertools.count(1):
            if life.is_over:
                return
            body = f"{life.name}-{number}".encode()
            try:
                await queue.put(body, timeout=2)
                put.add(body)
            except CoordinatorError as error:
                life.met[type(error).__name__] += 1
            await asyncio.sleep(life.random.random() / 2)

    async def consume(life: Life) -> None:
        queue = WorkQueue(life.client, "q", attempts_max=100_000)
        while not life.is_over:
            try:
                delivery = await queue.take(timeout=1)
                if delivery is None:
                    continue
                body = delivery.body
                assert body not in acked, "delivered after it was acknowledged"
                life.met["again"] += bool(tokens[body])
                tokens[body].append(delivery.fencing_token)
                await asyncio.sleep(life.random.choice([0, 0.1, 1]))
                tried.add(body)
                if await delivery.ack():
                    assert body not in acked, "acknowledged twice"
                    acked[body] = delivery.fencing_token
                    life.met["acked"] += 1
            except CoordinatorError as error:
                life.met[type(error).__name__] += 1
                await asyncio.sleep(life.random.random())

    async def work(life: Life) -> None:
        await (produce(life) if life.number == 0 else consume(life))

    async def judge(observer: AsyncClient) -> None:
        queue, left = WorkQueue(observer, "q", attempts_max=100_000), set()
        while (delivery := await queue.take()) is not None:
            left.add(delivery.body)
            assert await delivery.ack()
        assert put <= acked.keys() | left | tried, "lost"
        assert not left & acked.keys(), "acknowledged, and there"
        for body, token in acked.items():
            assert token == max(tokens[body]), "acknowledged by a delivery that was not the last"
            assert tokens[body] == sorted(set(tokens[body]))

    recipe_world(seed, work, judge).check(acked=5)


@seeds
def test_no_interval_is_done_twice_and_tokens_grow_with_them(seed: int) -> None:
    """What is done is written in the command that says so; the leader's clock steps as it likes."""

    async def work(life: Life) -> None:
        async def one(run: Run[Any]) -> None:
            done = Create(f"/done/{run.start_ms:015d}", str(run.fencing_token).encode(),
                          parents="persistent")  # fmt: skip
            run.also(done)
            await asyncio.sleep(life.random.choice([0, 0.2, 1]))
            if life.random.random() < 0.2:
                raise RuntimeError("the work fails")

        job = Job(life.client, "tick", every="1s", attempts_max=1_000_000, timeout=5)
        while not life.is_over:
            try:
                if await job.wait(2):
                    life.met[(await job.run(one)).state] += 1
            except NodeExistsError as error:
                raise AssertionError("an interval was done twice") from error
            except (CoordinatorError, RuntimeError) as error:
                life.met[type(error).__name__] += 1
                await asyncio.sleep(life.random.random())

    async def judge(observer: AsyncClient) -> None:
        try:
            names = (await observer.children("/done")).names
        except NoNodeError:
            names = ()
        done = [int((await observer.get(f"/done/{name}")).data) for name in sorted(names)]
        assert done == sorted(done), "a later interval under an earlier token"

    recipe_world(seed, work, judge).check(ran=1)


@seeds
def test_at_most_one_leads_whoever_is_handed_over_to(seed: int) -> None:
    """By the clocks of the processes at each step; and by the log, which has no overlap."""
    leading: dict[str, tuple[Life, Grant[AsyncClient]]] = {}
    moved: set[int] = set()

    async def lead(life: Life, election: Election[AsyncClient]) -> None:
        leadership = await election.campaign()
        leading[life.name] = (life, leadership)
        life.met["led"] += 1
        try:
            for _ in range(life.random.randrange(20)):
                leadership.check()
                assert not still_believed(leading, life), "two lead"
                await asyncio.sleep(0.1)
        finally:  # its work has ended; what comes next may be done before it is answered
            leading.pop(life.name)
        waiting = (await election.who()).candidates
        if waiting and life.random.random() < 0.6:
            to = life.random.choice(waiting).grant_id
            moved.add((await election.hand_over(to)).epoch)
            life.met["handed over"] += 1
        else:
            await election.resign()

    async def work(life: Life) -> None:
        weight = life.random.choice([None, 1, 5])
        while not life.is_over:
            election = Election(life.client, "service", weight=weight, timeout=3)
            try:
                await lead(life, election)
            except CoordinatorError as error:
                life.met[type(error).__name__] += 1
                try:
                    await election.resign()
                except CoordinatorError:
                    await asyncio.sleep(0.5)
            await asyncio.sleep(life.random.random() / 5)

    async def judge(observer: AsyncClient) -> None:
        grants = [each async for each in observer.grants("service", is_election=True)]
        held = sorted((each for each in grants if each.granted_zxid), key=lambda e: e.granted_zxid)
        assert [each.fencing_token for each in held] == sorted({e.fencing_token for e in held})
        for before, after in itertools.pairwise(held):
            assert before.ended_zxid, "it ended"
            assert before.ended_zxid <= after.granted_zxid
            if after.fencing_token in moved:
                assert before.ended_zxid == after.granted_zxid, "nobody led in between"

    recipe_world(seed, work, judge).check(led=2)


@seeds
def test_no_partition_has_two_owners_who_believe(seed: int) -> None:
    """Whoever comes, goes, dies or freezes; and its tokens grow with each owner."""
    owning: dict[int, dict[str, tuple[Life, Grant[AsyncClient]]]] = defaultdict(dict)
    tokens: dict[int, list[int]] = defaultdict(list)

    async def work(life: Life) -> None:
        async def own(owned: Owned[AsyncClient]) -> None:
            if owned.grant.is_lost:
                return  # it was paused before it could begin
            mine = owning[owned.number]
            mine[life.name] = (life, owned.grant)
            tokens[owned.number].append(owned.fencing_token)
            life.met["owned"] += 1
            try:
                while not owned.grant.is_lost:
                    assert not still_believed(mine, life), "two owners"
                    await asyncio.sleep(0.1)
            finally:
                mine.pop(life.name, None)

        while not life.is_over:
            jobs = Partitioner(life.client, "jobs", 4, member=f"m{life.number}")
            running = asyncio.create_task(jobs.run(own))
            try:
                for _ in range(life.random.randrange(10, 60)):
                    if running.done() or life.is_over:
                        break
                    await asyncio.sleep(0.2)
                await jobs.stop()
                await running
            except CoordinatorError as error:
                life.met[type(error).__name__] += 1
            finally:
                running.cancel()

    async def judge(observer: AsyncClient) -> None:
        for each in tokens.values():
            assert each == sorted(set(each)), "a partition went back to an earlier token"

    recipe_world(seed, work, judge).check(owned=4)
