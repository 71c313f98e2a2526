"""Somebody beside the clients, who was told a zxid by one of them and asks any member for it.

It reads what is at least as new as that (``at_least_zxid``), or as a state that is still to come,
and looks at locks, which nobody else does often: what it is shown must be the latest.
Told to, it deletes what others queue with, over the tree.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from coordinator.client import RetryPolicy, connect
from coordinator.client.async_client import AsyncClient
from coordinator.errors import BadArgumentsError, CoordinatorError, UnknownRouteError
from tests.simulation.contending import LOCKS, SEMAPHORE, SHAREABLE
from tests.simulation.link import ClientLink
from tests.simulation.loop import OwnClock, Owner
from tests.simulation.members import SimulatedMember
from tests.simulation.told import Looked

if TYPE_CHECKING:
    from tests.simulation.world import World

PATHS = ("/r0", "/r1", "/r2", "/", "/q/0")
NAMES = (*LOCKS, SHAREABLE, SEMAPHORE)
PAUSE_S = (0.05, 0.4)
AHEAD_MAX = 5
"""How far beyond what anybody has seen it may ask; its read waits for that."""


class Onlooker:
    """One life, as long as its world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = draw = random.Random(f"{world.seed}/onlooker")
        self._owner = Owner("onlooker")
        self._clock = OwnClock(world.loop, draw.uniform(0.99, 1.01), draw.randrange(1_000_000))
        self._link = ClientLink(world, self._owner, draw.randrange(1 << 60))
        self._clients: list[AsyncClient] = []

    def begin(self) -> None:
        self._owner.spawn(self._run())

    async def delete_contender(self) -> None:
        """Delete somebody's contender over the tree, rather one that holds."""
        draw, record = self._random, self._world.record
        places = sorted(record.locks.places.values(), key=lambda place: place.path)
        holding = [place for place in places if place.is_holder]
        if not places or not self._clients:
            return
        place = draw.choice(holding if holding and draw.random() < 0.7 else places)
        deleting = draw.choice(self._clients).delete(place.path)
        await self._owner.spawn(self._noted(deleting, f"delete {place.path}"))

    async def _run(self) -> None:
        draw, world = self._random, self._world
        clients = [await self._client_of(member) for member in world.members]
        self._clients = clients
        while True:
            await asyncio.sleep(draw.uniform(*PAUSE_S))
            zxid = world.reads.latest_zxid
            if draw.random() < 0.5:
                zxid += draw.randint(1, AHEAD_MAX)
            client = draw.choice(clients)
            if draw.random() < 0.6:
                await self._read(client, draw.choice(PATHS), zxid)
            else:
                await self._noted(self._look(client, draw.choice(NAMES)), "look")

    async def _client_of(self, member: SimulatedMember) -> AsyncClient:
        """Connect to one member only; what that can not say yet, no other is asked for."""
        connector = connect(
            [member.url],
            transport=self._link,
            clock=self._clock,
            timeout=2.0,
            retry=RetryPolicy(seed=self._random.randrange(1 << 30), cap_ms=500),
        )
        return await connector.open_async()

    async def _read(self, client: AsyncClient, path: str, zxid: int) -> None:
        reading = client.get(path, at_least_zxid=zxid)
        if await self._noted(reading, f"read {path} at least {zxid}") in ("done", "NoNode"):
            self._world.record.tally.reached += 1

    async def _look(self, client: AsyncClient, name: str) -> None:
        self._world.looked.append(Looked.of("onlooker", await client.lock(name)))

    async def _noted(self, call: Coroutine[Any, Any, object], what: str) -> str:
        """Return what came of it."""
        record = self._world.record
        said = "done"
        try:
            await call
        except CoordinatorError as error:
            said = error.code
            if isinstance(error, BadArgumentsError | UnknownRouteError):
                record.violate("sound requests are taken", f"onlooker, {what}: {error!r}")
        record.trace.add("onlooker", f"{what}: {said}")
        return said
