"""Work that is done once for each key: the two faces, crashes, and what is asked meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from coordinator.client import connect
from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    OutcomeUnknownError,
)
from coordinator.recipes import Lock, Once
from coordinator.recipes.once import Attempt, Done, NotDone
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving


class Work:
    """Counts its runs; fails or waits as told."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.error: Exception | None = None
        self.waits_s = 0.0
        self.result: Any = {"receipt": 7}

    async def __call__(self, attempt: Attempt) -> Any:
        self.attempts.append(attempt)
        await asyncio.sleep(self.waits_s)
        if self.error is not None:
            raise self.error
        return self.result


@in_memory
async def test_the_second_call_gets_the_first_result(world: MemoryCluster) -> None:
    """Work is done once; who asks again, from anywhere, gets its result."""
    async with world.client() as one, world.client() as other:
        work = Work()

        first = await Once(one).run("charge-1", work)
        second = await Once(other).run("charge-1", work)

        assert first == Done(key="charge-1", result={"receipt": 7}, attempts=1, is_first=True)
        assert second == replace(first, is_first=False)
        assert [each.number for each in work.attempts] == [1]
        assert work.attempts[0].fencing_token > 0


@in_memory
async def test_who_asks_meanwhile_waits_for_the_first_or_is_told(world: MemoryCluster) -> None:
    """While somebody works: "in progress" when the time is up, else the first result."""
    async with world.client() as one, world.client() as other:
        work = Work()
        work.waits_s = 3.0
        running = asyncio.create_task(Once(one).run("k", work))
        await asyncio.sleep(1)

        with pytest.raises(LockTimeoutError):
            await Once(other, timeout=0).run("k", work)
        waited = await Once(other, timeout=10).run("k", work)

        assert (await running).is_first
        assert waited.result == {"receipt": 7}
        assert not waited.is_first
        assert len(work.attempts) == 1


@in_memory
async def test_work_that_fails_or_crashes_is_repeated_and_told_so(world: MemoryCluster) -> None:
    """What was begun is known to have been begun: the next attempt has a number."""
    async with world.client() as client:
        once, work = Once(client), Work()
        work.error = RuntimeError("the process dies here, for all that is known")
        with pytest.raises(RuntimeError):
            await once.run("k", work)
        assert await once.look("k") is None
        work.error = None

        done = await once.run("k", work)

        assert done.attempts == 2
        assert [each.number for each in work.attempts] == [1, 2]
        assert work.attempts[0].fencing_token < work.attempts[1].fencing_token


@in_memory
async def test_work_that_may_not_be_repeated_waits_for_a_person(world: MemoryCluster) -> None:
    """With "raise", unknown is said to be unknown until somebody has found out."""
    async with world.client() as client:
        once, work = Once(client, when_interrupted="raise"), Work()
        work.error = RuntimeError("crash")
        for key in ("a", "b"):
            with pytest.raises(RuntimeError):
                await once.run(key, work)
            with pytest.raises(OutcomeUnknownError, match="attempt 1 began"):
                await once.run(key, work)
        assert len(work.attempts) == 2
        work.error = None

        assert (await once.settle("a", "found it")).result == "found it"
        assert await once.forget("b")
        assert not await once.forget("b")

        assert (await once.run("a", work)).result == "found it"
        assert (await once.run("b", work)).is_first
        assert len(work.attempts) == 3


@in_memory
async def test_work_that_says_not_done_leaves_no_trace(world: MemoryCluster) -> None:
    """NotDone is the work's word that nothing happened."""
    async with world.client() as client:
        once, work = Once(client, when_interrupted="raise"), Work()
        work.error = NotDone("the provider is closed")
        with pytest.raises(NotDone):
            await once.run("k", work)
        work.error = None

        assert (await once.run("k", work)).attempts == 1


@in_memory
async def test_work_that_says_not_done_does_not_speak_for_an_earlier_attempt(
    world: MemoryCluster,
) -> None:
    """Whether the one that crashed has charged stays as unknown as it was."""
    async with world.client() as client:
        once, work = Once(client), Work()
        work.error = RuntimeError("charged, then crashed")
        with pytest.raises(RuntimeError):
            await once.run("k", work)
        begun = await client.get("/once/k")
        for _ in range(2):
            work.error = NotDone("could not be looked up")
            with pytest.raises(NotDone):
                await once.run("k", work)
        left = await client.get("/once/k")
        with pytest.raises(OutcomeUnknownError, match="attempt 1 began with fencing token"):
            await Once(client, when_interrupted="raise").run("k", work)
        work.error = None

        assert (await once.run("k", work)).attempts == 2
        assert [each.number for each in work.attempts] == [1, 2, 2, 2]
        assert left.data == begun.data


def test_a_plain_function_does_not_speak_for_an_earlier_attempt_either() -> None:
    """With a sync client."""
    with serving() as url, connect(url) as client:
        errors: list[Exception] = [KeyError("crashed"), NotDone("could not be looked up")]
        numbers: list[int] = []

        def work(attempt: Attempt) -> int:
            numbers.append(attempt.number)
            if errors:
                raise errors.pop(0)
            return 5

        with pytest.raises(KeyError):
            Once(client).run("k", work)
        with pytest.raises(NotDone):
            Once(client).run("k", work)
        assert Once(client).run("k", work).attempts == 2
        assert numbers == [1, 2, 2]


@in_memory
async def test_a_result_that_cannot_be_kept_does_not_undo_the_work(world: MemoryCluster) -> None:
    """It is recorded as done without its result, and said; nothing runs twice for it."""
    async with world.client() as client:
        for key, result in (("type", object()), ("size", "x" * 2_000_000), ("nan", float("nan"))):
            once, work = Once(client), Work()
            work.result = result
            with pytest.raises(BadArgumentsError, match="recorded as done without its result"):
                await once.run(key, work)

            assert (await once.run(key, work)).result is None
            assert len(work.attempts) == 1


@in_memory
async def test_who_lost_the_lock_records_nothing(world: MemoryCluster) -> None:
    """The record of a later attempt is not overwritten by an earlier one that wakes."""
    network = world.network()
    async with world.client(network, session_timeout=2) as one, world.client() as other:
        work = Work()
        work.waits_s = 60.0
        running = asyncio.create_task(Once(one).run("k", work))
        await asyncio.sleep(1)
        network.is_cut = True
        with pytest.raises(LockLostError):
            await running
        work.waits_s = 0.0

        done = await Once(other, timeout=30).run("k", work)

        assert done.attempts == 2
        assert done.is_first


@in_memory
async def test_arguments_and_foreign_records_are_refused(world: MemoryCluster) -> None:
    """What was expected and what was found."""
    async with world.client() as client:
        with pytest.raises(BadArgumentsError, match="keep: expected seconds from 1"):
            Once(client, keep=0)
        with pytest.raises(BadArgumentsError, match="when_interrupted"):
            Once(client, when_interrupted="maybe")  # type: ignore[arg-type]
        for key in ("", "k" * 151):
            with pytest.raises(BadArgumentsError, match="key: expected 1 to 150"):
                await Once(client).run(key, Work())
        await client.create("/once/k", b"[]", parents="container")
        with pytest.raises(BadArgumentsError, match="expected a record of Once"):
            await Once(client).run("k", Work())
        assert (await Once(client, keep=None).run("a/b %", Work())).is_first
        assert (await Once(client).run("..", Work())).is_first
        async with Lock(client, "once:..", timeout=0):
            pass


def test_plain_functions_run_in_the_thread_of_their_caller() -> None:
    """With a sync client."""
    with serving() as url, connect(url) as client:
        numbers: list[int] = []

        def work(attempt: Attempt) -> int:
            numbers.append(attempt.number)
            if len(numbers) == 1:
                raise KeyError("mine")
            return 5

        with pytest.raises(KeyError):
            Once(client).run("k", work)
        assert Once(client).run("k", work).result == 5
        expected = Done(key="k", result=5, attempts=2, is_first=False)
        assert Once(client).run("k", work) == expected
        assert numbers == [1, 2]


@in_memory
async def test_an_attempt_that_did_nothing_may_outlast_its_record(world: MemoryCluster) -> None:
    """The record was forgotten while it ran: it is what the work said that is raised."""
    async with world.client() as client:
        work = Work()
        work.waits_s, work.error = 5.0, NotDone("the printer is off")
        with pytest.raises(NotDone, match="the printer is off"):
            await Once(client, keep=1).run("k", work)


@in_memory
async def test_a_person_does_not_settle_what_has_ended_meanwhile(world: MemoryCluster) -> None:
    """The first result stays: whoever asked before the attempt ended gets it, too."""
    late = world.network()
    async with world.client() as client, world.client(late) as person:
        work = Work()
        work.waits_s = 5.0
        running = asyncio.create_task(Once(client).run("k", work))
        await asyncio.sleep(4)
        late.before = lambda request: asyncio.sleep(0.0 if request.method == "GET" else 2.0)

        settled = await Once(person).settle("k", "so it seems")

        assert (await running).result == settled.result == work.result
        assert (await Once(person).settle("other", "by hand")).result == "by hand"
        found = await Once(client).look("other")
        assert found is not None
        assert found.result == "by hand"
