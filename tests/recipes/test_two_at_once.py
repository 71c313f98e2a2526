"""Two things in one moment: a caller cancels, and just then the lock or its session is lost.

The cancellation is the caller's and must arrive as one: a loss that took its place would let a
program go on that was told to end (as asyncio.Timeout, which keeps the two apart by counting).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import LockLostError, SessionExpiredError
from coordinator.recipes import Lock, RWLock, Semaphore
from coordinator.recipes.locks.grant import Grant
from tests.client.memory_cluster import MemoryCluster, in_memory

ORDERS = pytest.mark.parametrize("is_lost_first", [True, False])


def lose(client: AsyncClient, grant: Grant[Any]) -> None:
    """End the session of a grant, as a member's word does, in this very step of the loop."""
    session = grant.hold._session
    session.note_end(SessionExpiredError("it has ended", session_id=session.session_id))


async def both_at_once(
    client: AsyncClient, grant: Grant[Any], task: asyncio.Task[Any], *, is_lost_first: bool
) -> None:
    if is_lost_first:
        lose(client, grant)
    task.cancel()
    if not is_lost_first:
        lose(client, grant)


@ORDERS
@pytest.mark.parametrize(
    "made",
    [
        lambda client: Lock(client, "daily"),
        lambda client: RWLock(client, "daily").write(),
        lambda client: Semaphore(client, "daily", 2),
    ],
)
@in_memory
async def test_a_body_that_is_cancelled_and_lost_at_once_is_cancelled(
    world: MemoryCluster, made: Any, is_lost_first: bool
) -> None:
    """The task ends as cancelled, whichever came first."""
    async with world.client() as client:
        entered: asyncio.Future[Grant[Any]] = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with made(client) as grant:
                entered.set_result(grant)
                await asyncio.sleep(60)

        task = asyncio.create_task(body())
        grant = await entered
        await both_at_once(client, grant, task, is_lost_first=is_lost_first)
        await asyncio.wait({task})

        assert task.cancelled(), task.exception()
        assert grant.is_lost


@in_memory
async def test_a_body_that_is_cancelled_while_it_tidies_up_after_a_loss_is_cancelled(
    world: MemoryCluster,
) -> None:
    """The loss has been told already; the caller's wish comes a moment later."""
    async with world.client() as client:
        tidying = asyncio.Event()
        entered: asyncio.Future[Grant[Any]] = asyncio.get_running_loop().create_future()

        async def body() -> None:
            async with Lock(client, "daily") as grant:
                entered.set_result(grant)
                try:
                    await asyncio.sleep(60)
                finally:
                    tidying.set()
                    await asyncio.sleep(1)

        task = asyncio.create_task(body())
        lose(client, await entered)
        await tidying.wait()
        task.cancel()
        await asyncio.wait({task})

        assert task.cancelled(), task.exception()


@in_memory
async def test_a_body_that_is_only_lost_is_not_cancelled(world: MemoryCluster) -> None:
    """The other side: without a caller's wish it is the loss, and nothing is left behind of it."""
    async with world.client() as client:
        entered: asyncio.Future[Grant[Any]] = asyncio.get_running_loop().create_future()

        async def body() -> int:
            with pytest.raises(LockLostError):  # noqa: PT012
                async with Lock(client, "daily") as grant:
                    entered.set_result(grant)
                    await asyncio.sleep(60)
            task = asyncio.current_task()
            assert task is not None
            await asyncio.sleep(1)
            return task.cancelling()

        task = asyncio.create_task(body())
        lose(client, await entered)

        assert await task == 0


@ORDERS
@in_memory
async def test_an_acquire_that_is_cancelled_and_lost_at_once_is_cancelled(
    world: MemoryCluster, is_lost_first: bool
) -> None:
    """Who waits in a queue is told what its caller wanted; its place goes with the session."""
    async with world.client() as holder, world.client() as client:
        held = await Lock(holder, "daily").acquire()
        first = await Lock(client, "other").acquire()  # opens the session
        waiting = asyncio.create_task(Lock(client, "daily").acquire())
        await asyncio.sleep(1)
        assert len(await world.queue(holder, "daily")) == 2

        await both_at_once(client, first, waiting, is_lost_first=is_lost_first)
        await asyncio.wait({waiting})

        assert waiting.cancelled(), waiting.exception()
        await asyncio.sleep(60)
        assert len(await world.queue(holder, "daily")) == 1
        held.check()
