"""Locks at a follower whose disk is full: it stops nobody, and nothing untrue is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from coordinator.errors import ConnectionLostError, LockTimeoutError, NoSpaceError
from coordinator.state.commands import RequestId
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import (
    WITHOUT_LEASES,
    acquired,
    acquiring,
    looked,
    opened,
    release,
)

NUMBERED = RequestId("client", number=7, floor_index=0)


def fill(world: World) -> None:
    """From now on nothing new gets onto the disk of the follower, so nothing is applied there."""
    engine = world.engines[world.follower.status().member_id]
    engine.is_full, engine.is_applying = True, False


@asynccontextmanager
async def full_follower() -> AsyncIterator[tuple[World, str]]:
    """A session of a cluster whose last member has no room."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        fill(world)
        yield world, session_id


async def holders(world: World) -> list[str]:
    return [each.session_id for each in (await looked(world, at=world.leader)).holders]


@pytest.mark.parametrize("is_try", [False, True])
async def test_a_numbered_acquire_is_told_to_go_on_elsewhere(is_try: bool) -> None:
    """Nobody else holds, so it is no timeout: the same number finds the grant at another member."""
    async with full_follower() as (world, session_id):
        with pytest.raises(ConnectionLostError):
            await soon(
                acquired(world, session_id, at=world.follower, request=NUMBERED, is_try=is_try)
            )
        grant = await soon(acquired(world, session_id, request=NUMBERED, is_try=is_try))

        assert await holders(world) == [session_id]
        assert grant.session_id == session_id


@pytest.mark.parametrize("is_try", [False, True])
async def test_an_acquire_without_a_number_is_taken_back(is_try: bool) -> None:
    """Nobody could repeat it; the error is definite and says what is wrong."""
    async with full_follower() as (world, session_id):
        with pytest.raises(NoSpaceError):
            await soon(acquired(world, session_id, at=world.follower, is_try=is_try))

        assert await holders(world) == []


async def test_a_try_that_found_another_holder_says_so() -> None:
    """That was decided in the log, and needs nothing of this member."""
    async with full_follower() as (world, session_id):
        other = await opened(world)
        await soon(acquired(world, other))

        with pytest.raises(LockTimeoutError):
            await soon(acquired(world, session_id, at=world.follower, is_try=True))

        assert await holders(world) == [other]


async def test_a_member_that_is_behind_when_the_time_is_up_takes_the_attempt_back() -> None:
    """It has room and only came too late, so nobody is told to repeat it before its deadline."""
    async with full_follower() as (world, session_id):
        world.engines[world.follower.status().member_id].is_full = False
        deadline_ms = world.deadline(1_000)
        waiting = acquiring(
            world, session_id, at=world.follower, request=NUMBERED, wait_deadline_ms=deadline_ms
        )
        await world.advance(900)
        assert await holders(world) == [session_id]
        await world.advance(2_000)

        with pytest.raises(ConnectionLostError):
            await soon(waiting)
        assert await holders(world) == []


@pytest.mark.parametrize("request_id", [None, NUMBERED])
async def test_a_disk_that_is_full_when_the_turn_comes(request_id: RequestId | None) -> None:
    """The grant cannot be confirmed here: it is given back, or left for the same number."""
    async with cluster(config=WITHOUT_LEASES) as world:
        first, second = await opened(world), await opened(world)
        held = await soon(acquired(world, first))
        waiting = acquiring(world, second, at=world.follower, request=request_id)
        await settle()
        engine = world.engines[world.follower.status().member_id]

        async def barrier() -> int:
            raise NoSpaceError("the disk of this member is full")

        engine.read_barrier = barrier  # type: ignore[method-assign]
        await release(world, held)

        if request_id is None:
            with pytest.raises(NoSpaceError):
                await soon(waiting)
            assert await holders(world) == []
        else:
            with pytest.raises(ConnectionLostError):
                await soon(waiting)
            await soon(acquired(world, second, request=request_id))
            assert await holders(world) == [second]


async def test_what_could_not_be_taken_back_may_stand() -> None:
    """Without a number and without a leader nobody knows, and that is what is said."""
    async with full_follower() as (world, session_id):
        await soon(acquired(world, await opened(world)))
        engine = world.engines[world.follower.status().member_id]
        entered = asyncio.Event()

        async def wait_applied(_index: int) -> None:
            world.elect(None)
            entered.set()
            raise NoSpaceError("the disk of this member is full")

        engine.wait_applied = wait_applied  # type: ignore[method-assign]
        waiting = acquiring(world, session_id, at=world.follower)
        await soon(entered.wait())
        await world.advance(2_000)

        with pytest.raises(ConnectionLostError):
            await soon(waiting)
