"""One object is one contender: who shares it never gives back what another one holds."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from coordinator import connect
from coordinator.errors import DeadlockError, LockLostError
from coordinator.recipes import Lock
from tests.client.memory_cluster import MemoryCluster, in_memory
from tests.client.server_thread import serving
from tests.recipes.cancelling import ATTEMPTS, Attempt, standing
from tests.recipes.lock_kinds import Kind, each_kind

each_attempt = pytest.mark.parametrize(
    "attempt",
    [pytest.param(each, id=name) for name, each in ATTEMPTS.items() if name != "ReentrantLock"],
)
"""A ReentrantLock is made to be shared."""


@each_attempt
@in_memory
async def test_an_object_belongs_to_its_body_until_that_is_left(
    world: MemoryCluster, attempt: Attempt
) -> None:
    """Also when the body has lost its grant and cleans up: nobody else gets in over it."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client, world.client() as observer:
        shared: Any = attempt(client)

        async def first() -> None:
            async with shared:
                try:
                    await asyncio.sleep(1_000)
                finally:
                    await asyncio.sleep(20)  # cleans up

        body = asyncio.create_task(first())
        await asyncio.sleep(1)
        network.is_cut = True
        await asyncio.sleep(5)
        network.is_cut = False

        with pytest.raises(DeadlockError, match="one object for each contender"):
            async with shared:
                raise AssertionError("got in over a body that is not left")
        with pytest.raises(LockLostError):
            await body
        async with shared:
            assert len(await standing(observer)) >= 1
        await asyncio.sleep(1)
        assert await standing(observer) == {}


@each_kind
@in_memory
async def test_who_has_lost_its_grant_does_not_release_its_successors(
    world: MemoryCluster, kind: Kind
) -> None:
    """Taken over one object by one task after another, each gives back its own."""
    network = world.network()
    async with world.client(network, session_timeout=2) as client:
        shared = kind(client, "daily")
        is_replaced = asyncio.Event()

        async def first() -> tuple[bool, bool]:
            await shared.acquire()
            await is_replaced.wait()
            return await shared.release(), await shared.release()

        former = asyncio.create_task(first())
        await asyncio.sleep(1)
        network.is_cut = True
        await asyncio.sleep(3)
        network.is_cut = False
        mine = await shared.acquire()
        is_replaced.set()
        was_held, was_held_again = await former

        assert not was_held
        assert not was_held_again
        mine.check()
        assert await shared.release()


@each_kind
@in_memory
async def test_a_body_may_take_anew_what_it_gave_back(world: MemoryCluster, kind: Kind) -> None:
    """What it holds in the end is given back when it is left."""
    async with world.client() as client:
        lock = kind(client, "daily")
        async with lock as first:
            await lock.release()
            second = await lock.acquire()
            assert second.fencing_token > first.fencing_token

        assert second.is_released
        assert await standing(client) == {}


@pytest.mark.parametrize("ends", ["lost", "given back"])
@in_memory
async def test_a_body_is_stopped_when_it_loses_what_it_has_taken_anew(
    world: MemoryCluster, ends: str
) -> None:
    """Whatever became of the first grant, it is the second one that the body relies on."""
    async with world.client() as client, world.client() as operator:
        lock = Lock(client, "daily")
        task = asyncio.current_task()
        assert task is not None
        with pytest.raises(LockLostError) as raised:  # noqa: PT012
            async with lock:
                if ends == "lost":
                    await operator.revoke("daily", by="ops", reason="stuck")
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(60)
                else:
                    await lock.release()
                second = await lock.acquire()
                await operator.revoke("daily", by="ops", reason="stuck again")
                await asyncio.sleep(60)
                pytest.fail("it was not stopped")

        assert raised.value.fencing_token == second.fencing_token
        assert task.cancelling() == 0
        assert await standing(client) == {}


@in_memory
async def test_a_body_that_was_stopped_names_the_grant_for_which_it_was(
    world: MemoryCluster,
) -> None:
    """Also when it takes another one, to clean up under it; that one is given back."""
    async with world.client() as client, world.client() as operator:
        lock = Lock(client, "daily")
        with pytest.raises(LockLostError, match="ops") as raised:  # noqa: PT012
            async with lock as first:
                await operator.revoke("daily", by="ops", reason="stuck")
                try:
                    await asyncio.sleep(60)
                finally:
                    second = await lock.acquire()

        assert raised.value.fencing_token == first.fencing_token
        assert second.is_released
        assert await standing(client) == {}


@in_memory
async def test_a_body_within_a_body_that_lost_its_grant_leaves_it_to_that(
    world: MemoryCluster,
) -> None:
    """The inner one gives back its own grant; the outer one still hears of its loss."""
    async with world.client() as client, world.client() as operator:
        lock = Lock(client, "daily")
        with pytest.raises(LockLostError) as raised:  # noqa: PT012
            async with lock as outer:
                await operator.revoke("daily", by="ops", reason="stuck")
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
                async with lock as inner:
                    inner.check()
                assert inner.is_released

        assert raised.value.fencing_token == outer.fencing_token
        assert await standing(client) == {}


def test_threads_that_share_an_object_do_not_get_in_over_each_other() -> None:
    """A sync client keeps the same: the body of a thread that lost its grant has the object."""
    with serving() as url, connect(url) as client, connect(url) as operator:
        shared = Lock(client, "daily", timeout=5)
        is_in, is_lost = threading.Event(), threading.Event()
        may_leave = threading.Event()
        ends: list[BaseException] = []

        def first() -> None:
            try:
                with shared as grant:
                    grant.on_lost(is_lost.set)
                    is_in.set()
                    may_leave.wait(10)
            except LockLostError as error:
                ends.append(error)

        thread = threading.Thread(target=first)
        thread.start()
        assert is_in.wait(10)
        operator.revoke("daily", by="ops", reason="stuck")
        assert is_lost.wait(10)

        with pytest.raises(DeadlockError):
            shared.acquire()
        may_leave.set()
        thread.join(10)
        assert len(ends) == 1
        with shared as grant:
            grant.check()


@each_kind
@in_memory
async def test_a_body_whose_caller_was_interrupted_as_it_began_never_was(
    world: MemoryCluster, kind: Kind
) -> None:
    """What Ctrl-C undoes with a sync client: the grant is given back, and the object is free."""
    async with world.client() as client:
        lock = kind(client, "daily")

        async def interrupted() -> None:
            await lock._holding.undo_enter(await lock._holding.enter(None))

        await asyncio.create_task(interrupted())

        assert await standing(client) == {}
        async with lock as grant:
            grant.check()
