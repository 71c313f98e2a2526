"""The reaper: idle containers and ttl znodes go, late rather than early, and only by the leader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.errors import NoSpaceError
from coordinator.node.config import Config, MemberLimits
from coordinator.raft.engine import Applied
from coordinator.service.reads.reads import STALE
from coordinator.service.writes.proposals import RequestContext
from coordinator.service.writes.reaper import LOOK_EVERY_MS
from coordinator.state.codec import decode_command
from coordinator.state.commands import Create, CreateMode, Delete, Operation, Reap, SetData
from tests.service.fake_cluster import World, cluster, counted

CONFIG = Config(limits=replace(MemberLimits(), reap_interval_ms=1_000))


async def write(world: World, *operations: Operation) -> None:
    for operation in operations:
        await world.leader.proposer.submit(operation, RequestContext(None, world.deadline()))


async def names(world: World) -> tuple[str, ...]:
    return (await world.leader.children("/", STALE, world.deadline())).value.names


async def test_a_container_goes_after_its_last_child() -> None:
    """When it was empty for ``reap_interval_ms``; one that never had a child stays."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/used", mode=CreateMode.CONTAINER), Create("/used/x"))
        await write(world, Create("/new", mode=CreateMode.CONTAINER), Delete("/used/x"))

        await world.advance(900)
        assert await names(world) == ("new", "used")
        await world.advance(500 + LOOK_EVERY_MS)

        assert await names(world) == ("new",)
        assert counted(world.leader, "znodes_reaped_total") == 1


async def test_a_container_that_is_used_again_soon_stays() -> None:
    """A busy lock keeps its container although it is often empty when looked at."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/c", mode=CreateMode.CONTAINER))
        for number in range(5):
            await write(world, Create(f"/c/{number}"), Delete(f"/c/{number}"))
            await world.advance(900)

        assert await names(world) == ("c",)


async def test_a_ttl_znode_goes_when_nobody_changed_it_for_its_ttl() -> None:
    """Not before its ttl; a change starts it again."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=3_000))
        await world.advance(2_500)
        await write(world, SetData("/t", b"again"))
        await world.advance(2_900)
        assert await names(world) == ("t",)
        await world.advance(500)

        assert await names(world) == ()


async def test_a_new_leader_counts_a_ttl_from_when_it_first_saw_the_znode() -> None:
    """A change of leader makes it live longer, never shorter."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=3_000))
        await world.advance(2_500)
        world.elect("2")
        await world.advance(2_900)
        assert await names(world) == ("t",)
        await world.advance(600)

        assert await names(world) == ()


@pytest.mark.parametrize("has_far_one", [True, False])
async def test_a_leader_reaps_also_in_its_second_leadership(has_far_one: bool) -> None:
    """What was due in the first one, in an hour or nothing at all, says nothing of the second."""
    async with cluster(config=CONFIG) as world:
        if has_far_one:
            await write(world, Create("/far", mode=CreateMode.TTL, ttl_ms=3_600_000))
        await world.advance(1_000)
        world.elect("2")
        await world.advance(1_000)
        world.elect("1")
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=500))

        await world.advance(500 + 2 * LOOK_EVERY_MS)

        assert await names(world) == (("far",) if has_far_one else ())


async def test_a_reap_names_what_was_seen_and_the_term() -> None:
    """So that a change before it in the log, or another leader, makes it void."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=1))
        await world.advance(2_100)

        operation = decode_command(world.log[-1][1]).operation
        assert operation == Reap("/t", mzxid=1, pzxid=1, term=world.term)


async def test_a_short_ttl_is_over_within_a_second() -> None:
    """Whatever the configuration says of containers, and however many are due at once."""
    async with cluster(config=Config()) as world:
        creates = [Create(f"/t{each}", mode=CreateMode.TTL, ttl_ms=100) for each in range(200)]
        await write(world, *creates)

        await world.advance(1_000)

        assert await names(world) == ()


async def test_a_znode_that_is_always_changed_costs_one_place() -> None:
    """Each change starts its ttl again; the leader keeps one entry of it, not one for each."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=500))
        for _ in range(40):
            await write(world, SetData("/t", b"again"))
            await world.advance(100)
        assert await names(world) == ("t",)

        assert len(world.leader._reaper._heap) == 1
        await world.advance(1_000)
        assert await names(world) == ()
        assert not world.leader._reaper._heap


async def test_a_reap_that_found_no_quorum_is_tried_again() -> None:
    """By the same leader, at the next look."""
    async with cluster(config=CONFIG) as world:
        await write(world, Create("/t", mode=CreateMode.TTL, ttl_ms=100))
        await world.advance(50)
        engine = world.engines[world.leader.status().member_id]
        refuse, propose = True, engine.propose

        async def refusing(command: bytes) -> Applied:
            if refuse:
                raise NoSpaceError("no room")
            return await propose(command)

        engine.propose = refusing  # type: ignore[method-assign]
        await world.advance(1_000)
        assert await names(world) == ("t",)

        refuse = False
        await world.advance(500)

        assert await names(world) == ()
