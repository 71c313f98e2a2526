"""A member's memory goes wrong by itself: it is found, says nothing more, and is replaced.

What is changed is of a kind that no client of a world asks for, so that the difference is found by
the comparison of the members and by nothing else. The world judges that the member is found within
``FOUND_WITHIN_S``, that nobody else stops, and (at the door, and at its network) that the one that
was found answers nothing more. Then an operator gives it an empty disk, and it catches up.

It takes part only in worlds that ask for it by name.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from coordinator.state.remembered import kept_of, recalled
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("plant_difference",)
FOUND_WITHIN_S = 10.0
TURN_S = 0.05
GAP_S = (0.5, 3.0)
CAUGHT_UP_WITHIN_S = 20.0


Still = Callable[[], bool]
"""Whether what was planted is still there: clients may have replaced it, without knowing it."""


def session_label(machine: Any) -> Still | None:
    """The label of a session, which is for people."""
    sessions = machine._sessions._sessions
    if not sessions:
        return None
    key = next(reversed(sessions))
    planted = sessions[key] = replace(sessions[key], label="another")
    return lambda: machine.session(key) is planted


def root_time(machine: Any) -> Still | None:
    """When the root was made."""
    znodes = machine._tree._znodes
    znodes["/"] = structs.replace(znodes["/"], ctime_ms=znodes["/"].ctime_ms + 1)
    return lambda: True


def history_reason(machine: Any) -> Still | None:
    """Why a grant ended, in the history."""
    history = machine._locks.history
    if not history._ended:
        return None
    ended = history._ended._chunks[-1][-1]
    planted = structs.replace(
        ended, departure=structs.replace(ended.departure, reason="another")
    )
    history._ended._chunks[-1][-1] = planted
    return lambda: any(each is planted for each in history._ended)


def remembered_outcome(machine: Any) -> Still | None:
    """What a request came to that nobody repeats any more."""
    table = machine._requests
    for client_id, record in {**table.free, **table.bound}.items():
        for number, kept in record.outcomes.items():
            if number < record.highest - 1:
                outcome = recalled(kept)
                planted = kept_of(structs.replace(outcome, zxid=outcome.zxid + 1))
                record.outcomes[number] = planted
                return partial(_is_remembered, table, client_id, number, planted)
    return None


def _is_remembered(table: Any, client_id: str, number: int, planted: Any) -> bool:
    record = table.free.get(client_id) or table.bound.get(client_id)
    return record is not None and record.outcomes.get(number) is planted


def counter(machine: Any) -> Still | None:
    """How much data there is."""
    machine._tree.data_bytes += 1
    return lambda: True


PLANTS = (session_label, root_time, history_reason, remembered_outcome, counter)


class Differences:
    """Those of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/differences")
        self.is_asked_for = bool(set(world.settings.only_faults) & set(NAMES))

    async def run(self) -> None:
        """Go on until cancelled."""
        while self.is_asked_for:
            await asyncio.sleep(self._random.uniform(*GAP_S))
            if self._is_calm():
                await self._plant()

    async def heal(self) -> None:
        """Replace whoever differs still, so that all can agree in the end."""
        for member in self._world.members:
            if member.may_differ and member.is_up:
                member.kill(is_power_cut=False)
                member.replace_disk(SimulatedDisk(self._random.randrange(1 << 30)))
                self._world.boot(member)

    def _is_calm(self) -> bool:
        """Whether all members run, hold what they promised, and one of them leads."""
        members = self._world.members
        is_whole = all(each.is_started and each.is_proven for each in members)
        return is_whole and any(each.is_leading and each.service.is_ready for each in members)

    async def _plant(self) -> None:
        world, draw = self._world, self._random
        members = list(world.members)
        leading = [each for each in members if each.is_leading]
        member = draw.choice(leading if draw.random() < 0.4 else members)
        plant = draw.choice(PLANTS)
        member.may_differ = True
        world.record.differing.add(member.who)
        still = plant(member.machine())
        if still is None:
            member.may_differ = False
            world.record.differing.discard(member.who)
            return
        tally = world.record.tally.faults
        tally[plant.__name__] = tally.get(plant.__name__, 0) + 1
        world.record.trace.add(member.who, f"is made to differ: {plant.__name__}")
        is_over = await self._until(lambda: member.is_halted or not still(), FOUND_WITHIN_S)
        if member.is_halted:
            world.record.trace.add(member.who, "is found to differ")
            await asyncio.sleep(draw.uniform(0.2, 2.0))  # clients go on asking it
        elif not is_over:
            what = f"{member.who} differs by {plant.__name__}, and nobody has noticed"
            world.record.violate("a member that differs is found", what)
        await self._replace(member)

    async def _replace(self, member: SimulatedMember) -> None:
        """What the operator does who reads the sentence."""
        member.kill(is_power_cut=False)
        member.replace_disk(SimulatedDisk(self._random.randrange(1 << 30)))
        self._world.boot(member)
        if not await self._until(self._is_calm, CAUGHT_UP_WITHIN_S):
            what = f"{member.who} has not caught up with an empty disk"
            self._world.record.violate("progress", what)

    @staticmethod
    async def _until(is_true: Callable[[], bool], within_s: float) -> bool:
        for _ in range(round(within_s / TURN_S)):
            if is_true():
                return True
            await asyncio.sleep(TURN_S)
        return is_true()
