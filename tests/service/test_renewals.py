"""Renewals beside requests: what a heartbeat would have renewed, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.model.acquire import AcquireRequest
from coordinator.service.reads.reads import STALE
from coordinator.service.sessions.heartbeats import LeaseRenewal
from coordinator.service.writes.proposals import RequestContext
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, opened

TIMEOUT_MS = 2_000
SAFE_MS = TIMEOUT_MS - 50


async def said_by(world: World, renewal: LeaseRenewal) -> int | None:
    """Return what an answer that is ready now says of the renewal."""
    asking = asyncio.ensure_future(renewal.safe_ms())
    await settle()
    if not asking.done():
        await world.advance(100)
    renewal.stop()
    return await asking


async def is_open(world: World, session_id: str) -> bool:
    reply = await world.leader.sessions.page(STALE, world.deadline())
    return session_id in [each.session_id for each in reply.value.sessions]


@pytest.mark.parametrize("is_follower", [False, True])
async def test_a_request_renews_its_session_at_any_member(is_follower: bool) -> None:
    """Its lease begins in full, and ends if nothing follows."""
    async with cluster() as world:
        member = world.follower if is_follower else world.leader
        session_id = await opened(world, TIMEOUT_MS)
        await world.advance(1_500)

        safe_ms = await said_by(world, member.kept_sessions.renewal(session_id))

        assert safe_ms == SAFE_MS
        await world.advance(1_900)
        assert await is_open(world, session_id)
        await world.advance(300)
        assert not await is_open(world, session_id)


async def test_it_counts_from_the_arrival_of_the_request() -> None:
    """Not from when a quorum confirmed it: an answer that is late says what is left then."""
    async with cluster() as world:
        session_id = await opened(world, TIMEOUT_MS)
        world.confirming.clear()
        renewal = world.leader.kept_sessions.renewal(session_id)
        await world.advance(700)
        world.confirming.set()

        assert await said_by(world, renewal) == SAFE_MS - 700


async def test_an_answer_does_not_wait_for_it_for_long() -> None:
    """It says nothing of the session then."""
    async with cluster() as world:
        session_id = await opened(world, TIMEOUT_MS)
        world.confirming.clear()

        assert await said_by(world, world.leader.kept_sessions.renewal(session_id)) is None
        world.confirming.set()


async def test_nothing_is_renewed_by_a_leader_that_was_deposed() -> None:
    """Another one may have ended the session already."""
    async with cluster() as world:
        session_id = await opened(world, TIMEOUT_MS)
        world.has_quorum = False

        assert await said_by(world, world.leader.kept_sessions.renewal(session_id)) is None


@pytest.mark.parametrize("session_id", ["", "0123456789abcdef", "x" * 65, "\u00e9"])
async def test_nothing_is_renewed_of_what_is_no_session(session_id: str) -> None:
    """The request is answered as if it had named none."""
    async with cluster() as world:
        assert await said_by(world, world.leader.kept_sessions.renewal(session_id)) is None


async def test_what_a_heartbeat_has_to_say_is_left_to_heartbeats() -> None:
    """A bounded hold, a lost grant: the holder must hear of it as often as before."""
    async with cluster() as world:
        bounded, loser, other = [await opened(world, TIMEOUT_MS) for _ in range(3)]
        renewal = world.leader.kept_sessions.renewal
        await soon(acquired(world, bounded, "a", AcquireRequest(max_hold_ms=60_000)))
        await soon(acquired(world, loser, "b"))
        before = await said_by(world, renewal(loser))

        asked = RequestContext(None, world.deadline())
        await soon(world.leader.holding.revoke("b", None, "ann", "stuck", asked))

        assert before == SAFE_MS
        assert await said_by(world, renewal(bounded)) is None
        assert await said_by(world, renewal(loser)) is None
        assert await said_by(world, renewal(other)) == SAFE_MS


async def test_a_session_that_has_ended_is_not_renewed() -> None:
    """The request that names it may come late, or after an expiry."""
    async with cluster() as world:
        closed, expired = [await opened(world, TIMEOUT_MS) for _ in range(2)]
        await soon(world.leader.close_session(closed, None, world.deadline()))
        await world.advance(2 * TIMEOUT_MS)

        for session_id in (closed, expired):
            assert await said_by(world, world.leader.kept_sessions.renewal(session_id)) is None
