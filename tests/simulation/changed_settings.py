"""Members that come back with other settings, lists or releases, and limits that operators change.

None of it may change what a log comes to: limits are part of the state, and whoever would decide
otherwise is refused. Drawn from a stream of its own, in worlds of their own (``SETTINGS_EVERY``).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from coordinator.errors import CoordinatorError
from coordinator.node.config import Config, MemberAddress
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import ANY_VERSION
from coordinator.state.rules import RULES
from tests.simulation.members import SimulatedMember

if TYPE_CHECKING:
    from tests.simulation.world import World

NAMES = ("change_settings", "change_limits", "change_release", "change_list")
GAP_S = (0.5, 3.0)
REFUSED_S = 3.0
"""How long a member that must not take part is given to try."""

Rules = tuple[tuple[str, str], ...]

# What a file may propose, and nobody may notice: the limits of the state hold.
_PROPOSED: dict[str, tuple[int, ...]] = {
    "data_bytes_max": (1, 40, 1_048_576),
    "path_bytes_max": (64, 1_024),
    "children_max": (1, 100_000),
    "znodes_max": (2, 20, 1_000_000),
    "state_bytes_max": (1, 20_000, 1 << 30),
    "operations_per_multi_max": (1, 1_000),
    "ephemerals_per_session_max": (1, 20_000),
    "recursive_delete_max": (1, 1_500),
    "request_window": (1, 4, 128),
    "clients_max": (1, 30, 1_000),
    "remembered_bytes_max": (1, 1 << 28),
    "released_grants_max": (1, 4_096),
    "grant_history_max": (1, 10_000),
    "remembered_percent_max": (1, 100),
    "grant_history_bytes_max": (1, 1 << 24),
}
# What an operator sets: clients go on whatever it is.
_SET: dict[str, tuple[int, ...]] = {
    "request_window": (4, 16, 128),
    "clients_max": (30, 100, 1_000),
    "path_bytes_max": (200, 1_024),
    "recursive_delete_max": (100, 1_500),
    "grant_history_bytes_max": (1 << 20, 1 << 24),
}


class ChangedSettings:
    """What is changed in one world, and by whom."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random.Random(f"{world.seed}/changed settings")
        self._tasks: list[asyncio.Task[None]] = []
        self._configs: dict[str, Config] = {}
        self._rules: dict[str, Rules] = {}
        only = world.settings.only_faults
        table: list[tuple[Callable[[], Coroutine[Any, Any, None]], int]] = [
            (self._change_settings, 4),
            (self._change_limits, 4),
            (self._change_release, 1),
            (self._change_list, 1),
        ]
        self._table = [each for each in table if not only or _name(each[0]) in only]

    def config_of(self, member_id: str, config: Config) -> Config:
        """Return what this member's file says now, instead of ``config``."""
        return self._configs.get(member_id, config)

    def rules_of(self, member_id: str) -> Rules:
        """Return the rules of the release that this member runs."""
        return self._rules.get(member_id, RULES)

    def is_refused(self, member_id: str) -> bool:
        """Whether this member must not take part, and may stop: a release or list of its own."""
        return member_id in self._rules or self._has_another_list(member_id)

    async def run(self) -> None:
        """Go on until cancelled."""
        faults, weights = zip(*self._table, strict=True) if self._table else ((), ())
        while faults:
            await asyncio.sleep(self._random.uniform(*GAP_S))
            fault = self._random.choices(faults, weights)[0]
            name = _name(fault)
            tally = self._world.record.tally.faults
            tally[name] = tally.get(name, 0) + 1
            self._world.record.trace.add("fault", name)
            self._tasks.append(asyncio.create_task(fault(), name=name))

    async def heal(self) -> None:
        """Give everybody the right release and list again; other limits in files may stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for member in self._world.members:
            if self.is_refused(member.member_id):
                member.kill(is_power_cut=False)
                self._set_right(member)

    # --- what may be changed and changes nothing

    async def _change_settings(self) -> None:
        """Some or all come back with other limits in their files; so may a new release's be."""
        world, draw = self._world, self._random
        changed = [each for each in world.members if draw.random() < draw.choice((0.3, 1.0))]
        for member in changed:
            self._configs[member.member_id] = self._with_other_limits(member)
            member.kill(is_power_cut=draw.random() < 0.5)
        await asyncio.sleep(draw.choice((0.05, 0.5, 2.0)))
        for member in changed:
            world.boot(member)

    def _with_other_limits(self, member: SimulatedMember) -> Config:
        draw, config = self._random, self._world.config_of(member.member_id)
        chosen = {name: draw.choice(values) for name, values in _PROPOSED.items()}
        chosen["sessions_max"] = draw.choice((1, 50_000))
        return replace(config, first_limits=replace(config.first_limits, **chosen))

    async def _change_limits(self) -> None:
        """An operator sets a limit at some member, maybe while another one is away."""
        draw = self._random
        started = [member for member in self._world.members if member.is_started]
        if not started:
            return
        member = draw.choice(started)
        name = draw.choice(list(_SET))
        value = draw.choice(_SET[name])
        member.owner.spawn(self._set(member, name, value))

    async def _set(self, member: SimulatedMember, name: str, value: int) -> None:
        asked = RequestContext(None, member.clock.monotonic_ms() + 5_000)
        try:
            await member.service.limits.change(((name, value),), "ops", ANY_VERSION, asked)
            self._world.record.trace.add(member.who, f"sets {name} to {value}")
        except CoordinatorError as error:
            self._world.record.trace.add(member.who, f"does not set {name}: {type(error).__name__}")

    # --- what may not take part

    async def _change_release(self) -> None:
        """A member comes back as a release in which one constant differs: it must not decide."""
        draw = self._random
        member = draw.choice(self._world.members)
        name, _ = draw.choice(RULES)
        other = tuple([(each, text + "?" if each == name else text) for each, text in RULES])
        await self._come_back(member, lambda: self._rules.update({member.member_id: other}))

    async def _change_list(self) -> None:
        """A member comes back with one more member in its list: a quorum is another number."""
        member = self._random.choice(self._world.members)
        config = self._world.config_of(member.member_id)
        more = MemberAddress(
            "x", client_url="http://member-x:1", member_host="127.0.0.1", member_port=99
        )
        longer = replace(config.cluster, members=(*config.cluster.members, more))
        other = replace(config, cluster=longer)
        await self._come_back(member, lambda: self._configs.update({member.member_id: other}))

    async def _come_back(self, member: SimulatedMember, change: Callable[[], None]) -> None:
        """Restart ``member`` after ``change``; look that it gets nowhere, and set it right."""
        world, draw = self._world, self._random
        if self.is_refused(member.member_id):
            return
        member.kill(is_power_cut=draw.random() < 0.5)
        change()
        world.boot(member)
        life = member.life
        try:
            await asyncio.sleep(REFUSED_S)
        finally:
            if member.life == life and member.is_up:
                if member.member_id in self._rules and member.applied_index > 1:
                    what = f"{member.who} has applied {member.applied_index} entries of another"
                    world.record.violate("one release", what)
                member.kill(is_power_cut=False)
            if not member.is_up:
                self._set_right(member)
        world.boot(member)

    def _has_another_list(self, member_id: str) -> bool:
        config = self._configs.get(member_id)
        return config is not None and len(config.cluster.members) > len(self._world.members)

    def _set_right(self, member: SimulatedMember) -> None:
        self._rules.pop(member.member_id, None)
        if self._has_another_list(member.member_id):
            self._configs.pop(member.member_id)


def with_few_grants(seed: int, config: Config) -> Config:
    """Return ``config`` with a bound, or none to speak of, on what one command grants."""
    count = random.Random(f"{seed}/grants at once").choice((1, 2, 500))
    return replace(config, first_limits=replace(config.first_limits, grants_per_command_max=count))


def _name(fault: Callable[..., Any]) -> str:
    return fault.__name__.strip("_")
