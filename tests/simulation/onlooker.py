"""Somebody beside the clients, who was told a zxid by one of them and asks any member for it.

It reads what is at least as new as that (``at_least_zxid``), or as a state that is still to come.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from coordinator.client import RetryPolicy, connect
from coordinator.client.async_client import AsyncClient
from coordinator.errors import BadArgumentsError, CoordinatorError, UnknownRouteError
from tests.simulation.link import ClientLink
from tests.simulation.loop import OwnClock, Owner
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

PATHS = ("/r0", "/r1", "/r2", "/", "/q/0")
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

    def begin(self) -> None:
        self._owner.spawn(self._run())

    async def _run(self) -> None:
        draw, world = self._random, self._world
        clients = [await self._client_of(member) for member in world.members]
        while True:
            await asyncio.sleep(draw.uniform(*PAUSE_S))
            zxid = world.reads.latest_zxid
            if draw.random() < 0.5:
                zxid += draw.randint(1, AHEAD_MAX)
            await self._read(draw.choice(clients), draw.choice(PATHS), zxid)

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
        record = self._world.record
        try:
            await client.get(path, at_least_zxid=zxid)
            said = "found"
        except CoordinatorError as error:
            said = error.code
            if isinstance(error, BadArgumentsError | UnknownRouteError):
                record.violate("sound requests are taken", f"onlooker {path}: {error!r}")
        if said in ("found", "NoNode"):
            record.tally.reached += 1
        record.trace.add("onlooker", f"read {path} at least {zxid}: {said}")
