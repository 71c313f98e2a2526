"""Locks in a storm: random clients, lost messages, changes of leader, members that lag.

Each run is one seed. What must hold whatever happens:

1. a grant that is answered was the first in the queue at its zxid, so tokens grow in that order;
2. whoever still stands when a grant is answered is not overtaken by it;
3. when all attempts have ended, and those that ended unknown were abandoned, nothing is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import CoordinatorError, OutcomeUnknownError, RequestForgottenError
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.model.limits import NEW_CLUSTER
from coordinator.model.queue_order import holder
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.state.codec import decode_command
from coordinator.state.commands import RequestId
from coordinator.state.machine import StateMachine
from tests.amount import least
from tests.met import Met
from tests.service.fake_cluster import World, cluster, soon
from tests.service.locks.storm import CONFIG, SEEDS, Passed, Storm, commands_met
from tests.state.exercised import Exercised

LOCK = "storm"
DIRECTORY = f"/locks/{LOCK}"


class LockStorm:
    """The clients of one lock, and what they were told."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.storm = Storm(world, seed)
        self.chosen = self.storm.chosen
        self.requests: list[tuple[str, RequestId]] = []
        self.ended_unknown: list[RequestId] = []
        self.granted: dict[int, int] = {}
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

    async def acquire(self, session_id: str, request: RequestId, member: Member) -> None:
        wait_ms = self.chosen.choice([0, 200, 2_000, 20_000])
        try:
            grant = await member.locks.acquire(
                LOCK,
                session_id=session_id,
                request=request,
                wanted=AcquireRequest(),
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
        self.storm.held.append(grant)

    def step(self) -> None:
        """Let one thing happen."""
        chosen, storm = self.chosen, self.storm
        action = chosen.choices(
            ["acquire", "retry", "release", "cancel", "elect", "lag", "close", "abandon"],
            weights=[30, 10, 30, 8, 4, 8, 2, 16],
        )[0]
        if action == "acquire":
            self.number += 1
            self.begin(chosen.choice(storm.session_ids), RequestId(f"c{self.number}", 1))
        elif action == "retry" and self.requests:
            self.begin(*chosen.choice(self.requests[-10:]))
        elif action == "release" and storm.held:
            grant = storm.held.pop(chosen.randrange(len(storm.held)))
            storm.run(self.release(grant, storm.member))
        elif action == "cancel" and storm.tasks:
            storm.cancel()
            self.met["cancelled"] += 1
        elif action == "elect":
            self.met["elected while somebody waits"] += bool(storm.tasks)
            storm.elect()
        elif action == "lag":
            storm.lag()
        elif action == "abandon" and self.ended_unknown:
            storm.run(self.abandon(chosen.choice(self.ended_unknown), storm.member))
        elif action == "close" and len(storm.session_ids) > 2:
            storm.run(self.close(storm.session_ids.pop(), storm.member))

    def begin(self, session_id: str, request: RequestId) -> None:
        self.requests.append((session_id, request))
        self.storm.run(self.acquire(session_id, request, self.storm.member))

    async def release(self, grant: GrantReply, member: Member) -> None:
        lags = not self.world.engines[member.labels()[0]].is_applying
        self.met["released where it lags"] += lags
        await self.storm.release(grant, member)

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
            self.storm.session_ids.append(session_id)

    async def calm_down(self) -> None:
        """End everything, and do for the unknown what a client would: abandon it."""
        world = self.world
        await self.storm.calm_down()
        for request in dict.fromkeys(self.ended_unknown):
            try:
                await soon(
                    world.leader.locks.abandon(
                        LOCK, request.client_id, request.number, 0, world.deadline()
                    )
                )
            except RequestForgottenError:
                raise AssertionError("the window is long enough") from None
        await self.storm.release_all()


async def storm_of(seed: int) -> Met:
    """Let one storm of 300 steps pass; return what it met."""
    async with cluster(config=CONFIG) as world:
        storm = LockStorm(world, seed)
        await storm.storm.pass_over(storm.step)

        await storm.calm_down()

        storm.storm.check()
        view = (
            await soon(world.leader.lock_views.query(LOCK, LINEARIZABLE, world.deadline()))
        ).value
        assert (view.holder, view.queue) == (None, ())
        assert len(storm.granted) >= 3
        assert (await world.leader.get("/", STALE, world.deadline())).zxid == view.zxid
    storm.met.update(commands_met(storm.exercised))
    storm.met["ended unknown"] = len(storm.ended_unknown)
    storm.met["answered"] = len(storm.granted)
    return storm.met


PASSED = Passed(storm_of)


@pytest.mark.histories
@pytest.mark.parametrize("seed", SEEDS)
async def test_a_storm_leaves_one_holder_at_a_time_and_nothing_behind(seed: int) -> None:
    """Twenty seeds of 300 steps; the name of a failed run is its seed."""
    await PASSED.one(seed)


@pytest.mark.histories
async def test_the_storms_held_what_they_are_about() -> None:
    """All of them together: what each judgement is asked of was there often enough."""
    met = await PASSED.all()

    met.check(**least(
        answered=200, granted_again=10, compared=150, compared_before_others=100, cancelled=200,
        ended_unknown=300, elected_while_somebody_waits=80, released_where_it_lags=40,
        Enter_repeat=300, Enter_not_entered=150, Release_hands_over=150, Release_waiter=200,
        Abandon_holder=35, Abandon_waiter=80, Abandon_hands_over=25, CloseSession_holder=6,
        CloseSession_hands_over=5,
    ))  # fmt: skip
