"""What storms of locks share: the clients' tasks, what goes wrong around them, and the calm after.

A storm is one seed. Its steps are its own; here is what any storm does: six sessions, 300 steps,
lost messages, changes of leader, members that lag, clients that are cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from coordinator.errors import CoordinatorError, SessionError
from coordinator.model.grants import GrantReply
from coordinator.node.config import Config, SessionConfig
from coordinator.service.member import Member
from tests.amount import drawn
from tests.met import Met
from tests.service.fake_cluster import World, settle, soon
from tests.state.exercised import Exercised

CONFIG = Config(sessions=SessionConfig(timeout_ms_default=600_000))
"""Without heartbeats a session would not last; those that are to, last longer than a storm."""
SEEDS = range(drawn(20))


class Storm:
    """The clients of one run, and what goes wrong around them."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chosen = random.Random(seed)
        self.session_ids: list[str] = []
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.held: list[GrantReply] = []
        self.broken: list[BaseException] = []

    @property
    def member(self) -> Member:
        return self.chosen.choice(list(self.world.members.values()))

    async def pass_over(self, step: Callable[[], None]) -> None:
        """Open six sessions, and let 300 things happen."""
        for _ in range(6):
            opened = await soon(
                self.world.leader.open_session(None, "", None, self.world.deadline())
            )
            self.session_ids.append(opened.session_id)
        faults = [None] * 12 + ["unsent", "request", "reply"]
        self.world.fault = lambda _sender, _receiver, _kind: self.chosen.choice(faults)
        for _ in range(300):
            step()
            await settle()
            if self.chosen.random() < 0.2:
                await self.world.advance(100)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self.tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken.append(error)

    def cancel(self) -> None:
        self.chosen.choice(list(self.tasks)).cancel()

    def elect(self) -> None:
        self.world.elect(self.chosen.choice(["1", "2", "3", "1", "2", "3", None]))

    def lag(self) -> None:
        """Let a member stop applying, or catch up."""
        engine = self.world.engines[self.chosen.choice(["1", "2", "3"])]
        engine.is_applying = not engine.is_applying or engine.is_leader
        engine.catch_up()

    async def release(self, grant: GrantReply, member: Member) -> None:
        """Release, and try again later where it is not certain."""
        deadline_ms = self.world.deadline(5_000)
        try:
            await member.locks.release(grant.lock, grant.grant_id, None, deadline_ms)
        except SessionError:
            pass  # it had ended
        except (CoordinatorError, asyncio.CancelledError):
            self.held.append(grant)

    async def calm_down(self) -> None:
        """Let nothing go wrong any more, and cancel whoever is under way."""
        self.world.fault = lambda _sender, _receiver, _kind: None
        self.world.elect("1")
        for engine in self.world.engines.values():
            engine.is_applying = True
            engine.catch_up()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def release_all(self) -> None:
        for grant in list(self.held):
            await self.release(grant, self.world.leader)
        await self.world.advance(3_000)

    def check(self) -> None:
        """Nothing failed, and all members have come to the same."""
        assert self.broken == []
        digests = {each._replica.machine.digest() for each in self.world.members.values()}
        assert len(digests) == 1


def commands_met(exercised: Exercised) -> Met:
    """Return what the commands of a log came to, by command, outcome and kind of lock."""
    met = Met(exercised.facts)
    for (command, outcome, sort), count in exercised.cells.items():
        met[f"{command} {outcome}"] += count
        met[f"{command} {outcome} {sort}"] += count
    return met


class Passed:
    """What the storms met that have passed in this process, by seed."""

    def __init__(self, storm_of: Callable[[int], Awaitable[Met]]) -> None:
        self._storm_of = storm_of
        self._met: dict[int, Met] = {}

    async def one(self, seed: int) -> Met:
        if seed not in self._met:
            self._met[seed] = await self._storm_of(seed)
        return self._met[seed]

    async def all(self) -> Met:
        met = Met()
        for seed in SEEDS:
            met.update(await self.one(seed))
        return met
