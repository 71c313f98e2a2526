"""Cancelled at any step of its life, an attempt leaves nothing: no contender, grant or session."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.client.calling.transport import Request
from coordinator.errors import LeaderChangedError
from coordinator.recipes import Election, Lock
from tests.client.memory_cluster import MemoryCluster
from tests.recipes.cancelling import (
    APART,
    ATTEMPTS,
    NEAR_AND_FAR,
    Attempt,
    a_second_after_the_cancellation,
    begin_to_count,
    cancelled_at,
    met_now,
    run_counting,
    standing,
)


def each(others: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """Try each attempt: the first at once, those with a way of their own in ``make check``;
    ``others`` share the code of one of them, and are marked so."""
    marks = dict.fromkeys(APART, pytest.mark.check) | {FIRST: ()}
    return pytest.mark.parametrize(
        "attempt",
        [
            pytest.param(attempt, id=name, marks=marks.get(name, others))
            for name, attempt in ATTEMPTS.items()
        ],
    )


FIRST = "Lock"
each_attempt, each_way = each(pytest.mark.check), each(pytest.mark.slow)
STEPS_MAX = 2_000


async def enter_and_leave(attempt: Attempt, client: AsyncClient) -> None:
    async with attempt(client):
        pass


@each_way
@pytest.mark.parametrize(
    "is_cold",
    [
        pytest.param(False, id="warm"),
        pytest.param(True, id="cold", marks=pytest.mark.check),  # as many steps more
    ],
)
def test_cancelled_at_any_step_it_leaves_nothing(attempt: Attempt, is_cold: bool) -> None:
    """From the first step of acquire to the last of release, also while the session is opened.

    A second later nobody stands in any queue; and once the client is closed, no session of it is
    left.
    """

    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as observer:
            for step in itertools.count(1):
                assert step < STEPS_MAX, "it never ends"
                async with world.client() as client:
                    if not is_cold:
                        await client.session()
                    task = await cancelled_at(enter_and_leave(attempt, client), step)
                    await a_second_after_the_cancellation()
                    assert await standing(observer) == {}, step
                assert await observer.sessions() == (), step
                if not task.cancelled():
                    assert task.exception() is None
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(cancelled=37, cancelled_as_it_stands_nowhere=10, cancelled_as_it_holds=10)


@pytest.mark.parametrize(
    ("attempt", "stride"),
    [
        pytest.param(ATTEMPTS[FIRST], 7, id="each seventh step"),
        *(
            pytest.param(attempt, 1, id=name, marks=pytest.mark.check)
            for name, attempt in ATTEMPTS.items()
        ),
    ],
)
def test_cancelled_at_any_step_of_waiting_it_leaves_nothing(attempt: Attempt, stride: int) -> None:
    """It enters the queue, waits, is woken, holds, gives back: cancelled at each step of that."""

    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as holder, world.client() as client:
            await client.session()
            for step in itertools.count(1, stride):
                assert step < STEPS_MAX, "it never ends"
                held = [Lock(holder, "a"), Election(holder, "a")]
                for each in held:
                    await (each.acquire() if isinstance(each, Lock) else each.campaign())
                before = await standing(holder)
                giving_back = asyncio.create_task(_give_back_later(held))

                task = await cancelled_at(enter_and_leave(attempt, client), step)

                giving_back.cancel()
                await asyncio.wait({giving_back})
                await a_second_after_the_cancellation()
                left = await standing(holder)
                assert left in (before, {}), step
                for each in held:
                    await (each.release() if isinstance(each, Lock) else each.resign())
                if not task.cancelled():
                    assert task.exception() is None
                    assert left == {}
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(
        cancelled_as_it_stands_nowhere=10 // stride,
        cancelled_as_it_waits=8 // stride,
        cancelled_as_it_holds=15 // stride,
    )


async def _give_back_later(held: list[Lock[AsyncClient] | Election[AsyncClient]]) -> None:
    await asyncio.sleep(0.05)  # the other one waits by then: virtual time passes when all wait
    for each in held:
        giving = each.release() if isinstance(each, Lock) else each.resign()
        await asyncio.shield(asyncio.ensure_future(giving))


@each_way
def test_cancelled_twice_at_any_two_steps_it_leaves_nothing(attempt: Attempt) -> None:
    """Who does not wait for the clean-up does not stop it."""

    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as observer, world.client() as client:
            await client.session()
            steps_of_one = await _steps_of(attempt, client)
            for first in range(1, steps_of_one + 1, 2):
                for later in (1, 2, 3, 5, 8, 13, 21):
                    await cancelled_at(enter_and_leave(attempt, client), first, first + later)
                    await a_second_after_the_cancellation()
                    assert await standing(observer) == {}, (first, later)

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(cancelled_as_it_stands_nowhere=50, cancelled_as_it_holds=50, cancelled_again=15)


async def _steps_of(attempt: Attempt, client: AsyncClient) -> int:
    for step in itertools.count(1):
        task = await cancelled_at(enter_and_leave(attempt, client), step)
        await a_second_after_the_cancellation()
        if not task.cancelled():
            return step
    raise AssertionError("counted to the end of the numbers")


@each_way
def test_cancelled_at_any_step_while_replies_are_lost_it_leaves_nothing(attempt: Attempt) -> None:
    """The answer to the deed under way does not come; the retry, or its withdrawal, does."""

    async def scenario(world: MemoryCluster) -> None:
        network = world.network()
        async with world.client() as observer, world.client(network) as client:
            await client.session()
            for step in itertools.count(1):
                assert step < STEPS_MAX, "it never ends"
                losing = iter([True, False, True, True] + [False] * 1_000)

                def loses(request: Request, losing: Iterator[bool] = losing) -> bool:
                    is_asked = request.method != "GET" and "heartbeat" not in request.target
                    is_lost = is_asked and next(losing)
                    met_now()["reply lost"] += is_lost
                    return is_lost

                network.loses_reply_of = loses
                task = await cancelled_at(enter_and_leave(attempt, client), step)
                network.loses_reply_of = lambda request: False
                await a_second_after_the_cancellation()
                assert await standing(observer) == {}, step
                if not task.cancelled():
                    assert task.exception() is None
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(cancelled_as_it_stands_nowhere=20, cancelled_as_it_holds=20, reply_lost=100)


@each_way
def test_cancelled_at_any_step_while_the_leader_changes_it_leaves_nothing(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proposals are committed and their outcome is not known: asked again, it is the first one."""

    async def scenario(world: MemoryCluster) -> None:
        propose = world.engine.propose
        changes = itertools.repeat(False)

        async def propose_and_forget(command: bytes, **how: Any) -> object:
            applied = await propose(command, **how)
            if next(changes):
                met_now()["outcome lost"] += 1
                raise LeaderChangedError("the leader changed while the proposal was under way")
            return applied

        monkeypatch.setattr(world.engine, "propose", propose_and_forget)
        async with world.client() as observer, world.client() as client:
            await client.session()
            for step in itertools.count(1):
                assert step < STEPS_MAX, "it never ends"
                changes = itertools.chain([True, False, True], itertools.repeat(False))
                task = await cancelled_at(enter_and_leave(attempt, client), step)
                changes = itertools.repeat(False)
                await a_second_after_the_cancellation()
                assert await standing(observer) == {}, step
                if not task.cancelled():
                    assert task.exception() is None
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(cancelled_as_it_stands_nowhere=10, cancelled_as_it_holds=10, outcome_lost=50)


@each_attempt
def test_a_release_cancelled_at_any_step_releases(attempt: Attempt) -> None:
    """Leaving the body is one of its steps: whoever cancels there has released all the same."""

    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as observer, world.client() as client:

            async def held_at_first() -> None:
                async with attempt(client):
                    begin_to_count()

            for step in itertools.count(1):
                assert step < STEPS_MAX, "it never ends"
                task = await cancelled_at(held_at_first(), step, counts_at_once=False)
                await a_second_after_the_cancellation()
                assert await standing(observer) == {}, step
                if not task.cancelled():
                    assert task.exception() is None
                    return

    met = run_counting(scenario, NEAR_AND_FAR)

    met.check(cancelled_as_it_stands_nowhere=5, cancelled_as_it_holds=2)
