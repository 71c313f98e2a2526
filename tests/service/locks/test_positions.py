"""Positions in the queue: said when they change, after a snapshot, and not too often."""

from __future__ import annotations

from coordinator.service.locks.positions import EVERY_MS
from tests.service.fake_cluster import cluster, settle, soon
from tests.service.locks.lock_scenes import (
    WITHOUT_LEASES,
    acquired,
    acquiring,
    opened,
    release,
)


async def test_positions_are_told_as_they_change() -> None:
    """First the place at entry, then each better one; the grant itself is not a position."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        tasks = [acquiring(world, session_id) for _ in range(2)]
        await settle()
        seen: list[int] = []
        last = acquiring(world, session_id, at=world.follower, on_position=seen.append)
        await settle()
        await release(world, first)
        for task in tasks:
            await release(world, await soon(task))
            await world.advance(EVERY_MS)
        await soon(last)

        assert seen == [3, 2, 1]


async def test_positions_are_told_after_a_snapshot_too() -> None:
    """Who was before left while this member lagged behind, and it never saw them go."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        before = acquiring(world, session_id)
        await settle()
        seen: list[int] = []
        last = acquiring(world, session_id, at=world.members["3"], on_position=seen.append)
        await settle()
        engine = world.engines["3"]
        engine.is_applying = False
        await release(world, first)
        await soon(before)
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None
        engine.install(leader_replica.snapshot(), index=len(world.log))
        engine.is_applying = True
        await world.advance(EVERY_MS)

        assert seen == [2, 1]
        last.cancel()


async def test_a_queue_that_moves_fast_tells_positions_twice_a_second() -> None:
    """The first change at once, then the latest one: a hand-over wakes one waiter, not all."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        tasks = [acquiring(world, session_id) for _ in range(20)]
        await settle()
        seen: list[int] = []
        last = acquiring(world, session_id, at=world.follower, on_position=seen.append)
        await settle()
        grants = [first]

        for task in tasks[:15]:
            await release(world, grants.pop())
            grants.append(await soon(task))
        await settle()
        told_at_once = list(seen)
        await world.advance(EVERY_MS)

        assert told_at_once == [21, 20]
        assert seen == [21, 20, 6]
        last.cancel()


async def test_very_many_are_told_more_seldom() -> None:
    """A member tells about a thousand positions a second, however many wait."""
    async with cluster(1, config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        grants = [await soon(acquired(world, session_id))]
        told = [0]

        def count(_position: int) -> None:
            told[0] += 1

        many = [acquiring(world, session_id, on_position=count) for _ in range(2_000)]
        await settle()
        while told[0] < len(many):
            await settle()
        told[0] = 0

        for task in many[:40]:
            await release(world, grants.pop())
            grants.append(await soon(task))
            await world.advance(100)

        assert told[0] <= 3 * len(many), "in four seconds, each twice or three times"
        for task in many[40:]:
            task.cancel()
