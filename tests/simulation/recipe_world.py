"""A simulated world of several real members whose clients run a recipe, and nothing else.

Members, disks, networks, clocks and their faults are those of every world, and so is the judgement
of what the members did. What a client does in one of its lives is given by a test, which judges the
recipe: while it runs, and at the end through a client that nothing happens to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from coordinator.client import AsyncClient, connect
from tests.met import Met
from tests.simulation.clients import SimulatedClient
from tests.simulation.link import ClientLink
from tests.simulation.loop import OwnClock, Owner, run
from tests.simulation.properties import judge
from tests.simulation.world import Settings, World

CLIENTS = 4
LIFE_SESSION_S = (1.5, 2.5, 4.0)


class Life(SimulatedClient):
    """One life of client ``number``; ``work`` is what it does until ``is_over``."""

    world: RecipeWorld

    def __init__(self, world: RecipeWorld, name: str, number: int, seed: int) -> None:
        super().__init__(world, name, seed)
        self.number = number
        self.session_timeout_ms = int(1000 * LIFE_SESSION_S[self.random.randrange(3)])

    @property
    def is_over(self) -> bool:
        """Nothing goes wrong any more: who works in a loop ends it."""
        return self.is_stopping

    @property
    def met(self) -> Met:
        """What was met, counted."""
        return self.world.met

    async def _run(self) -> None:
        await self._connect()
        self.workers = [asyncio.create_task(self.world.work(self), name=f"the work of {self.name}")]
        await asyncio.gather(*self.workers)
        self.note_session()
        await self.client.close()
        self.is_finished = True

    def kill(self) -> None:
        self.met["killed"] += 1
        super().kill()


Work = Callable[[Life], Coroutine[Any, Any, None]]
Judge = Callable[[AsyncClient], Awaitable[None]]


class RecipeWorld(World):
    """A world whose clients do ``work``."""

    def __init__(self, seed: int, settings: Settings, work: Work) -> None:
        super().__init__(seed, settings)
        self.work = work
        self.met = Met()
        source = random.Random(f"recipe {seed}")
        self.clients = [
            Life(self, f"c{number}", number, source.randrange(1 << 60)) for number in range(CLIENTS)
        ]
        self._source = source

    def replace_client(self, dead: SimulatedClient) -> None:
        """Begin another life of a client that was killed."""
        assert isinstance(dead, Life)
        base, _, life = dead.name.partition("_")
        name = f"{base}_{int(life or 1) + 1}"
        again = Life(self, name, dead.number, self._source.randrange(1 << 60))
        again.is_stopping = self.healed_s is not None
        self.clients.append(again)
        again.begin()

    async def judged_by(self, judge_it: Judge) -> None:
        """Let ``judge_it`` look at what is there now."""
        owner = Owner("judge")
        connector = connect(
            [member.url for member in self.members],
            transport=ClientLink(self, owner, 0),
            clock=OwnClock(self.loop, 1.0, 0),
            timeout=20.0,
        )
        async with connector as client:
            await judge_it(client)


def recipe_world(seed: int, work: Work, judge_it: Judge, *, seconds: float = 30.0) -> Met:
    """Run ``work`` in the world of ``seed``; fail if a promise was broken."""
    worlds: list[RecipeWorld] = []

    async def main() -> None:
        world = RecipeWorld(seed, Settings(seconds=seconds, settle_s=60.0), work)
        worlds.append(world)
        await world.run()
        judge(world)
        if not world.record.violations:
            await world.judged_by(judge_it)

    run(main())
    world = worlds[0]
    assert not world.record.violations, world.record.violations
    world.met["elections"] = world.record.tally.elections
    return world.met
