"""Simulated worlds of an election: handed over, by weight, resumed after a death, in bad weather.

A leader's work is steps; at each it looks at its leadership, and nobody else may lead at that very
moment. At the end the log of grants is read: each leadership ended before the next one began, at
the same zxid where it was handed over or taken over, and epochs only grew.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, CoordinatorError, LockLostError
from coordinator.recipes import Election, Grant
from tests.recipes.storm import SESSION_S, Life, Storm, left_below, storm

SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]


class World:
    """Who leads, and what was seen."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.leading: dict[str, Grant[AsyncClient]] = {}
        self.epochs: list[int] = []
        self.moved: set[int] = set()
        """The epochs that began by a hand-over or a take-over, certainly."""
        self.served: set[int] = set()

    @asynccontextmanager
    async def candidate(
        self, life: Life, client: AsyncClient
    ) -> AsyncIterator[Election[AsyncClient]]:
        """A candidate whose file the kernel unlocks when its process ends."""
        path = self.directory / str(life.number)
        weight = life.random.choice([None, 1, 1, 5])
        election = Election(
            client, "service", weight=weight, resume=path, timeout=life.random.choice([3, 30])
        )
        try:
            yield election
        finally:
            self.leading.pop(life.name, None)
            assert election._queue.file is not None
            election._queue.file.close()

    async def lead(self, life: Life, election: Election[AsyncClient]) -> bool:
        """Be elected, work for a while, and end it in some way; True: by a crash of the process."""
        leadership = await election.campaign()
        if not leadership.is_lost:
            self.epochs.append(leadership.epoch)
            life.storm.met["led"] += 1
        if election.was_resumed:
            self.moved.add(leadership.epoch)
            life.storm.met["resumed"] += 1
        self.leading[life.name] = leadership
        try:
            for _ in range(life.random.randrange(40)):
                leadership.check()
                others = [each for name, each in self.leading.items() if name != life.name]
                assert all(each.is_lost for each in others), "two lead"
                self.served.add(life.number)
                await asyncio.sleep(0.1)
        finally:
            self.leading.pop(life.name, None)
        how = life.random.choice(["resign", "hand over", "hand over", "vanish", "crash"])
        if how == "resign":
            await election.resign()
        elif how == "hand over":
            waiting = (await election.who()).candidates
            to = life.random.choice(waiting).grant_id if waiting else None
            self.moved.add((await election.hand_over(to)).epoch)
            life.storm.met["handed over"] += 1
        elif how == "crash":
            file = election._queue.file
            assert file is not None
            file.close()
            life.client.background.start(_expire(election), "its session ends")
            return True
        else:
            await election.resign() if life.storm.is_over else await asyncio.sleep(5)
        return False

    async def judge(self, blown: Storm, observer: AsyncClient) -> None:
        """Read the log of grants."""
        grants = [each async for each in observer.grants("service", is_election=True)]
        held = sorted((each for each in grants if each.granted_zxid), key=lambda e: e.granted_zxid)
        assert [each.fencing_token for each in held] == sorted({e.fencing_token for e in held})
        for before, after in itertools.pairwise(held):
            assert before.ended_zxid, "it ended"
            assert before.ended_zxid <= after.granted_zxid
            if after.fencing_token in self.moved:
                assert before.ended_zxid == after.granted_zxid
        assert self.epochs == sorted(set(self.epochs))
        assert self.served == {0, 1, 2, 3}
        assert await left_below(observer, "/candidacies") == []


async def _expire(election: Election[AsyncClient]) -> None:
    await asyncio.sleep(SESSION_S)
    with suppress(CoordinatorError):
        await election.resign()


@pytest.mark.parametrize("seed", SEEDS)
def test_at_most_one_leads_and_the_log_has_no_gap(seed: int, tmp_path: Path) -> None:
    """Whoever is cut off, paused, killed, restarted, passed over or preferred."""
    world = World(tmp_path)

    async def work(life: Life) -> None:
        async with AsyncExitStack() as process:
            election = await process.enter_async_context(world.candidate(life, life.client))
            while not life.storm.is_over or life.number not in world.served:
                try:
                    if await world.lead(life, election):  # another process takes its place
                        network = life.storm.world.network()
                        client = life.storm.world.client(network, session_timeout=SESSION_S)
                        again = world.candidate(life, await process.enter_async_context(client))
                        election = await process.enter_async_context(again)
                except (BadArgumentsError, LockLostError):
                    life.storm.met["not handed over"] += 1
                    await asyncio.sleep(0.1)
                except CoordinatorError:
                    await asyncio.sleep(life.random.random())
                if election.leadership is not None and life.random.random() < 0.5:
                    try:
                        await election.resign()
                    except CoordinatorError:
                        await asyncio.sleep(1)
            if election.leadership is not None:
                await election.resign()

    met = storm(seed, work, judge=world.judge, seconds=120)
    met.check(led=20, kill=3, cut=3, **{"handed over": 5, "resumed": 1})
