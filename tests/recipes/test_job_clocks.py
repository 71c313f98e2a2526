"""Whose time it is for a job: clocks of callers and leaders that go back, ahead, or jump."""

from __future__ import annotations

import asyncio
import json

import pytest

from coordinator.errors import (
    UnavailableError,
)
from coordinator.recipes import JobReply, Jobs
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.virtual_time import LoopClock
from tests.recipes.job_scenes import MINUTE_MS, Work, each_minute, next_minute, set_leader


class Stepped(LoopClock):
    """A clock whose wall time is set by the test."""

    step_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.step_ms


class Machine(Stepped):
    """The clock that all processes of one boot read."""

    def boot_id(self) -> str:
        return "boot-7"


@in_memory
async def test_the_clock_of_the_caller_decides_nothing(world: MemoryCluster) -> None:
    """Two callers a day apart agree about the minute."""
    loop = asyncio.get_running_loop()
    early, late = Stepped(loop), Stepped(loop)
    early.step_ms, late.step_ms = -20 * 3_600_000, 20 * 3_600_000
    async with world.client(clock=early) as one, world.client(clock=late) as other:
        work = Work()

        await each_minute(one).run(work)
        assert (await each_minute(other).run(work)).state == "done"
        await next_minute()
        await each_minute(other).run(work)
        assert (await each_minute(one).run(work)).state == "done"

        assert work.minutes == [0, 1]


@in_memory
async def test_a_leader_that_goes_back_runs_nothing_twice(world: MemoryCluster) -> None:
    """Time stands still for the job until the leader is there again; a jump is noticed."""
    async with world.client(clock=LoopClock(asyncio.get_running_loop())) as client:
        work, job = Work(), each_minute(client)
        for _ in range(3):
            await job.run(work)
            await next_minute()
        set_leader(world, -2 * MINUTE_MS)

        reply = await job.run(work)
        view = await Jobs(client).look("report")

        assert (reply.state, work.minutes) == ("done", [0, 1, 2])
        assert abs(reply.jump_ms + 2 * MINUTE_MS) < 2_000
        assert view is not None
        assert 0 < view.behind_ms <= 2 * MINUTE_MS
        await asyncio.sleep(2 * 60)
        await job.run(work)
        assert work.minutes == [0, 1, 2, 3]


@in_memory
async def test_a_leader_that_goes_back_keeps_nobody_from_trying_again(world: MemoryCluster) -> None:
    """The interval that failed is still the one at hand: the job's time has not gone back."""
    async with world.client(clock=LoopClock(asyncio.get_running_loop())) as client:
        work, job = Work(), each_minute(client)
        work.error = RuntimeError("x")
        with pytest.raises(RuntimeError):
            await job.run(work)
        set_leader(world, -2 * MINUTE_MS)
        work.error = None

        reply = await job.run(work)

        assert (reply.state, work.minutes) == ("ran", [0, 0])
        assert reply.runs[0].started_ms >= reply.runs[0].start_ms


@in_memory
async def test_a_leader_that_goes_forward_is_doubted_by_who_has_another_clock(
    world: MemoryCluster,
) -> None:
    """Nothing begins early, and nothing stops: what has passed since is measured here."""
    async with world.client(clock=LoopClock(asyncio.get_running_loop())) as client:
        work, job = Work(), each_minute(client)
        await job.run(work)
        set_leader(world, MINUTE_MS)
        reply = await job.run(work)
        assert (reply.state, work.minutes) == ("done", [0])
        assert abs(reply.jump_ms - MINUTE_MS) < 2_000
        await next_minute()
        await job.run(work)
        view = await Jobs(client).look("report")
        assert work.minutes == [0, 1]
        set_leader(world, 0)
        await next_minute()
        await job.run(work)

        assert work.minutes == [0, 1, 2]
        assert view is not None
        assert view.runs[0].started_ms < view.runs[0].start_ms + MINUTE_MS


@in_memory
async def test_a_leader_that_goes_forward_with_its_clients_is_believed(
    world: MemoryCluster,
) -> None:
    """The jump is written into the ledger; what ran early does not run again."""
    async with world.client() as client:  # its clock is set as that of the leader
        work, job = Work(), each_minute(client)
        await job.run(work)
        set_leader(world, MINUTE_MS)
        reply = await job.run(work)
        set_leader(world, 0)
        await job.run(work)
        await next_minute()
        await job.run(work)
        view = await Jobs(client).look("report")
        await next_minute()
        await job.run(work)

        assert work.minutes == [0, 1, 2]
        assert abs(reply.jump_ms - MINUTE_MS) < 2_000
        assert view is not None
        assert (view.ledger.jumps, view.ledger.jump_by_ms) == (1, reply.jump_ms)


@in_memory
async def test_a_process_that_asks_for_the_first_time_notices_a_jump(world: MemoryCluster) -> None:
    """By what an earlier process of its machine has left; and so does the one after it."""
    clock, work = Machine(asyncio.get_running_loop()), Work()

    async def cron() -> JobReply:
        async with world.client(clock=clock) as client:
            return await each_minute(client).run(work)

    await cron()
    set_leader(world, MINUTE_MS)
    assert abs((await cron()).jump_ms - MINUTE_MS) < 2_000
    assert (await cron()).state == "done"
    assert work.minutes == [0]
    await next_minute()
    await cron()
    set_leader(world, 0)
    assert (await cron()).state == "done"
    await next_minute()
    await cron()

    assert work.minutes == [0, 1, 2]
    assert work.runs[-1].start_ms <= clock.wall_ms() < work.runs[-1].end_ms
    async with world.client() as client:
        left = await client.get("/schedules/clock/boot-7")
        assert json.loads(left.data)["doubted_ms"] == 0


@pytest.mark.parametrize(
    "strange",
    [b"", b"{", b"[]", b'{"asked_ms": "x"}',
     b'{"asked_ms":1,"within_ms":1,"before":[1],"doubted_ms":0}',
     b'{"asked_ms":1,"within_ms":1,"before":[-1,2,3],"doubted_ms":0}',
     b'{"asked_ms":9999999999999,"within_ms":1,"before":null,"doubted_ms":5}'],
)  # fmt: skip
@in_memory
async def test_a_reading_that_is_none_is_not_used(world: MemoryCluster, strange: bytes) -> None:
    """Others may write there."""
    clock, work = Machine(asyncio.get_running_loop()), Work()
    async with world.client(clock=clock) as client:
        await client.create("/schedules/clock/boot-7", strange, parents="persistent")
        assert (await each_minute(client).run(work)).jump_ms == 0
        assert work.minutes == [0]


@in_memory
async def test_a_leader_years_ahead_is_not_believed(world: MemoryCluster) -> None:
    """Else no interval would begin for years; who has seen the jump goes on as before."""
    clock = LoopClock(asyncio.get_running_loop())
    async with world.client(clock=clock) as client, world.client(clock=clock) as other:
        work, job = Work(), each_minute(client)
        await job.run(work)
        set_leader(world, 10 * 366 * 86_400_000)

        with pytest.raises(
            UnavailableError, match=r"the leader's clock says 2033-.*, this machine"
        ):
            await each_minute(other).run(work)
        await next_minute()
        assert (await job.run(work)).state == "ran"

        set_leader(world, 0)
        await next_minute()
        assert (await each_minute(other).run(work)).state == "ran"
        assert work.minutes == [0, 1, 2]
