"""Reads: linearizable on any member by default; stale and at-least only when asked for."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import BadArgumentsError, NoLeaderError, NoNodeError, ShuttingDownError
from coordinator.service.reads.reads import LINEARIZABLE, STALE, at_least
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create, SetData
from tests.service.fake_cluster import World, cluster, settle, soon


async def write(world: World, path: str, data: bytes = b"") -> None:
    await world.leader.proposer.submit(Create(path, data), RequestContext(None, world.deadline()))


async def test_a_read_on_another_member_sees_what_was_written_before() -> None:
    """Default mode never answers with the older value, however far the member lags."""
    async with cluster() as world:
        await write(world, "/a", b"old")
        engine = world.engines["3"]
        engine.is_applying = False
        new = SetData("/a", b"new")
        await world.leader.proposer.submit(new, RequestContext(None, world.deadline()))
        reading = asyncio.create_task(world.members["3"].get("/a", LINEARIZABLE, world.deadline()))
        await settle()
        assert not reading.done()
        engine.is_applying = True
        engine.catch_up()

        reply = await soon(reading)

        assert (reply.value[0], reply.zxid, reply.age_ms) == (b"new", 2, None)


async def test_a_stale_read_answers_at_once_with_its_age() -> None:
    """It is labelled with its zxid and how long ago there was contact."""
    async with cluster() as world:
        await write(world, "/a", b"old")
        await world.advance(100)
        world.elect(None)
        world.has_quorum = False
        await world.advance(3_000)

        reply = await soon(world.follower.get("/a", STALE, world.deadline()))

        assert (reply.value[0], reply.zxid, reply.age_ms) == (b"old", 1, 3_000)


async def test_a_leader_that_lost_its_quorum_counts_from_then_on() -> None:
    """From what it heard, not from when it was asked or stepped down."""
    async with cluster() as world:
        await write(world, "/a")
        await world.advance(5_500)
        member, ages = world.leader, list[int]()
        world.has_quorum = False
        for _ in range(2):
            await world.advance(1_500)
            ages.append((await soon(member.get("/a", STALE, world.deadline()))).age_ms or 0)
            if world.leader_id is not None:
                world.elect(None)

        assert ages == [1_500, 3_000]


async def test_a_stale_read_on_a_ready_leader_has_no_age() -> None:
    """It has just been confirmed."""
    async with cluster() as world:
        await write(world, "/a")
        await soon(world.leader.get("/a", LINEARIZABLE, world.deadline()))

        reply = await world.leader.get("/a", STALE, world.deadline())

        assert reply.age_ms == 0


async def test_the_age_is_unknown_where_there_never_was_contact() -> None:
    """A member that has just started alone does not pretend to know."""
    async with cluster(leader_id=None) as world:
        reply = await world.follower.children("/", STALE, world.deadline())

        assert reply.age_ms is None


async def test_without_a_quorum_a_linearizable_read_ends_at_its_deadline() -> None:
    """NoLeaderError, definite, and not before the deadline."""
    async with cluster() as world:
        await write(world, "/a")
        world.has_quorum = False
        reading = asyncio.create_task(world.follower.get("/a", LINEARIZABLE, world.deadline(1_000)))
        await world.advance(900)
        assert not reading.done()
        await world.advance(100)

        with pytest.raises(NoLeaderError):
            await soon(reading)


async def test_a_read_of_at_least_a_zxid_waits_for_it() -> None:
    """Answered as soon as that zxid is applied here, without asking the leader."""
    async with cluster() as world:
        reading = asyncio.create_task(world.follower.get("/a", at_least(2), world.deadline()))
        await write(world, "/a")
        await settle()
        assert not reading.done()
        await write(world, "/b")

        assert (await soon(reading)).zxid == 2
        assert world.engines["3"].barrier_count == 0


async def test_a_zxid_that_does_not_come_is_no_leader_at_the_deadline() -> None:
    """Definite: nothing was proposed."""
    async with cluster() as world:
        reading = asyncio.create_task(world.follower.get("/", at_least(99), world.deadline(1_000)))
        await world.advance(1_000)

        with pytest.raises(NoLeaderError):
            await soon(reading)


async def test_children_come_in_pages_in_the_order_of_their_names() -> None:
    """A page says how to go on, with or without the Stats."""
    async with cluster(1) as world:
        for name in "bdace":
            await write(world, f"/{name}")
        member, deadline_ms = world.leader, world.deadline()

        first = (await member.children("/", LINEARIZABLE, deadline_ms, limit=2)).value
        second = (
            await member.children(
                "/", LINEARIZABLE, deadline_ms, after=first.next, limit=3, with_stat=True
            )
        ).value

        assert (first.names, first.stats, first.next) == (("a", "b"), (), "b")
        assert (second.names, second.next) == (("c", "d", "e"), None)
        assert [each.czxid for each in second.stats] == [4, 2, 5]
        assert second.stat.num_children == 5


async def test_what_is_not_there_and_what_cannot_be_are_said_apart() -> None:
    """NoNode for a missing znode, BadArguments for an impossible path."""
    async with cluster(1) as world:
        for read in (world.leader.get, world.leader.children):
            with pytest.raises(NoNodeError):
                await read("/missing", LINEARIZABLE, world.deadline())
            with pytest.raises(BadArgumentsError):
                await read("no/slash", LINEARIZABLE, world.deadline())


async def test_a_stopping_member_ends_reads_that_wait() -> None:
    """The reader goes to another member at once."""
    async with cluster() as world:
        member = world.members["3"]
        reading = asyncio.create_task(member.get("/", at_least(99), world.deadline()))
        await settle()
        await member.stop()

        with pytest.raises(ShuttingDownError):
            await soon(reading)


async def test_a_zxid_that_another_member_told_is_waited_for() -> None:
    """A member that lags catches up first; what happened nowhere is refused, not waited for."""
    async with cluster() as world:
        await write(world, "/a")
        engine, member = world.engines["3"], world.members["3"]
        engine.is_applying = False
        new = SetData("/a", b"new")
        await world.leader.proposer.submit(new, RequestContext(None, world.deadline()))
        reaching = asyncio.create_task(member.reached(2, world.deadline()))
        await settle()
        assert not reaching.done()
        engine.is_applying = True
        engine.catch_up()

        await soon(reaching)
        await soon(member.reached(2, world.deadline()))
        with pytest.raises(BadArgumentsError, match="zxid 3 has not happened yet; the newest is 2"):
            await soon(member.reached(3, world.deadline()))


async def test_without_a_quorum_nobody_knows_what_has_not_happened() -> None:
    """A member that is cut off says so; what it has seen itself it knows."""
    async with cluster() as world:
        await write(world, "/a")
        world.has_quorum = False
        reaching = asyncio.create_task(world.follower.reached(2, world.deadline(1_000)))
        await world.follower.reached(1, world.deadline(1_000))
        await world.advance(900)
        assert not reaching.done()
        await world.advance(100)

        with pytest.raises(NoLeaderError):
            await soon(reaching)


async def test_reads_that_were_given_up_are_let_go() -> None:
    """A client that polls an idle cluster with a zxid of the future costs nothing for ever."""
    async with cluster() as world:
        member = world.leader
        patient = asyncio.create_task(member.get("/", at_least(3), world.deadline()))
        hasty = [
            asyncio.create_task(member.get("/", at_least(1_000), world.deadline(500)))
            for _ in range(1_000)
        ]
        await settle()
        await world.advance(1_000)
        assert all(isinstance(each.exception(), NoLeaderError) for each in hasty)

        assert len(member._reads._waiting) <= 2
        for path in ("/a", "/b", "/c"):
            await write(world, path)
        assert (await soon(patient)).zxid == 3
