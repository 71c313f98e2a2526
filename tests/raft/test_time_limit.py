"""One time limit of many callers, in simulated time."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.raft.time_limit import GRAIN_S, Limited, TimeLimit
from coordinator.waiting import AT_ONCE
from tests.raft.simulated_loop import run

LIMIT_S = 1.0


async def limited(limit: TimeLimit, seconds: float) -> float:
    """Sleep so long within the limit; return when it ended, negative if it was cut off."""
    loop = asyncio.get_running_loop()
    try:
        with limit():
            await asyncio.sleep(seconds)
    except TimeoutError:
        return -loop.time()
    return loop.time()


def test_each_is_cut_off_when_its_time_is_over_and_hardly_later() -> None:
    async def main() -> None:
        limit, loop = TimeLimit(LIMIT_S), asyncio.get_running_loop()
        tasks = []
        for number in range(200):
            began = loop.time()
            ends = number % 3 != 0
            task = asyncio.create_task(limited(limit, LIMIT_S / 2 if ends else 2 * LIMIT_S))
            tasks.append((began, ends, task))
            await asyncio.sleep(GRAIN_S / 7)
        for began, ends, task in tasks:
            at = await task
            if ends:
                assert at == pytest.approx(began + LIMIT_S / 2, abs=0.002)
            else:
                assert began + LIMIT_S - 0.002 <= -at <= began + LIMIT_S + GRAIN_S + 0.002

    run(main())


def test_many_are_cut_off_in_turns() -> None:
    """Two thousand reads without a quorum end at once: heartbeats do not wait for all of them."""

    async def main() -> None:
        limit, loop = TimeLimit(LIMIT_S), asyncio.get_running_loop()
        ended = [0]

        async def one() -> None:
            with pytest.raises(TimeoutError), limit():
                await asyncio.sleep(9)
            ended[-1] += 1

        def begin_pass() -> None:
            ended.append(0)
            if sum(ended) < 2_000:
                loop.call_soon(begin_pass)

        limited = [loop.create_task(one()) for _ in range(2_000)]
        loop.call_at(loop.time() + GRAIN_S + LIMIT_S, begin_pass)
        await asyncio.gather(*limited)
        assert max(ended) <= AT_ONCE, "others have their turn between so many"

    run(main())


def test_who_is_cancelled_by_others_is_cancelled() -> None:
    """Also in the moment in which its time is over."""

    async def main() -> None:
        limit = TimeLimit(LIMIT_S)
        task = asyncio.create_task(limited(limit, 9))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        scopes: list[Limited] = []

        async def both() -> None:
            scopes.append(limit())
            with scopes[0]:
                await asyncio.sleep(9)

        task = asyncio.create_task(both())
        await asyncio.sleep(0)
        scopes[0].cut()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    run(main())


def test_a_cancellation_of_before_is_not_taken_for_its_own() -> None:
    """A task that was cancelled once, and went on, is still told when its time is over."""

    async def main() -> None:
        limit = TimeLimit(LIMIT_S)

        async def stubborn() -> float:
            try:
                await asyncio.sleep(9)
            except asyncio.CancelledError:
                pass
            return await limited(limit, 9)

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        task.cancel()
        assert await task < 0

    run(main())


def test_nothing_is_left_behind_by_who_was_in_time() -> None:
    """A timer would wake an idle member."""

    async def main() -> None:
        limit, loop = TimeLimit(LIMIT_S), asyncio.get_running_loop()
        for _ in range(3):
            await asyncio.gather(*(limited(limit, 0.01) for _ in range(50)))
        assert [each for each in loop._scheduled if not each.cancelled()] == []  # type: ignore[attr-defined]
        with pytest.raises(KeyError), limit():
            raise KeyError("an error of what goes on inside")

    run(main())
