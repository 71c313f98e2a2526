"""Three whole members on processors of their own, and two clients: one modest, one at full rage."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from coordinator.node.config import ClusterConfig, Config, HttpConfig, MemberAddress, MemberConfig
from coordinator.raft.engine import Role
from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.service.member import Member
from coordinator.wire.admission import Admission
from coordinator.wire.http.adapter import DOOR, ROUTES
from coordinator.wire.http.app import create_app
from coordinator.wire.stream.connection import StreamConnection
from coordinator.wire.stream.door import StreamDoor
from tests.members.closed_loop import KINDS, Connected, counted, repeated
from tests.members.processors import Processor, ProcessorLoop, connect, run_with_processors
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.simulation.loop import OwnClock
from tests.simulation.network import MemberNetwork, NetworkEnd, Weather

T = TypeVar("T")
SYNC_S = 2e-4
"""Of a write to the disk."""
TICK_S = 0.0023
"""Between the moments at which something is due (``lateness``)."""


class FairMember:
    """A member, its door, and its processor."""

    def __init__(self, number: int, network: MemberNetwork, config: Config) -> None:
        member_id = str(number)
        loop = asyncio.get_running_loop()
        self.processor = Processor(f"m{number}")
        clock = OwnClock(loop, 1.0, 0)
        self.engine = PySyncObjEngine(
            config.cluster, MemberConfig(member_id=member_id, data_dir="data"), config.raft,
            clock=clock, disk=SimulatedDisk(number), random=random.Random(number),
            transport=NetworkEnd(network, member_id, self.processor, lambda _: None),
            run_blocking=self._run_blocking, sync_in_place_ms_max=0.0,
        )  # fmt: skip
        self.service = Member(config, self.engine, clock, random=random.Random(number))
        app = create_app(self.service, config.http, clock)
        self.admission = Admission(config.http)
        self.door = StreamDoor(
            app[DOOR], routes=app[ROUTES], admission=self.admission, config=config.http
        )

    async def _run_blocking(self, call: Callable[[], T], /) -> T:
        await asyncio.sleep(SYNC_S)
        return call()

    def accept(self, address: str) -> StreamConnection:
        """Make its end of a connection from an address."""
        place = self.admission.enter(address)
        assert not isinstance(place, str), place
        place.is_local = True
        return StreamConnection(self.door, place, asyncio.get_running_loop().time())


class FairCluster:
    """Three of them."""

    def __init__(self) -> None:
        addresses = tuple(
            MemberAddress(
                str(number),
                client_url=f"http://member-{number}:1",
                member_host="127.0.0.1",
                member_port=number,
            )
            for number in (1, 2, 3)
        )
        config = Config(cluster=ClusterConfig(members=addresses), http=HttpConfig())
        network = MemberNetwork(1)
        network.weather = Weather(delay_ms=(0.05, 0.05))
        self.members = [FairMember(number, network, config) for number in (1, 2, 3)]
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessorLoop)
        self.loop = loop
        self._clients: list[Connected] = []

    async def start(self) -> FairMember:
        """Start all, and return the one that leads."""
        for each in self.members:
            each.processor.spawn(each.service.start())
        while True:
            await asyncio.sleep(0.1)
            for each in self.members:
                status = each.engine.status()
                if status.role is Role.LEADER and status.is_ready:
                    return each

    async def fill(self, leader: FairMember) -> None:
        """Make what is read and listed."""
        filled = self.ask("fill", "127.0.0.9", ["fill"], 1, [leader], 1)
        while not filled["filled"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Let all clients go, and end what they had under way."""
        for each in self._clients:
            each.close()
        await asyncio.sleep(0.01)

    def ask(
        self,
        name: str,
        address: str,
        kinds: list[str],
        depth: int,
        members: list[FairMember],
        connections: int,
    ) -> Counter[str]:
        """Let a client repeat ``kinds`` for ever, so many at once on each connection; return what
        it counts."""
        counts = Counter[str]()
        for number in range(connections):
            member, id_ = members[number % len(members)], f"{name}-{number}"
            programs = [
                counted(
                    repeated(kinds[(number + each) % len(kinds)], f"{id_}-{each}", counts), counts
                )
                for each in range(depth)
            ]
            client = Connected(id_, programs)
            self._clients.append(client)
            connect(self.loop, client, partial(member.accept, address), member.processor)
        return counts


@dataclass(frozen=True, slots=True)
class Shares:
    """What was done in the same time."""

    alone: int
    """By the modest client, while nobody else asked."""
    beside: int
    """By the same, beside the raging one."""
    raging: int
    """By the raging one since it came, in requests: the first release of hundreds of locks that are
    begun at once comes after all of their sessions and acquires."""
    problems: list[str]

    @property
    def kept(self) -> float:
        return self.beside / max(self.alone, 1)


def shares(kind: str, rage: str, *, seconds: float = 0.2, connections: int = 6) -> Shares:
    """Return what a client with four requests under way does alone, and beside one with many
    hundreds on connections to all members."""

    async def scenario() -> Shares:
        cluster = FairCluster()
        leader = await cluster.start()
        await cluster.fill(leader)
        modest = cluster.ask("modest", "127.0.0.2", [kind], 4, [leader], 1)
        await asyncio.sleep(seconds)
        before = modest["done"]
        await asyncio.sleep(seconds)
        alone = modest["done"] - before
        kinds = KINDS if rage == "mix" else [rage]
        members = cluster.members
        raging = cluster.ask("rage", "127.0.0.3", kinds, 100, members, connections)
        await asyncio.sleep(0.5)
        before = modest["done"]
        await asyncio.sleep(seconds)
        found = Shares(alone, modest["done"] - before, raging["answered"], cluster.loop.problems)
        await cluster.stop()
        return found

    return run_with_processors(scenario())


def lateness(rage: str, connections: int, *, seconds: float = 0.1) -> float:
    """Return how late, in seconds, a leader does at most what is due, beside that many connections
    that ask it all they can."""

    async def scenario() -> float:
        cluster = FairCluster()
        leader = await cluster.start()
        await cluster.fill(leader)
        raging = cluster.ask("rage", "127.0.0.3", [rage], 100, [leader], connections)
        await asyncio.sleep(0.1)
        loop, late_s = cluster.loop, list[float]()
        end_s = loop.time() + seconds

        def tick(due_s: float) -> None:
            late_s.append(loop.time() - due_s)
            if due_s < end_s:
                leader.processor.at(due_s + TICK_S, tick, due_s + TICK_S)

        before = raging["done"]
        leader.processor.at(loop.time(), tick, loop.time())
        await asyncio.sleep(2 * seconds)
        assert raging["done"] > before
        await cluster.stop()
        return max(late_s)

    return run_with_processors(scenario())
