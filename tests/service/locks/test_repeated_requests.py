"""An acquire or a release that is sent again: the same grant, once, and nobody else's."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    NotOwnerError,
    SessionExpiredError,
)
from coordinator.state.commands import RequestId
from tests.service.fake_cluster import cluster, settle, soon
from tests.service.locks.lock_scenes import (
    LOCK,
    WITHOUT_LEASES,
    acquired,
    acquiring,
    answered_late,
    lagging,
    opened,
    queue_of,
    release,
)


async def test_an_acquire_whose_reply_was_lost_gets_the_same_grant() -> None:
    """Same grant, same token, same place; never a second contender."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)

        first = await soon(acquired(world, session_id, request=request))
        again = await soon(acquired(world, session_id, request=request, at=world.follower))

        assert (again.grant_id, again.fencing_token) == (first.grant_id, first.fencing_token)
        assert await queue_of(world) == [first.grant_id]


async def test_a_grant_is_known_to_every_later_leader() -> None:
    """The leader dies right after it answered: no second holder."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id))
        second = acquiring(world, session_id, at=world.members["3"])
        await settle()
        for leader_id in ("2", "3", "1"):
            world.elect(leader_id)
            await settle()
            assert (await queue_of(world))[0] == grant.grant_id

        assert not second.done()
        await release(world, grant)
        assert (await soon(second)).fencing_token > grant.fencing_token


async def test_an_attempt_that_ended_cannot_be_had_again() -> None:
    """Repeating a released, timed out or abandoned acquire says that it is over."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        released, abandoned = RequestId("client", 1), RequestId("client", 2)
        await release(world, await soon(acquired(world, session_id, request=released)))
        await soon(acquired(world, session_id, request=abandoned))
        done = await world.leader.locks.abandon(LOCK, "client", 2, 0, world.deadline())

        with pytest.raises(LockLostError):
            await soon(acquired(world, session_id, request=released))
        with pytest.raises(LockTimeoutError):
            await soon(acquired(world, session_id, request=abandoned))
        assert done.deleted_path is not None
        assert await queue_of(world) == []


async def test_an_acquire_repeated_after_the_end_of_its_session_is_refused() -> None:
    """The old contender went with the session, and nothing revives it."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        await soon(acquired(world, session_id, request=request))
        await world.leader.close_session(session_id, None, world.deadline())

        with pytest.raises(SessionExpiredError):
            await soon(acquired(world, session_id, request=request))


async def test_a_request_number_of_another_acquire_is_a_mistake() -> None:
    """It must not be answered with the grant of another lock or session."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other, request = await opened(world), await opened(world), RequestId("c", 1)
        await soon(acquired(world, session_id, request=request))

        with pytest.raises(BadArgumentsError):
            await soon(acquired(world, session_id, request=request, name="another"))
        with pytest.raises(BadArgumentsError):
            await soon(acquired(world, other, request=request))


async def test_a_release_can_be_repeated_and_never_frees_a_later_grant() -> None:
    """By grant id, not by name."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        await release(world, first)
        second = await soon(acquired(world, session_id))

        await release(world, first)
        await release(world, first, at=world.follower)

        assert await queue_of(world) == [second.grant_id]


async def test_a_release_after_the_lease_ended_is_not_the_owners() -> None:
    """NotOwner names the present holder, who keeps the lock."""
    async with cluster() as world:
        slow, quick = await opened(world), await opened(world)
        lost = await soon(acquired(world, slow))
        await world.leader.close_session(slow, None, world.deadline())
        held = await soon(acquired(world, quick))

        with pytest.raises(NotOwnerError) as caught:
            await release(world, lost, at=world.follower)
        assert caught.value.holder["grant_id"] == held.grant_id
        assert await queue_of(world) == [held.grant_id]


@pytest.mark.parametrize("catches_up", [True, False])
async def test_a_refused_release_names_nobody_who_has_given_it_back(catches_up: bool) -> None:
    """A member that lags behind names the holder of now, or nobody; never the one before."""
    async with cluster(config=WITHOUT_LEASES) as world:
        first, second, third = [await opened(world) for _ in range(3)]
        lost = await soon(acquired(world, first))
        await world.leader.close_session(first, None, world.deadline())
        former = await soon(acquired(world, second))
        behind = lagging(world)
        await release(world, former)
        holder = await soon(acquired(world, third))

        refused = asyncio.create_task(
            behind.locks.release(LOCK, lost.grant_id, None, world.deadline(1_000))
        )
        await answered_late(world, behind, catches_up=catches_up)

        with pytest.raises(NotOwnerError) as caught:
            await soon(refused)
        named = caught.value.fields["holder"]
        assert (named and named["grant_id"]) == (holder.grant_id if catches_up else None)
