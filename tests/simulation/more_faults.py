"""What goes wrong besides in the worlds that have more, drawn from a stream of its own.

A world with these has all the others, too. They came later, and a new row in the table of
``faults`` would make another world of every seed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from coordinator.raft.network.messages import Incarnation, Message
from tests.simulation import durable
from tests.simulation.members import STOP_S_MAX, SimulatedMember
from tests.simulation.schemes import both_ways

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("stop_in_order", "stop_all_in_order", "put_back_old_copy", "delete_contender")
GAP_S = (0.5, 4.0)
TURN_S = 0.05
KNOWN_S_MAX = 6.0
"""How long an old copy is kept for the moment when it may be put back."""


class MoreFaults:
    """Those of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/more faults")
        self._tasks: list[asyncio.Task[None]] = []
        only = world.settings.only_faults
        table: list[tuple[Callable[[], Coroutine[Any, Any, None]], int]] = [
            (self._stop_in_order, 4),
            (self._stop_all_in_order, 1),
            (self._put_back_old_copy, 3),
            (self._delete_contender, 4),
        ]
        self._table = [each for each in table if not only or _name(each[0]) in only]

    async def run(self) -> None:
        """Go on until cancelled."""
        world, draw = self._world, self._random
        world.network.on_sent.append(self._note_sent)
        faults, weights = zip(*self._table, strict=True) if self._table else ((), ())
        while faults:
            await asyncio.sleep(draw.uniform(*GAP_S))
            fault = draw.choices(faults, weights)[0]
            name = _name(fault)
            tally = world.record.tally.faults
            tally[name] = tally.get(name, 0) + 1
            world.record.trace.add("fault", name)
            self._tasks.append(asyncio.create_task(fault(), name=name))

    async def heal(self) -> None:
        """Begin nothing more; a member that stops goes on with that, and is started again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- an orderly stop

    async def _stop_in_order(self) -> None:
        """A member, rather the leader, is told to stop while clients ask it, and started again."""
        draw = self._random
        up = [member for member in self._world.members if member.is_started]
        leading = [member for member in up if member.is_leading]
        if up:
            await self._restart(draw.choice(leading if leading and draw.random() < 0.6 else up))

    async def _stop_all_in_order(self) -> None:
        """One after the other, as for a new version; the next while the last one starts."""
        members = list(self._world.members)
        self._random.shuffle(members)
        for member in members:
            if member.is_started:
                await self._restart(member)
                await asyncio.sleep(self._random.choice((0.0, 0.5, 2.0)))

    async def _restart(self, member: SimulatedMember) -> None:
        life = member.life
        member.stop(self._random.choice((0.0, 0.0, 0.05, 0.3)))
        for _ in range(round(2 * STOP_S_MAX / TURN_S)):
            if member.life != life or not member.is_up:
                break
            await asyncio.sleep(TURN_S)
        await asyncio.sleep(self._random.choice((0.0, 0.1, 1.0, 3.0)))
        self._world.boot(member)

    # --- an old copy of a disk

    async def _put_back_old_copy(self) -> None:
        """A member goes on, dies, and comes back with a copy of its disk of before.

        It was started between, so the copy is of an earlier incarnation; and it is put back when
        all the others have met it in a later one, and hold what they promised themselves. What else
        is not found out is not promised (``raft.incarnations``). At worst the others that are left
        know nothing of what it has forgotten, and with it they would be a quorum.
        """
        draw = self._random
        member = draw.choice(self._world.members)
        disk = member.disk
        if not member.is_started or not self._are_proven():
            return
        copy, number = disk.copy(), durable.incarnation_of(disk)
        await asyncio.sleep(draw.choice((0.2, 1.0, 3.0)))
        if not member.is_up or member.disk is not disk:
            return
        member.kill(is_power_cut=draw.random() < 0.5)
        await asyncio.sleep(draw.choice((0.0, 0.2, 1.0)))
        self._world.boot(member)
        for _ in range(round(KNOWN_S_MAX / TURN_S)):
            await asyncio.sleep(TURN_S)
            if member.disk is not disk:
                return
            if self._have_met(member, number):
                break
        else:
            return
        far: list[SimulatedMember] = []
        if draw.random() < 0.5:
            others = [each for each in self._world.members if each is not member]
            draw.shuffle(others)
            far = others[: len(others) // 2]
        with self._cut_from(far):
            await asyncio.sleep(draw.choice((0.0, 0.5, 2.0)))
            is_met = self._are_proven() and self._have_met(member, number)
            if member.disk is not disk or not is_met:
                return
            near = [each for each in self._world.members if far and each not in (member, *far)]
            for each in (member, *near):
                each.kill(is_power_cut=True)
            member.replace_disk(copy, is_old_copy=True)
            said = f"comes back as it was in incarnation {number}"
            self._world.record.trace.add(member.who, said)
        await asyncio.sleep(draw.choice((0.05, 0.5)))
        self._world.boot(member)
        await asyncio.sleep(draw.uniform(1.0, 4.0))
        for each in near:
            self._world.boot(each)

    @contextmanager
    def _cut_from(self, far: list[SimulatedMember]) -> Iterator[None]:
        """Cut off so many that what is acknowledged meanwhile is on no disk but the others'."""
        network = self._world.network
        cuts = both_ways([each for each in self._world.members if each not in far], far)
        for source, target in cuts:
            network.cut(source, target)
        try:
            yield
        finally:
            for source, target in cuts:
                network.mend(source, target)

    def _are_proven(self) -> bool:
        """Whether all hold what they promised: it would be one lost disk too many otherwise."""
        return all(each.is_proven for each in self._world.members)

    def _have_met(self, member: SimulatedMember, number: int) -> bool:
        """Whether all the others know, durably, of a later incarnation of this member."""
        others = [each for each in self._world.members if each is not member]
        met = [durable.incarnation_met(each.disk, member.member_id) for each in others]
        return durable.incarnation_of(member.disk) > number and min(met) > number

    def _note_sent(self, member_id: str, message: Message) -> None:
        """Whoever says that it may have forgotten something has been found out."""
        if isinstance(message, Incarnation) and not message.is_proven:
            member = next(each for each in self._world.members if each.member_id == member_id)
            if member.is_old_copy and durable.is_marked(member.disk):
                member.is_old_copy = False
                self._world.record.trace.add(member.who, "is known to run on an old copy")

    # --- a grant over the tree

    async def _delete_contender(self) -> None:
        await self._world.onlooker.delete_contender()


def _name(fault: Callable[..., Any]) -> str:
    return fault.__name__.strip("_")
