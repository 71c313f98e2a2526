"""Thousands who share a lock: let in piece by piece, by whoever leads, and all of them woken."""

from __future__ import annotations

import asyncio

from coordinator.model.limits import NEW_CLUSTER
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command, encode_command
from coordinator.state.commands import Command, Enter, FinishGrants, Kind, Release
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import SHARED, acquired, acquiring, opened, release

AT_ONCE = NEW_CLUSTER.grants_per_command_max
MANY = 2 * AT_ONCE + 50


async def _readers(world: World, session_id: str) -> None:
    for _ in range(MANY - 1):
        entry = Enter(
            ("/locks/daily",), prefix="read-", kind=Kind.SHARED, session_id=session_id, data=b"{}"
        )
        await world.leader.proposer.submit(entry, RequestContext(None, world.deadline()))


def _holders(world: World, *, at_leader: bool = True) -> int:
    member = world.leader if at_leader else world.follower
    return member._replica.machine.locks.holder_count("/locks/daily")


def _pieces(world: World) -> int:
    return [type(decode_command(entry[1]).operation) for entry in world.log].count(FinishGrants)


async def test_the_last_of_many_readers_is_granted_soon_after_the_first() -> None:
    """One waits in the last piece: nobody asks for anything, and it is told."""
    async with cluster() as world:
        session_id = await opened(world)
        writer = await acquired(world, session_id)
        await _readers(world, session_id)
        last: asyncio.Task[object] = acquiring(world, session_id, wish=SHARED, at=world.follower)
        await settle()

        await release(world, writer)

        await soon(last)
        assert _holders(world) == MANY
        assert _pieces(world) == 2


async def test_another_leader_goes_on_where_the_one_before_stopped() -> None:
    """Who is still to be granted is in the state, so nobody has to remember it."""
    async with cluster() as world:
        session_id = await opened(world)
        writer = await acquired(world, session_id)
        await _readers(world, session_id)
        world.elect(None)
        release = Release(writer.path, writer.fencing_token)
        world.commit(encode_command(Command(release, 5)))
        await settle()
        assert _holders(world, at_leader=False) == AT_ONCE
        world.elect("2")

        await world.advance(200)

        assert _holders(world) == MANY - 1
