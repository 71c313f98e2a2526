"""Locks in a storm: random clients, lost messages, changes of leader, members that lag.

Each run is one seed. What must hold whatever happens:

1. a grant that is answered was the first in the queue at its zxid, so tokens grow in that order;
2. whoever still stands when a grant is answered is not overtaken by it;
3. when all attempts have ended, and those that ended unknown were abandoned, nothing is left.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from coordinator.config import Config, SessionConfig
from coordinator.errors import (
    CoordinatorError,
    OutcomeUnknownError,
    RequestForgottenError,
    SessionError,
)
from coordinator.model.contention import HolderInfo
from coordinator.model.grants import GrantReply
from coordinator.model.limits import NEW_CLUSTER
from coordinator.model.queue_order import holder
from coordinator.service.member import Member
from coordinator.service.reads import LINEARIZABLE, STALE
from coordinator.state.codec import decode_command
from coordinator.state.commands import RequestId
from coordinator.state.machine import StateMachine
from tests.met import Met
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.state.exercised import Exercised

LOCK = "storm"
SEEDS = range(20)
DIRECTORY = f"/locks/{LOCK}"
CONFIG = Config(sessions=SessionConfig(timeout_ms_default=600_000))


class Storm:
    """The clients of one run, and what they were told."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chosen = random.Random(seed)
        self.session_ids: list[str] = []
        self.tasks: dict[asyncio.Task[None], RequestId] = {}
        self.held: list[GrantReply] = []
        self.requests: list[tuple[str, RequestId]] = []
        self.ended_unknown: list[RequestId] = []
        self.granted: dict[int, int] = {}
        self.broken: list[BaseException] = []
        self.number = 0
        self.exercised = Exercised()
        """What the commands of the log came to."""
        self.met = Met()
        self._follow()

    def _follow(self) -> None:
        """Count what each entry of the log comes to, on a machine of its own."""
        machine = StateMachine(NEW_CLUSTER)
        commit, exercised = self.world.commit, self.exercised

        def follow(command: bytes, answer: Any = None) -> None:
            commit(command, answer)
            exercised.apply(machine, decode_command(command), self.world.term)

        self.world.commit = follow  # type: ignore[method-assign]

    @property
    def member(self) -> Member:
        return self.chosen.choice(list(self.world.members.values()))

    async def acquire(self, session_id: str, request: RequestId, member: Member) -> None:
        wait_ms = self.chosen.choice([0, 200, 2_000, 20_000])
        try:
            grant = await member.locks.acquire(
                LOCK,
                session_id=session_id,
                request=request,
                holder=HolderInfo(),
                wait_deadline_ms=self.world.deadline(wait_ms),
                is_try=wait_ms == 0,
            )
        except OutcomeUnknownError:
            self.ended_unknown.append(request)
        except CoordinatorError:
            pass  # certainly nothing is left: checked at the end
        except asyncio.CancelledError:
            self.ended_unknown.append(request)
            raise
        else:
            self.note(grant)

    def note(self, grant: GrantReply) -> None:
        names = self.world.members["1"]._replica.machine.children(DIRECTORY) or []
        mine = grant.path.rpartition("/")[2]
        if mine in names and self.world.engines["1"].is_applying:
            assert holder(names) == mine, "a grant overtook a contender that stands"
            self.met["compared"] += 1
            self.met["compared before others"] += len(names) > 1
        if grant.fencing_token not in self.granted:
            later = [token for token in self.granted if token > grant.fencing_token]
            assert not later, "tokens grow in the order of the grants"
            self.granted[grant.fencing_token] = grant.zxid
        else:
            self.met["granted again"] += 1
        self.held.append(grant)

    def step(self) -> None:
        """Let one thing happen."""
        chosen, world = self.chosen, self.world
        action = chosen.choices(
            ["acquire", "retry", "release", "cancel", "elect", "lag", "close", "abandon"],
            weights=[30, 10, 30, 8, 4, 8, 2, 16],
        )[0]
        if action == "acquire":
            self.number += 1
            self.begin(chosen.choice(self.session_ids), RequestId(f"c{self.number}", 1))
        elif action == "retry" and self.requests:
            self.begin(*chosen.choice(self.requests[-10:]))
        elif action == "release" and self.held:
            grant = self.held.pop(chosen.randrange(len(self.held)))
            self.run(self.release(grant, self.member), RequestId("release", 1))
        elif action == "cancel" and self.tasks:
            chosen.choice(list(self.tasks)).cancel()
            self.met["cancelled"] += 1
        elif action == "elect":
            self.met["elected while somebody waits"] += bool(self.tasks)
            world.elect(chosen.choice(["1", "2", "3", "1", "2", "3", None]))
        elif action == "lag":
            engine = world.engines[chosen.choice(["1", "2", "3"])]
            engine.is_applying = not engine.is_applying or engine.is_leader
            engine.catch_up()
        elif action == "abandon" and self.ended_unknown:
            request = chosen.choice(self.ended_unknown)
            self.run(self.abandon(request, self.member), RequestId("abandon", 1))
        elif action == "close" and len(self.session_ids) > 2:
            session_id = self.session_ids.pop()
            self.run(self.close(session_id, self.member), RequestId("close", 1))

    def begin(self, session_id: str, request: RequestId) -> None:
        self.requests.append((session_id, request))
        self.run(self.acquire(session_id, request, self.member), request)

    def run(self, work: Any, request: RequestId) -> None:
        task = asyncio.create_task(work)
        self.tasks[task] = request
        task.add_done_callback(self.ended)

    def ended(self, task: asyncio.Task[None]) -> None:
        del self.tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.broken.append(error)

    async def release(self, grant: GrantReply, member: Member) -> None:
        lags = not self.world.engines[member.labels()[0]].is_applying
        self.met["released where it lags"] += lags
        try:
            await member.locks.release(LOCK, grant.grant_id, None, self.world.deadline(5_000))
        except SessionError:
            pass  # it had ended
        except (CoordinatorError, asyncio.CancelledError):
            self.held.append(grant)

    async def abandon(self, request: RequestId, member: Member) -> None:
        """Do what a client does of which the outcome is unknown; it is done again in the end."""
        try:
            await member.locks.abandon(
                LOCK, request.client_id, request.number, 0, self.world.deadline(5_000)
            )
        except (CoordinatorError, asyncio.CancelledError):
            pass

    async def close(self, session_id: str, member: Member) -> None:
        try:
            await member.close_session(session_id, None, self.world.deadline(5_000))
        except (CoordinatorError, asyncio.CancelledError):
            self.session_ids.append(session_id)

    async def calm_down(self) -> None:
        """End everything, and do for the unknown what a client would: abandon it."""
        world = self.world
        world.fault = lambda _sender, _receiver, _kind: None
        world.elect("1")
        for engine in world.engines.values():
            engine.is_applying = True
            engine.catch_up()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for request in dict.fromkeys(self.ended_unknown):
            try:
                await soon(
                    world.leader.locks.abandon(
                        LOCK, request.client_id, request.number, 0, world.deadline()
                    )
                )
            except RequestForgottenError:
                raise AssertionError("the window is long enough") from None
        for grant in list(self.held):
            await self.release(grant, world.leader)
        await world.advance(1_000)


async def storm_of(seed: int) -> Met:
    """Let one storm of 300 steps pass; return what it met."""
    async with cluster(config=CONFIG) as world:
        storm = Storm(world, seed)
        for _ in range(6):
            opened = await soon(world.leader.open_session(None, "", None, world.deadline()))
            storm.session_ids.append(opened.session_id)
        faults = [None] * 12 + ["unsent", "request", "reply"]
        world.fault = lambda _sender, _receiver, _kind: storm.chosen.choice(faults)
        for _ in range(300):
            storm.step()
            await settle()
            if storm.chosen.random() < 0.2:
                await world.advance(100)

        await storm.calm_down()

        assert storm.broken == []
        view = (
            await soon(world.leader.lock_views.query(LOCK, LINEARIZABLE, world.deadline()))
        ).value
        assert (view.holder, view.queue) == (None, ())
        digests = {each._replica.machine.digest() for each in world.members.values()}
        assert len(digests) == 1
        assert len(storm.granted) >= 3
        assert (await world.leader.get("/", STALE, world.deadline())).zxid == view.zxid
    storm.met.update(storm.exercised.facts)
    for (command, outcome, _), count in storm.exercised.cells.items():
        storm.met[f"{command} {outcome}"] += count
    storm.met["ended unknown"] = len(storm.ended_unknown)
    storm.met["answered"] = len(storm.granted)
    return storm.met


PASSED: dict[int, Met] = {}
"""What the storms met that have passed in this process."""


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_storm_leaves_one_holder_at_a_time_and_nothing_behind(seed: int) -> None:
    """Twenty seeds of 300 steps; the name of a failed run is its seed."""
    PASSED[seed] = await storm_of(seed)


async def test_the_storms_held_what_they_are_about() -> None:
    """All of them together: what each judgement is asked of was there often enough."""
    met = Met()
    for seed in SEEDS:
        met.update(PASSED.get(seed) or await storm_of(seed))

    met.check(
        answered=200, granted_again=10, compared=150, compared_before_others=100, cancelled=200,
        ended_unknown=300, elected_while_somebody_waits=80, released_where_it_lags=40,
        Enter_repeat=300, Enter_not_entered=150, Release_hands_over=150, Release_waiter=200,
        Abandon_holder=35, Abandon_waiter=80, Abandon_hands_over=25, CloseSession_holder=6,
        CloseSession_hands_over=5,
    )  # fmt: skip
