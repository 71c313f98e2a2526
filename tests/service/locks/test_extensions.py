"""Bounded holds that their holders extend: an extension that was answered is never undone.

``tests/traces/locks-extended-hold.txt`` shows when an extended hold ends; here are the races.
"""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.errors import NotOwnerError
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import ExtendReply, GrantReply
from coordinator.node.config import Config, SessionConfig
from coordinator.raft.engine import Applied
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command
from coordinator.state.commands import EndHold, RequestId
from tests.service.fake_cluster import World, cluster, soon
from tests.service.locks.lock_scenes import acquired, looked, opened

LONG_SESSIONS = Config(sessions=SessionConfig(timeout_ms_default=600_000))


async def extended(
    world: World, grant: GrantReply, request: RequestId | None = None, **times: int
) -> ExtendReply:
    asked = RequestContext(request, world.deadline())
    return await soon(world.follower.holding.extend(grant.lock, grant.grant_id, asked, **times))


async def held(world: World, ms: int = 1_000, name: str | tuple[str, ...] = "daily") -> GrantReply:
    session_id = await opened(world)
    return await soon(acquired(world, session_id, name, AcquireRequest(max_hold_ms=ms)))


async def holds(world: World, name: str = "daily") -> bool:
    return bool((await looked(world, name)).holders)


@pytest.mark.parametrize("times", [{"by_ms": 2_000}, {"to_ms": 2_500}])
async def test_an_end_that_is_under_way_when_the_hold_is_extended_is_void(
    times: dict[str, int],
) -> None:
    """The log puts the extension before it; the hold lasts to its new end, and not longer."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world)
        engine = world.engines[world.leader_id]
        propose, ends = engine.propose, []

        async def slow(command: bytes, **how: Any) -> Applied:
            operation = decode_command(command).operation
            if isinstance(operation, EndHold):
                ends.append(operation.extensions)
                if len(ends) == 1:
                    await extended(world, grant, **times)
            return await propose(command, **how)

        engine.propose = slow  # type: ignore[method-assign]
        await world.advance(1_100)
        assert ends == [0]
        await world.advance(1_700)
        assert await holds(world), "the end of before took it"
        await world.advance(1_000)

        assert not await holds(world)
        assert ends == [0, 1]


async def test_an_end_that_was_due_and_not_proposed_yet_is_not_proposed() -> None:
    """Between its timer and its proposal the hold was extended; the new end stands."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world)
        timers = world.leader._hold_timers
        bound = timers._bounds[grant.path]
        await world.advance(900)
        await extended(world, grant, by_ms=5_000)

        await timers._end(bound, world.term)

        assert await holds(world)
        await world.advance(5_000)
        assert await holds(world)
        await world.advance(200)
        assert not await holds(world)


async def test_a_repeated_request_adds_once() -> None:
    """The answer of the first comes again."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world)
        request = RequestId("c1", 1)
        first = await extended(world, grant, request, by_ms=1_000)
        again = await extended(world, grant, request, by_ms=1_000)

        assert (again.max_hold_ms, again.extensions) == (first.max_hold_ms, 1) == (2_000, 1)
        await world.advance(2_200)
        assert not await holds(world)


async def test_several_locks_are_extended_as_one() -> None:
    """By the grant of any of them, and their heartbeats say so of each."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world, name=("a", "b"))
        await extended(world, grant.grants[1], by_ms=1_000)

        ack = await soon(world.leader.heartbeat(grant.session_id, world.deadline()))
        assert dict(ack.holds) == {each.path: 2_000 for each in grant.grants}
        await world.advance(1_900)
        assert await holds(world, "a")
        await world.advance(300)
        assert not await holds(world, "a")
        assert not await holds(world, "b")


async def test_what_ended_is_not_extended() -> None:
    """Not even if nobody has come since."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world)
        await world.advance(1_200)
        with pytest.raises(NotOwnerError):
            await extended(world, grant, to_ms=9_000)


async def test_a_view_says_since_when_the_bound_counts() -> None:
    """What is left is told with how often it was extended."""
    async with cluster(config=LONG_SESSIONS) as world:
        grant = await held(world)
        await world.advance(500)
        await extended(world, grant, to_ms=3_000)

        (seen,) = (await looked(world)).holders
        assert (seen.max_hold_ms, seen.extensions, seen.safe_ms) == (3_000, 1, 3_000)
