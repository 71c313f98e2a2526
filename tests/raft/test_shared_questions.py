"""A question that several share is never one that was asked before one of them came.

What was acknowledged before a reader came must be in its answer, however many share it, whatever
questions are under way, and in whichever order answers come. Each of the places where a member lets
callers share a question to others is tried with a truth that moves on all the time.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import msgpack  # type: ignore[import-untyped]
import pytest

from coordinator.errors import CoordinatorError, NoLeaderError, OutcomeUnknownError
from coordinator.raft.barrier import QuorumRounds
from coordinator.raft.consensus import Consensus
from coordinator.raft.engine import Role
from coordinator.raft.read_index import ReadIndex
from coordinator.service.base.replica import MachineReplica
from coordinator.service.sessions.heartbeats import _Rounds
from coordinator.state.machine import StateMachine
from tests.client.virtual_time import LoopClock
from tests.raft.simulated_loop import run
from tests.service.contexts import context_of

SEEDS = range(20)
CALLERS = 60


class Truth:
    """A number that grows: what is acknowledged. Questions about it take their time, and fail."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.value = 0
        self.asked = 0

    async def grow(self) -> None:
        while True:
            self.value += 1
            await asyncio.sleep(self.draw.uniform(0.0, 0.004))

    async def ask(self) -> int:
        """Look at the truth at some moment of the way, and answer later."""
        self.asked += 1
        await asyncio.sleep(self.draw.uniform(0.0, 0.02))
        seen = self.value
        await asyncio.sleep(self.draw.uniform(0.0, 0.05))
        if self.draw.random() < 0.2:
            raise self.draw.choice((NoLeaderError("no leader"), OutcomeUnknownError("no answer")))
        return seen


async def all_see_what_was_there(truth: Truth, question: Any) -> int:
    """Let callers come at any time; return how many were answered. Each answer is of after it."""
    answered = 0

    async def caller() -> None:
        nonlocal answered
        await asyncio.sleep(truth.draw.uniform(0.0, 0.5))
        before = truth.value
        try:
            found = await question()
        except CoordinatorError:
            return
        assert found >= before, "it was asked before this caller came"
        answered += 1

    growing = asyncio.create_task(truth.grow())
    try:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    finally:
        growing.cancel()
    return answered


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_at_a_follower_joins_no_question_that_was_sent_before_it(seed: int) -> None:
    """Nor a try for those who were refused because there was no leader."""
    truth = Truth(seed)

    async def ask(_member_id: str, _kind: str, _payload: bytes) -> bytes:
        packed: bytes = msgpack.packb(await truth.ask())
        return packed

    follower = SimpleNamespace(
        core=SimpleNamespace(role=Role.FOLLOWER, applied_index=1 << 40),
        leader_id="2",
        is_leader_ready=False,
    )
    reads = ReadIndex("1", timeout_ms=5_000, ask=ask, wake=lambda: None)

    answered = run(
        all_see_what_was_there(truth, lambda: reads.barrier(lambda: cast(Consensus, follower)))
    )

    assert answered == CALLERS, "it asks again until there is a leader"
    assert truth.asked < CALLERS, "they share"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_heartbeat_joins_no_round_that_began_before_it(seed: int) -> None:
    """Else a deposed leader would go on renewing the session."""
    truth = Truth(seed)

    async def scenario() -> int:
        async def confirm(session_ids: list[str]) -> Any:
            return dict.fromkeys(session_ids, await truth.ask())

        clock = LoopClock(asyncio.get_running_loop())
        rounds = _Rounds(confirm, context_of(clock, MachineReplica(StateMachine())), "rounds")

        async def beat() -> int:
            is_urgent = truth.draw.random() < 0.5
            return cast(int, (await rounds.ask(("s1",), is_urgent=is_urgent))["s1"])

        return await all_see_what_was_there(truth, beat)

    answered = run(scenario())

    assert answered > CALLERS // 4
    assert truth.asked < CALLERS, "they share"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_round_of_a_leader_confirms_nobody_who_came_after_it_began(seed: int) -> None:
    """A majority has said, after each asker came, that it follows; and the index is of then."""
    draw = random.Random(seed)
    others = ("2", "3", "4", "5")
    rounds = QuorumRounds(others)
    answers: list[tuple[int, str, int]] = []
    """When each answer was given, by whom, and to which round; some are still on their way."""
    counted: list[tuple[int, str]] = []
    waiting: list[tuple[int, int, asyncio.Future[int]]] = []
    """When each asker came, and what was committed then."""
    commit = 0

    async def scenario() -> int:
        nonlocal commit
        confirmed = 0
        for now in range(600):
            deed = draw.random()
            if deed < 0.25:
                commit += 1
            elif deed < 0.5:
                asked = asyncio.ensure_future(rounds.join().wait())
                waiting.append((now, commit, asked))
            elif deed < 0.65 and rounds.has_joined:
                rounds.begin(commit)
            elif deed < 0.8 and rounds.current:
                number = draw.randint(max(1, rounds.current - 3), rounds.current)
                answers.append((now, draw.choice(others), number))
            elif answers:
                given, member_id, number = answers.pop(draw.randrange(len(answers)))
                counted.append((given, member_id))
                rounds.on_reply(member_id, number)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for asker in [each for each in waiting if each[2].done()]:
                waiting.remove(asker)
                came, index, asked = asker
                assert asked.result() >= index, "what was acknowledged before is not in it"
                since = {member_id for given, member_id in counted if given > came}
                assert len(since) >= 2, "no majority has said since that it follows"
                confirmed += 1
        rounds.fail()
        await asyncio.gather(*(each[2] for each in waiting), return_exceptions=True)
        return confirmed

    assert run(scenario()) > 10
