"""A simulated world for a recipe: clients that lose answers, are cut off, die, and begin again.

In virtual time, with one real member in memory; all of it is drawn from a seed. A test gives what
one life of a client does; the storm decides what happens to it. Answers are lost after the member
has acted, connections are refused, nothing gets through for longer than a session lasts, answers
come late by more than that, and a client dies at any moment without a goodbye.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from coordinator.client import AsyncClient
from coordinator.errors import NoNodeError
from tests.client.memory_cluster import MemoryCluster, Network, cluster
from tests.client.virtual_time import run
from tests.met import Met

SESSION_S = 4.0
SETTLES_WITHIN_S = 120.0


@dataclass
class Life:
    """One process: what it may use, until it ends."""

    number: int
    """Which of the clients this is; another life of it has the same."""
    name: str
    client: AsyncClient
    random: random.Random
    storm: Storm
    is_dead: bool = False


Work = Callable[[Life], Coroutine[Any, Any, None]]


class Storm:
    """The clients of one world, and what happens to them."""

    def __init__(self, world: MemoryCluster, seed: int, work: Work) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.met = Met()
        self.is_over = False
        """The weather is calm: who works in a loop ends it."""
        self.alive: dict[int, tuple[asyncio.Task[None], Network, Life | None]] = {}
        self._work = work
        self._lives = 0

    def begin(self, number: int) -> None:
        """Begin a life of client ``number``."""
        network = self.world.network()
        source = random.Random(self.random.random())
        if not self.is_over:
            network.loses_reply_of = lambda request: source.random() < 0.05
            network.delays_s = lambda request: source.choice([0, 0, 0, 0, 0.05, 0.5])
        self._lives += 1
        work = self._live(number, f"{number}.{self._lives}", network, source)
        self.alive[number] = (asyncio.create_task(work), network, None)

    async def _live(self, number: int, name: str, network: Network, source: random.Random) -> None:
        async with self.world.client(
            network, session_timeout=SESSION_S, timeout=source.choice([1, 3, 10]), label=name
        ) as client:
            life = Life(number, name, client, source, self)
            self.alive[number] = (*self.alive[number][:2], life)
            try:
                await self._work(life)
            finally:
                life.is_dead = True

    async def blow(self, seconds: float, *, kills: bool = True) -> None:
        """Let things go wrong for so long."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        while loop.time() < ends:
            await asyncio.sleep(self.random.random() * 3)
            number = self.random.choice(sorted(self.alive))
            task, network, _ = self.alive[number]
            how = self.random.choice(["cut", "cut", "refuse", "late", "kill", "none"])
            self.met[how] += 1
            if task.done():
                task.result()
                self.begin(number)
            elif how == "kill" and kills:
                await self.kill(number)
                await asyncio.sleep(self.random.random() * 2)
                self.begin(number)
            elif how in ("cut", "refuse", "late"):
                asyncio.create_task(self._gust(network, how)).add_done_callback(_raise)

    async def kill(self, number: int) -> None:
        """End a life without a goodbye; its session runs out at the member."""
        task, network, life = self.alive[number]
        network.is_cut = True
        if life is not None:
            life.is_dead = True
        task.cancel()
        await asyncio.wait({task})

    async def _gust(self, network: Network, how: str) -> None:
        delays = network.delays_s
        late_s = self.random.choice([2.0, 6.0])
        if how == "late":
            network.delays_s = lambda request: late_s
        else:
            setattr(network, {"cut": "is_cut", "refuse": "is_refusing"}[how], True)
        await asyncio.sleep(self.random.choice([0.5, 2, 3.5, 7]))
        network.delays_s = delays if not self.is_over else (lambda request: 0.0)
        network.is_refusing = False
        if not self._is_killed(network):
            network.is_cut = False

    def _is_killed(self, network: Network) -> bool:
        return all(network is not each for _, each, _ in self.alive.values())

    async def calm(self) -> None:
        """End the weather, and the work of all; whoever died comes again once."""
        self.is_over = True
        await asyncio.sleep(8)  # the last gusts
        for number, (task, network, _) in list(self.alive.items()):
            network.loses_reply_of = lambda request: False
            network.delays_s = lambda request: 0.0
            network.is_cut = network.is_refusing = False
            if task.done():
                self.begin(number)
        tasks = [task for task, _, _ in self.alive.values()]
        _, late = await asyncio.wait(tasks, timeout=SETTLES_WITHIN_S)
        assert not late, f"they wait for ever: {late}"
        for task in tasks:
            task.result()


def _raise(task: asyncio.Task[None]) -> None:
    task.result()


def storm(
    seed: int,
    work: Work,
    *,
    clients: int = 4,
    seconds: float = 60.0,
    judge: Callable[[Storm, AsyncClient], Awaitable[None]],
    begin: Callable[[AsyncClient], Awaitable[None]] | None = None,
) -> Met:
    """Run a world; ``judge`` sees it when all have ended, through a client without faults."""

    async def main() -> Met:
        async with cluster() as world, world.client() as observer:
            if begin is not None:
                await begin(observer)
            blown = Storm(world, seed, work)
            for number in range(clients):
                blown.begin(number)
            await blown.blow(seconds)
            await blown.calm()
            await asyncio.sleep(2 * SESSION_S)
            await judge(blown, observer)
            return blown.met

    return run(main())


async def left_below(observer: AsyncClient, path: str) -> list[str]:
    """Return the ephemeral znodes at and below ``path``."""
    try:
        names = (await observer.children(path or "/")).names
    except NoNodeError:
        return []
    found = []
    for name in names:
        child = f"{path}/{name}"
        stat = await observer.exists(child)
        if stat is not None and stat.ephemeral_owner is not None:
            found.append(child)
        found += await left_below(observer, child)
    return found
