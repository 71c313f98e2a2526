"""All kinds of locks behind networks that lose, delay and cut, with cancellations and force.

In virtual time, with one real member in memory. What has to hold whatever happens: every attempt
comes to an end, with an error of this library if any, and nobody stands in a queue afterwards.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError
from coordinator.recipes import (
    Election,
    Lock,
    MultiLock,
    ReentrantLock,
    RWLock,
    Semaphore,
    TreeLock,
)
from tests.client.memory_cluster import MemoryCluster, Network, cluster
from tests.client.virtual_time import run
from tests.recipes.cancelling import standing

TASKS_OF_EACH = 4
ROUNDS = 10
END_S = 300


def contender(client: AsyncClient, source: random.Random) -> Any:
    """Return a contender of some kind for one of few names, on some terms."""
    patience = source.choice([0, 0.3, 2, 20])
    name = source.choice(["a", "b", "a/1"])
    terms: dict[str, Any] = {"timeout": patience}
    if source.random() < 0.3:
        terms["max_hold"] = source.choice([0.5, 2, 30])
    if source.random() < 0.3:
        terms["lock_delay"] = source.choice([0.5, 3])
    kinds: list[Callable[[], Any]] = [
        lambda: Lock(client, name, **terms),
        lambda: TreeLock(client, name, timeout=patience),
        lambda: RWLock(client, name, **terms).read(),
        lambda: RWLock(client, name, **terms).write(),
        lambda: Semaphore(client, "slots", 2, **terms),
        lambda: MultiLock(client, *source.sample(["a", "b", "a/1", "a-1"], 2), **terms),
        lambda: ReentrantLock(client, name, **terms),
        lambda: Election(client, "e", timeout=patience),
    ]
    return source.choice(kinds)()


class Weather:
    """Two clients behind networks of their own, and one that sees all; what came of it."""

    def __init__(self, world: MemoryCluster, seed: int) -> None:
        self.random = random.Random(seed)
        self.networks = [world.network(), world.network()]
        self.came: Counter[str] = Counter()
        self.is_over = False
        for network in self.networks:
            network.loses_reply_of = lambda request: self.random.random() < 0.04
            network.delays_s = lambda request: self.random.choice([0, 0, 0, 0.05, 0.5])

    async def work(self, client: AsyncClient) -> None:
        """Hold one thing after the other."""
        source = random.Random(self.random.random())
        while not self.is_over:
            try:
                one = contender(client, source)
                async with one as grant:
                    if source.random() < 0.1 and isinstance(one, Lock):
                        await grant.downgrade()
                    await asyncio.sleep(source.choice([0, 0, 0.1, 1, 4]))
                self.came["held"] += 1
            except CoordinatorError as error:
                self.came[type(error).__name__] += 1
            await asyncio.sleep(source.random() * 0.2)

    async def gust(self) -> None:
        """Let one network fail for a while."""
        network: Network = self.random.choice(self.networks)
        how = self.random.choice(["is_cut", "is_refusing"])
        await asyncio.sleep(self.random.random() * 6)
        setattr(network, how, True)
        await asyncio.sleep(self.random.random() * 6)
        setattr(network, how, False)

    async def force(self, client: AsyncClient) -> None:
        """Force one of the holders out."""
        view = await client.lock(self.random.choice(["a", "b", "slots"]))
        if view.holders:
            chosen = self.random.choice(view.holders)
            try:
                await client.revoke(view.lock, by="ops", reason="gust", grant_id=chosen.grant_id)
            except CoordinatorError:
                pass  # it has gone by itself

    def clear(self) -> None:
        self.is_over = True
        for network in self.networks:
            network.loses_reply_of = lambda request: False
            network.delays_s = lambda request: 0.0


async def scenario(seed: int) -> Counter[str]:
    async with cluster() as world:
        weather = Weather(world, seed)
        left, right = weather.networks
        async with (
            world.client(left, session_timeout=4) as one,
            world.client(right, session_timeout=8) as other,
            world.client() as ops,
        ):
            clients = [one, other] * TASKS_OF_EACH
            tasks = [asyncio.create_task(weather.work(client)) for client in clients]
            for _ in range(ROUNDS):
                await weather.gust()
                await weather.force(ops)
                at = weather.random.randrange(len(tasks))
                tasks[at].cancel()
                await asyncio.wait({tasks[at]})
                assert tasks[at].cancelled(), tasks[at]
                tasks[at] = asyncio.create_task(weather.work(clients[at]))
            weather.clear()
            _, late = await asyncio.wait(tasks, timeout=END_S)
            await asyncio.sleep(30)

            assert late == set()
            for task in tasks:
                task.result()
            assert {queue: names for queue, names in (await standing(ops)).items() if names} == {}
            assert len(one.background._tasks) + len(other.background._tasks) == 0
    return weather.came


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 32))]
)
def test_all_kinds_come_to_their_end_and_leave_nothing(seed: int) -> None:
    """Lost answers, cuts, refusals, cancellations, forced ends, drawn from the seed."""
    came = run(scenario(seed))

    assert came["held"] > 20, came
    assert "DeadlockError" not in came, "each task holds one thing at a time"
