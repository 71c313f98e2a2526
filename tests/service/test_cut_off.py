"""A member that knows no leader for long may be cut off: who waits there for long is sent away.

What was proposed may have been done, so nothing is withdrawn that its client may repeat elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from coordinator.errors import ConnectionLostError, NoLeaderError
from coordinator.model.events import Bookmark, Change, WatchSelector
from coordinator.model.grants import GrantReply
from coordinator.service.base.leadership import LEADER_WITHIN_MS
from coordinator.service.writes.proposals import REQUEST_KIND, RequestContext
from coordinator.state.commands import Create, RequestId
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, acquiring, lagging, opened, release

FAR_MS = 600_000
NUMBER = RequestId("client", number=9, floor_index=0)


async def held(world: World) -> GrantReply:
    return await acquired(world, await opened(world, 3_600_000))


def contending(world: World, session_id: str, at: str) -> asyncio.Task[GrantReply]:
    return acquiring(
        world, session_id, at=world.members[at], request=NUMBER, wait_deadline_ms=FAR_MS
    )


def queue(world: World) -> int:
    return len(world.leader._replica.machine.children("/locks/daily") or ())


async def test_who_is_queued_is_sent_away_and_stays_queued() -> None:
    """It goes on at the same place elsewhere, also when the member that it left is back."""
    async with cluster() as world:
        grant, session_id = await held(world), await opened(world, 3_600_000)
        waiting = contending(world, session_id, "3")
        await world.advance(500)
        world.elect(None)
        await world.advance(LEADER_WITHIN_MS - 200)
        assert not waiting.done()
        await world.advance(400)

        with pytest.raises(ConnectionLostError, match="repeat it with the same request number"):
            await soon(waiting)
        world.elect("2")
        again = contending(world, session_id, "2")
        await world.advance(15_000)
        assert queue(world) == 2
        await release(world, grant)
        assert (await soon(again)).session_id == session_id


async def test_who_cannot_repeat_it_is_taken_out_of_the_queue() -> None:
    """Without a request number nobody could find the contender again."""
    async with cluster() as world:
        await held(world)
        waiting = acquiring(
            world, await opened(world, 3_600_000), at=world.members["3"], wait_deadline_ms=FAR_MS
        )
        await world.advance(500)
        world.elect(None)
        await world.advance(LEADER_WITHIN_MS + 2_000)
        with pytest.raises(ConnectionLostError, match="may still be queued"):
            await soon(waiting)
        world.elect("2")
        await world.advance(2_000)
        assert queue(world) == 1


@pytest.mark.parametrize("at", ["1", "3"])
async def test_what_was_proposed_is_unknown_and_not_undone(at: str) -> None:
    """By the former leader itself, or on the way to it."""
    async with cluster() as world:
        session_id = await opened(world, 3_600_000)
        world.fault = lambda _from, _to, kind: "frozen" if kind == REQUEST_KIND else None
        world.has_quorum = False
        waiting = contending(world, session_id, at)
        await world.advance(500)
        world.elect(None)
        await world.advance(LEADER_WITHIN_MS + 200)

        with pytest.raises(ConnectionLostError, match="may be under way; ask another member"):
            await soon(waiting)
        world.fault, world.has_quorum = lambda _from, _to, _kind: None, True
        world.elect("2")
        again = contending(world, session_id, "2")
        await world.advance(15_000)
        assert (await soon(again)).session_id == session_id
        assert queue(world) == 1


async def test_who_is_queued_unseen_is_sent_away() -> None:
    """The entry is in the log of the others; this member is cut off before it hears of it."""
    async with cluster() as world:
        behind, session_id = lagging(world), await opened(world, 3_600_000)
        waiting = acquiring(world, session_id, at=behind, request=NUMBER, wait_deadline_ms=FAR_MS)
        await world.advance(500)
        world.elect(None)
        await world.advance(LEADER_WITHIN_MS + 200)

        with pytest.raises(ConnectionLostError, match="may still be queued"):
            await soon(waiting)
        world.elect("2")
        assert queue(world) == 1


async def rest(stream: AsyncIterator[object]) -> None:
    """Read to the end: bookmarks."""
    async for item in stream:
        assert isinstance(item, Bookmark)


async def test_watches_end_after_what_was_buffered() -> None:
    """Their readers go on elsewhere from the last zxid; one that comes later has as long."""
    async with cluster() as world:
        member = world.members["3"]
        busy, idle = (member.watches.watch([WatchSelector("/a")]) for _ in range(2))
        observed = member.elections.observe("boss")
        assert (await soon(anext(observed))).elected is None
        await world.leader.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        assert isinstance(await soon(anext(idle)), Change)
        world.elect(None)
        await world.advance(1_000)
        later = asyncio.create_task(rest(member.watches.watch([WatchSelector("/a")])))
        ends = [asyncio.create_task(rest(each)) for each in (idle, observed)]
        await world.advance(LEADER_WITHIN_MS - 1_200)
        assert not any(each.done() for each in ends)
        await world.advance(400)

        assert isinstance(await soon(anext(busy)), Change)
        for end in (asyncio.create_task(rest(busy)), *ends):
            with pytest.raises(NoLeaderError, match="knew no leader for 5000 ms"):
                await soon(end)
        assert not later.done()
        await world.advance(1_000)
        with pytest.raises(NoLeaderError):
            await soon(later)


async def test_an_election_sends_nobody_away() -> None:
    """One after the other, each shorter than it may last: all waits go on."""
    async with cluster() as world:
        grant = await held(world)
        waiting = contending(world, await opened(world, 3_600_000), "3")
        watch = asyncio.create_task(anext(world.members["3"].watches.watch([WatchSelector("/a")])))
        await settle()
        for leader_id in ("2", "1", "2"):
            world.elect(None)
            await world.advance(LEADER_WITHIN_MS - 500)
            world.elect(leader_id)
            await world.advance(200)
        await release(world, grant)
        await soon(waiting)
        watch.cancel()
