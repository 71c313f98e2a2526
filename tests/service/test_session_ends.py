"""The end of a session with many locks: piece by piece, whoever leads, and waited for."""

from __future__ import annotations

import asyncio

from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import CloseSession, Command, Create, CreateMode, FinishSession
from tests.service.fake_cluster import World, cluster, settle, soon

MANY = 2 * ENDED_AT_ONCE + 50


async def _session_with_many(world: World) -> str:
    opened = await soon(world.leader.open_session(None, "many", None, world.deadline()))
    for number in range(MANY):
        create = Create(
            f"/e{number}", data=b"", mode=CreateMode.EPHEMERAL, session_id=opened.session_id
        )
        await world.leader.proposer.submit(create, RequestContext(None, world.deadline()))
    return opened.session_id


def _commands(world: World) -> list[object]:
    return [decode_command(entry[1]).operation for entry in world.log]


async def test_a_close_returns_when_nothing_of_the_session_is_left() -> None:
    """Also at a member that does not lead, whose next read sees it."""
    async with cluster() as world:
        session_id = await _session_with_many(world)

        await soon(world.follower.close_session(session_id, None, world.deadline()))

        assert world.follower.status().znodes == 1
        ends = [each for each in _commands(world) if isinstance(each, CloseSession | FinishSession)]
        assert ends == [
            CloseSession(session_id, failure="", at_once=ENDED_AT_ONCE),
            FinishSession(session_id, ENDED_AT_ONCE),
            FinishSession(session_id, ENDED_AT_ONCE),
        ]


async def test_another_leader_goes_on_where_the_one_before_stopped() -> None:
    """What is left is in the state, so nobody has to remember it."""
    async with cluster() as world:
        session_id = await _session_with_many(world)
        world.elect(None)
        world.commit(
            encode_command(Command(CloseSession(session_id, failure="", at_once=ENDED_AT_ONCE), 5))
        )
        await settle()
        assert world.follower.status().znodes == 1 + MANY - ENDED_AT_ONCE
        world.elect("2")

        await world.advance(200)

        assert world.leader.status().znodes == 1
        assert world.leader.status().sessions == 0


async def test_a_close_by_its_deadline_is_a_close_all_the_same() -> None:
    """The session is over; what it owned goes on going."""
    async with cluster() as world:
        session_id = await _session_with_many(world)

        closing = asyncio.create_task(
            world.leader.close_session(session_id, None, world.deadline(1_000))
        )
        await settle()
        await world.advance(1_100)

        assert (await soon(closing)).was_open
        assert world.leader.status().sessions == 0
