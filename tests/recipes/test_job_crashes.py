"""Runs that crash, fail, or lose their lock: what the next attempt finds, by each guarantee."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import (
    LockLostError,
)
from coordinator.recipes import Jobs, Run
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.recipes.job_scenes import Work, each_minute, next_minute


@in_memory
async def test_a_run_that_crashed_is_taken_over_with_a_higher_token(world: MemoryCluster) -> None:
    """Its lock ends with its session; the next caller repeats it, and knows that it does."""
    network = world.network()
    async with world.client(network, session_timeout=4) as one, world.client() as other:
        work = Work()
        work.waits_s = 1000.0
        crashed = asyncio.create_task(each_minute(one).run(work))
        await asyncio.sleep(1)
        network.is_cut = True
        await asyncio.sleep(6)
        view = await Jobs(other).look("report")
        assert view is not None
        assert view.crashed is not None
        assert view.trouble.startswith("me did not come to the end of")
        assert view.late_ms > 0
        work.waits_s = 0.0

        reply = await each_minute(other).run(work)

        assert [each.attempt for each in work.runs] == [1, 2]
        assert work.runs[0].fencing_token < work.runs[1].fencing_token
        assert reply.runs[0].state == "done"
        with pytest.raises(LockLostError):
            await crashed
        network.is_cut = False


@in_memory
async def test_who_takes_over_sees_how_far_the_run_before_came(world: MemoryCluster) -> None:
    """The grant before, how it ended, and the note that its holder left."""
    network = world.network()
    seen: list[Any] = []

    async def half(run: Run[Any]) -> None:
        await run.grant.note(b"row 500")
        network.is_cut = True
        await asyncio.sleep(1000)

    async def rest(run: Run[Any]) -> None:
        await client.create("/rest", if_held=run.grant)
        seen.append(run.grant.previous)

    async with world.client(network, session_timeout=4) as one, world.client() as client:
        with pytest.raises(LockLostError):
            await each_minute(one).run(half)
        await asyncio.sleep(3)
        await each_minute(client).run(rest)
        network.is_cut = False

    assert (seen[0].note, seen[0].how) == (b"row 500", "expired")


@in_memory
async def test_at_most_once_a_crashed_run_is_lost_and_said_to_be(world: MemoryCluster) -> None:
    """It may have been done; nobody repeats it, and the next interval runs."""
    network = world.network()
    async with world.client(network, session_timeout=4) as one, world.client() as other:
        work = Work()
        work.waits_s = 1000.0
        careful = {"guarantee": "at_most_once"}
        crashed = asyncio.create_task(each_minute(one, **careful).run(work))
        await asyncio.sleep(1)
        network.is_cut = True
        await asyncio.sleep(6)
        work.waits_s = 0.0

        assert (await each_minute(other, **careful).run(work)).state == "done"
        await next_minute()
        assert (await each_minute(other, **careful).run(work)).state == "ran"

        assert work.minutes == [0, 1]
        view = await Jobs(other).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["done", "lost"]
        network.is_cut = False
        with pytest.raises(LockLostError):
            await crashed


@in_memory
async def test_a_job_that_is_now_at_most_once_does_not_repeat_what_crashed_before(
    world: MemoryCluster,
) -> None:
    """What counts is what it says when it would be repeated: the operator has just changed it."""
    async with world.client() as client:
        work = Work()
        work.waits_s = 100.0
        task = asyncio.create_task(each_minute(client).run(work))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait({task})

        assert (await each_minute(client, guarantee="at_most_once").run(work)).state == "done"

        assert work.minutes == [0]
        view = await Jobs(client).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["lost"]


@in_memory
async def test_a_run_that_fails_is_tried_again_so_often(world: MemoryCluster) -> None:
    """Who failed, and why, is there to be read; after three attempts the interval is over."""
    async with world.client() as client:
        work = Work()
        work.error = RuntimeError("no such table")
        for _ in range(3):
            with pytest.raises(RuntimeError):
                await each_minute(client).run(work)
        assert (await each_minute(client).run(work)).state == "done"
        view = await Jobs(client).look("report")
        assert view is not None
        assert view.trouble == "me: RuntimeError: no such table"
        assert view.ledger.failures == 3
        work.error = None
        await next_minute()

        await each_minute(client).run(work)

        assert [each.attempt for each in work.runs] == [1, 2, 3, 1]
        view = await Jobs(client).look("report")
        assert view is not None
        assert (view.ledger.failures, view.trouble) == (0, "")


@in_memory
async def test_who_lost_the_lock_unknowingly_records_nothing(world: MemoryCluster) -> None:
    """Its lock was taken by force, another client has done the work: the end of the first fails."""
    async with world.client() as one, world.client() as other:
        work = Work()

        async def overtaken(run: Run[Any]) -> str:
            await other.revoke("job:report", by="a test", reason="to see")
            await each_minute(other, label="other").run(work)
            return f"late, under token {run.fencing_token}"

        with pytest.raises(LockLostError):
            await each_minute(one).run(overtaken)

        view = await Jobs(one).look("report")
        assert view is not None
        assert view.last is not None
        assert (view.last.by, view.last.attempt, view.last.result) == ("other", 2, None)


@in_memory
async def test_at_most_once_a_failure_is_final(world: MemoryCluster) -> None:
    """It is not tried again in this interval."""
    async with world.client() as client:
        work = Work()
        work.error = RuntimeError("x")
        with pytest.raises(RuntimeError):
            await each_minute(client, guarantee="at_most_once").run(work)

        assert (await each_minute(client, guarantee="at_most_once").run(work)).state == "done"


@in_memory
async def test_attempts_that_all_crashed_end_as_lost(world: MemoryCluster) -> None:
    """A run that kills its process does not kill every process that comes."""
    async with world.client() as client:
        work = Work()
        work.waits_s = 100.0
        for _ in range(2):
            task = asyncio.create_task(each_minute(client, attempts_max=2).run(work))
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.wait({task})

        assert (await each_minute(client, attempts_max=2).run(work)).state == "done"

        view = await Jobs(client).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["lost"]
        assert view.trouble == "me was lost"
