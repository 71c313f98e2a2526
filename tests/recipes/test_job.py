"""Work once in each interval: the two clients, crashes, failures, missed intervals, clocks."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from coordinator.client import Check, Create, connect
from coordinator.errors import (
    BadArgumentsError,
    DataTooLargeError,
    LockTimeoutError,
    NodeExistsError,
)
from coordinator.recipes import FOREVER, Job, JobRun, Jobs, Lock, Run, once_per
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.job_scenes import Work, each_minute, next_minute, set_leader


@in_memory
async def test_it_runs_once_in_an_interval_whoever_comes(world: MemoryCluster) -> None:
    """The second caller sees what was done; the next interval has its own run."""
    async with world.client() as one, world.client() as other:
        work = Work()
        work.result = {"lines": 3}

        first = await each_minute(one).run(work)
        second = await each_minute(other).run(work)
        await next_minute()
        third = await each_minute(other).run(work)

        assert (first.state, second.state, third.state) == ("ran", "done", "ran")
        assert first.result == {"lines": 3}
        assert second.result is None
        assert second.next_ms == first.next_ms == third.runs[0].start_ms
        assert work.minutes == [0, 1]
        assert work.runs[0].fencing_token < work.runs[1].fencing_token
        assert work.runs[0].end_ms == work.runs[1].start_ms
        assert work.runs[0].key == f"report/{work.runs[0].interval}"
        view = await Jobs(one).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["done", "done"]
        assert view.runs == (third.runs[0], first.runs[0])
        assert (view.due_ms, view.running, view.crashed, view.trouble) == (None, None, None, "")
        ledger = json.loads((await one.get("/schedules/jobs/report")).data)
        assert ledger["next_ms"] == view.next_ms == third.next_ms  # for who knows no schedules


@pytest.mark.parametrize("ahead_ms", [1, 300, 2_000])
def test_who_comes_a_little_early_waits_for_the_interval(ahead_ms: int) -> None:
    """As a cron does whose clock is ahead of the leader's: it does not skip its interval."""

    @in_memory
    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as client:
            work, job = Work(), each_minute(client)
            first = await job.run(work)
            assert first.next_ms is not None
            await asyncio.sleep((first.next_ms - ahead_ms - world.clock.wall_ms()) / 1000)

            reply = await job.run(work)

            assert (reply.state, work.minutes) == ("ran", [0, 1])
            assert world.clock.wall_ms() >= first.next_ms

    scenario()


@in_memory
async def test_who_comes_earlier_does_not_wait(world: MemoryCluster) -> None:
    """Nor for longer than a tenth of the interval, nor for a leader whose time stands still."""
    async with world.client() as client:
        work, job, short = Work(), each_minute(client), Job(client, "short", every="1s")
        first, of_short = await job.run(work), await short.run(Work())
        assert first.next_ms is not None
        assert of_short.next_ms is not None
        late_ms = of_short.next_ms + 1_000 - world.clock.wall_ms() - 150
        await asyncio.sleep(late_ms / 1000)
        began_ms = world.clock.monotonic_ms()
        assert (await short.run(Work())).state == "ran"
        assert (await short.run(Work())).state == "done"
        assert world.clock.monotonic_ms() - began_ms < 100

        await asyncio.sleep((first.next_ms - 3_000 - world.clock.wall_ms()) / 1000)
        began_ms = world.clock.monotonic_ms()
        assert (await job.run(work)).state == "done"
        assert world.clock.monotonic_ms() - began_ms < 1_000

        await asyncio.sleep(1.5)
        await Job(client, "report", every="1m").wait(0)
        stopped_ms = first.next_ms - 1_000
        world.clock.wall_ms = lambda: stopped_ms  # type: ignore[method-assign]
        began_ms = world.clock.monotonic_ms()
        assert (await job.run(work)).state == "done"
        assert world.clock.monotonic_ms() - began_ms < 10_000


@in_memory
async def test_who_comes_meanwhile_is_busy_or_waits(world: MemoryCluster) -> None:
    """Without patience it leaves at once; with it, it finds nothing left to do."""
    async with world.client() as one, world.client() as other:
        work = Work()
        work.waits_s = 3.0
        running = asyncio.create_task(each_minute(one).run(work))
        await asyncio.sleep(1)

        view = await Jobs(other).look("report")
        busy = await each_minute(other).run(work)
        waited = await each_minute(other, timeout=10).run(work)

        assert view is not None
        assert view.running is not None
        assert (view.running.by, view.late_ms, view.trouble) == ("me", 0, "")
        assert (busy.state, waited.state, (await running).state) == ("busy", "done", "ran")
        assert len(work.runs) == 1


@pytest.mark.parametrize(
    ("catch_up", "minutes", "skipped"),
    [("last", [0, 5], 4), ("all", [0, 1, 2, 3, 4, 5], 0), ("skip", [0], 5)],
)
def test_missed_intervals_are_made_up_for_as_was_said(
    catch_up: Any, minutes: list[int], skipped: int
) -> None:
    """Five minutes in which nobody came; the last began 20 seconds ago."""

    @in_memory
    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as client:
            work, job = Work(), each_minute(client, catch_up=catch_up, grace=10)
            await job.run(work)
            await asyncio.sleep(5 * 60 + 20)

            reply = await job.run(work)

            assert work.minutes == minutes
            assert len(reply.runs) == len(minutes) - 1
            view = await Jobs(client).look("report")
            assert view is not None
            assert view.ledger.skipped == skipped
            assert (await job.run(work)).state == "done"
            await asyncio.sleep(45)
            await job.run(work)
            assert work.minutes[-1] == 6

    scenario()


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
def test_skip_repeats_what_began_however_late(error: type[BaseException]) -> None:
    """A run that failed, or whose caller was cancelled; of the next interval it is skipped."""

    @in_memory
    async def scenario(world: MemoryCluster) -> None:
        async with world.client() as client:
            work, job = Work(), each_minute(client, catch_up="skip", grace=1)

            async def fails(_: Run[Any]) -> None:
                raise error("no paper")

            with pytest.raises(error):
                await job.run(fails)
            await asyncio.sleep(30)
            assert (await job.run(work)).state == "ran"
            assert work.minutes == [0]

            await asyncio.sleep(30.2)
            with pytest.raises(error):
                await job.run(fails)
            await asyncio.sleep(90)
            await job.run(work)
            assert work.minutes == [0], "the next interval began, and is late itself"
            view = await Jobs(client).look("report")
            assert view is not None
            assert (view.ledger.skipped, view.ledger.open_ms) == (2, None)

    scenario()


@in_memory
async def test_what_the_work_adds_is_done_with_the_end_or_not_at_all(world: MemoryCluster) -> None:
    """One command: the report is there, and the run is done. Where it is refused, neither is."""
    async with world.client() as client:

        async def report(run: Run[Any]) -> None:
            run.also(Create("/report", run.interval.encode()))

        await each_minute(client).run(report)
        await next_minute()
        with pytest.raises(NodeExistsError):
            await each_minute(client).run(report)

        view = await Jobs(client).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["failed", "done"]
        assert "NodeExistsError" in view.trouble
        assert (await client.get("/report")).data == view.runs[1].interval.encode()


@in_memory
async def test_a_run_whose_addition_is_too_large_has_failed(world: MemoryCluster) -> None:
    """It is not the result that could not be kept; the run is not left as if its host had died."""
    async with world.client() as client:

        async def report(run: Run[Any]) -> None:
            run.also(Create("/report", bytes(1_200_000)))

        with pytest.raises(DataTooLargeError):
            await each_minute(client).run(report)

        view = await Jobs(client).look("report")
        assert view is not None
        assert [each.state for each in view.runs] == ["failed"]
        assert "DataTooLargeError" in view.trouble


@in_memory
async def test_a_result_that_cannot_be_kept_does_not_undo_the_work(world: MemoryCluster) -> None:
    """It is recorded as done, and the caller learns why there is no result."""
    async with world.client() as client:
        work = Work()
        work.result = object()
        with pytest.raises(BadArgumentsError, match="recorded as done without its result"):
            await each_minute(client).run(work)

        assert (await each_minute(client).run(work)).state == "done"


@in_memory
async def test_a_wait_ends_when_an_interval_begins(world: MemoryCluster) -> None:
    """Never early, by the leader's time; and in time, too."""
    async with world.client() as client:
        work, job = Work(), each_minute(client)
        assert await job.wait(0)
        await job.run(work)
        assert not await job.wait(0)
        assert not await job.wait(5)

        assert await job.wait(FOREVER)

        reply = await job.run(work)
        assert reply.runs[0].started_ms - reply.runs[0].start_ms < 1_000
        hourly = Job(client, "hourly", every="1h")
        await hourly.run(work)
        assert await hourly.wait(FOREVER)  # after many looks
        reply = await hourly.run(work)
        assert reply.runs[0].started_ms - reply.runs[0].start_ms < 1_000


@in_memory
async def test_a_wait_does_not_end_while_another_client_is_at_it(world: MemoryCluster) -> None:
    """A loop of wait and run asks now and then, not as fast as it can; and takes over."""
    network = world.network()
    async with world.client() as one, world.client(network) as other:
        work = Work()
        work.waits_s = 40.0
        running = asyncio.create_task(each_minute(one).run(work))
        await asyncio.sleep(1)
        before = network.count("", "schedules/clock")
        assert not await each_minute(other).wait(0)
        assert not await each_minute(other).wait(30)
        assert network.count("", "schedules/clock") - before < 30
        running.cancel()  # it is not recorded: the run has crashed
        await asyncio.wait({running})
        assert await each_minute(other).wait(10)


@in_memory
async def test_a_wait_is_patient_with_a_time_that_stands_still(world: MemoryCluster) -> None:
    """A leader whose clock was put back, just before the next interval."""
    network = world.network()
    async with world.client(network) as client:
        job = each_minute(client)
        await job.wait(0)
        await asyncio.sleep(59.9 - world.clock.wall_ms() / 1000 % 60)
        await job.run(Work())
        set_leader(world, -3_600_000)
        before = network.count("", "schedules/clock")
        assert not await job.wait(120)
        assert network.count("", "schedules/clock") - before < 30


@in_memory
async def test_it_remembers_so_many_runs_also_if_they_fail(world: MemoryCluster) -> None:
    """Old runs go; what is due does not depend on them."""
    async with world.client() as client:
        work, job = Work(), each_minute(client, history=3, guarantee="at_most_once")
        for minute in range(6):
            work.error = RuntimeError("x") if minute % 2 else None
            try:
                await job.run(work)
            except RuntimeError:
                pass
            assert (await job.run(work)).state == "done"
            await next_minute()

        view = await Jobs(client).look("report")
        assert view is not None
        assert len(view.runs) == 3
        assert len(work.runs) == 6


@in_memory
async def test_the_schedule_may_change(world: MemoryCluster) -> None:
    """What is settled stays so: a coarser schedule does not run the past again."""
    async with world.client() as client:
        work = Work()
        await each_minute(client).run(work)

        assert (await Job(client, "report", every="6m").run(work)).state == "done"
        await next_minute()
        assert (await Job(client, "report", every="10s").run(work)).state == "ran"


@in_memory
async def test_all_jobs_are_listed_and_may_be_forgotten(world: MemoryCluster) -> None:
    """By name; a job that is forgotten runs again in the interval that it is in."""
    async with world.client() as client:
        assert await Jobs(client).list() == ()
        for name in ("b/c", "a"):
            await Job(client, name, every="1m").run(Work())

        assert [each.name for each in await Jobs(client).list()] == ["a", "b/c"]
        assert await Jobs(client).forget("a")
        assert not await Jobs(client).forget("a")
        assert await Jobs(client).look("a") is None
        work = Work()
        assert (await Job(client, "a", every="1m").run(work)).state == "ran"


@in_memory
async def test_a_timeout_inside_the_work_is_its_own(world: MemoryCluster) -> None:
    """Work that waits for another lock in vain has failed; the job was not busy."""
    async with world.client() as client, world.client() as other:

        async def work(run: Run[Any]) -> None:
            async with Lock(client, "taken", timeout=0) as grant:
                await client.create("/never", if_held=grant)

        async with Lock(other, "taken") as grant:
            await other.create("/held", if_held=grant)
            with pytest.raises(LockTimeoutError):
                await each_minute(client).run(work)

        view = await Jobs(client).look("report")
        assert view is not None
        assert view.trouble.startswith("me: LockTimeoutError")


@in_memory
async def test_strange_data_is_named(world: MemoryCluster) -> None:
    """A znode that is no ledger, no run."""
    async with world.client() as client:
        for data in (b"x", b"[]", b"{}", b'{"schedule":1}'):
            await client.create("/schedules/jobs/report", data, parents="persistent")
            with pytest.raises(
                BadArgumentsError, match=r"/schedules/jobs/report: expected the ledger"
            ):
                await each_minute(client).run(Work())
            await Jobs(client).forget("report")
        await each_minute(client).run(Work())
        (name,) = (await client.children("/schedules/jobs/report")).names
        await client.set(f"/schedules/jobs/report/{name}", b"x")
        with pytest.raises(BadArgumentsError, match="expected the run of a job"):
            await Jobs(client).list()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"catch_up": "none"}, "catch_up: expected 'skip' or 'last' or 'all', found 'none'"),
        ({"guarantee": "once"}, "guarantee: expected 'at_least_once' or 'at_most_once'"),
        ({"attempts_max": 0}, "attempts_max: expected 1 to"),
        ({"history": 501}, "history: expected 1 to 500, found 501"),
        ({"history": True}, "history: expected 1 to 500"),
        ({"grace": -1}, "grace: expected seconds from 0"),
        ({"timeout": -1}, "timeout: expected seconds from 0"),
        ({"every": "1x"}, "every: expected a length"),
    ],
)
@in_memory
async def test_bad_options_are_refused_at_once(
    world: MemoryCluster, options: Any, message: str
) -> None:
    """Before anything is asked of the cluster."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match=message):
            Job(client, "report", **{"every": "1h", **options})
        with pytest.raises(BadArgumentsError, match="name"):
            Job(client, None, every="1m")  # type: ignore[arg-type]


@in_memory
async def test_the_decorator_runs_once_and_returns_what_it_returned(world: MemoryCluster) -> None:
    """With an AsyncClient a coroutine function; arguments are passed on."""
    async with world.client() as client:

        @once_per("decorated", every="1m", client=client)
        async def report(run: Run[Any], title: str, *, lines: int) -> str:
            await client.create("/made", if_held=run.grant)
            return f"{title} {lines}"

        assert await report("x", lines=3) == "x 3"
        assert await report("x", lines=3) is None
        await client.multi([Check("/made", exists=True)])
        with pytest.raises(BadArgumentsError, match="every: expected"):
            once_per("decorated", every="never")


def test_with_threads_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Client and plain functions; without a client, one for each call."""
    with serving() as url, connect(url) as client:
        job = Job(client, "sync", every="8760h", label="t")

        def failing(run: Run[Any]) -> None:
            raise RuntimeError("x")

        def stopping(run: Run[Any]) -> None:
            raise StopIteration("no more")

        with pytest.raises(RuntimeError):
            job.run(failing)
        with pytest.raises(StopIteration):
            job.run(stopping)
        (view,) = Jobs(client).list()
        assert isinstance(view.last, JobRun)
        assert view.last.reason == "StopIteration: no more"
        reply = job.run(lambda run: run.attempt)

        assert (reply.state, reply.result) == ("ran", 3)
        assert job.run(lambda run: run.attempt).state == "done"
        assert not job.wait(0)
        (view,) = Jobs(client).list()
        assert isinstance(view.last, JobRun)

        monkeypatch.setenv("COORDINATOR_ENDPOINTS", url)

        @once_per("plain", every="8760h")
        def report(run: Run[Any], lines: int) -> int:
            return lines

        assert report(3) == 3
        assert report(3) is None
