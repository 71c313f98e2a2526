"""What members say of themselves, asked by many that look at the cluster at once."""

from __future__ import annotations

import asyncio

from coordinator.service.reporting.members import REQUEST_KIND, SHARED_MS
from tests.service.fake_cluster import World, cluster, soon


def asked(world: World) -> int:
    """Return how often members were asked by another one what they say of themselves."""
    return sum(kind == REQUEST_KIND for _, _, kind in world.requests)


async def test_a_thousand_who_look_at_once_ask_each_member_once() -> None:
    """And who comes within half a second of the question; later ones ask again."""
    async with cluster() as world:
        reports = world.follower.reports
        lists = await soon(asyncio.gather(*(reports.all() for _ in range(1_000))))
        others = len(world.engines) - 1
        assert asked(world) == others
        assert all(each is lists[0] for each in lists)

        await world.advance(SHARED_MS - 100)
        await soon(reports.all())
        assert asked(world) == others

        await world.advance(100)
        await soon(reports.all())
        assert asked(world) == 2 * others


async def test_who_leads_now_is_never_told_of_before() -> None:
    """What was said before an election is not shared after it."""
    async with cluster() as world:
        reports = world.leader.reports
        before = await soon(reports.all())
        world.elect("2")
        after = await soon(reports.all())

    for said, leader in ((before, "1"), (after, "2")):
        assert {each.facts.leader_id for each in said.members if each.facts} == {leader}


async def test_who_goes_away_ends_it_for_nobody_else() -> None:
    async with cluster() as world:
        one, other = (asyncio.create_task(world.leader.reports.all()) for _ in range(2))
        await asyncio.sleep(0)
        one.cancel()

        assert all(each.facts is not None for each in (await soon(other)).members)
        assert one.cancelled()
