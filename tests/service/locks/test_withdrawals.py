"""What an attempt leaves is taken back until it is done, by a member that runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    LeaderChangedError,
    NoLeaderError,
    NotOwnerError,
    OutcomeUnknownError,
    RequestForgottenError,
    ThrottledError,
)
from coordinator.model.grants import GrantReply
from coordinator.node.config import Config, RaftConfig
from coordinator.service.locks.withdrawals import Leave
from coordinator.service.writes.proposals import Committed, Proposer, RequestContext
from coordinator.state.commands import Abandon, Create, RequestId
from tests.service.fake_cluster import STEP_MS, World, cluster, settle, soon
from tests.service.locks.lock_scenes import (
    WITHOUT_LEASES,
    acquired,
    acquiring,
    looked,
    opened,
    release,
)

SMALL = Config(raft=RaftConfig(proposals_bytes_max=3_000))
NUMBERED = RequestId("client", number=7, floor_index=0)


class Failing:
    """Proposals that are refused with ``errors`` first, one after the other."""

    def __init__(self, proposer: Proposer, errors: list[CoordinatorError]) -> None:
        self._proposer = proposer
        self._errors = errors

    async def submit(self, *arguments: Any, **options: Any) -> Committed:
        if self._errors:
            raise self._errors.pop(0)
        return await self._proposer.submit(*arguments, **options)


@pytest.mark.parametrize(
    ("errors", "is_done"),
    [
        ([], True),
        ([NotOwnerError("it had gone")], True),
        ([RequestForgottenError("whose?")], False),
        ([BadArgumentsError("what?")], False),
        ([NoLeaderError("nobody leads"), ThrottledError("too much")], True),
        ([LeaderChangedError("who knows")], True),
    ],
)
async def test_what_may_succeed_later_is_tried_again(
    errors: list[CoordinatorError], is_done: bool
) -> None:
    """And what never will is not."""
    async with cluster(config=WITHOUT_LEASES) as world:
        leaving = world.leader._queues._leaving
        leaving._proposer = Failing(world.leader.proposer, errors)  # type: ignore[assignment]
        leave = Leave(
            Abandon("client", number=7, floor_index=0),
            session_id=await opened(world),
            word="lock",
            has_number=True,
        )

        task = leaving.start(leave)
        await world.advance(5_000)

        assert await soon(task) is is_done
        assert errors == []


async def test_a_member_that_stops_takes_nothing_back() -> None:
    """It could not; whoever waits for it is not held up."""
    async with cluster(config=WITHOUT_LEASES) as world:
        leave = Leave(
            Abandon("client", number=7, floor_index=0),
            session_id=await opened(world),
            word="lock",
            has_number=False,
        )
        world.elect(None)
        task = world.members["1"]._queues._leaving.start(leave)
        await settle()
        await soon(world.members["1"].stop())

        assert task.cancelled() or not task.result()


async def test_leaving_is_not_refused_for_want_of_room() -> None:
    """A release, an abandon and an end of a session are small, and are what makes room."""
    async with cluster(config=SMALL) as world:
        holder, waiter = await opened(world, 60_000), await opened(world, 60_000)
        held = await soon(acquired(world, holder))
        waiting = acquiring(world, waiter, leave_on_cancel=True)
        await settle()
        world.has_quorum = False
        writing = [
            asyncio.create_task(
                world.leader.proposer.submit(
                    Create(path, b"x" * 1_400), RequestContext(None, world.deadline())
                )
            )
            for path in ("/a", "/b")
        ]
        await settle()
        with pytest.raises(ThrottledError):
            await soon(
                world.leader.proposer.submit(
                    Create("/c", b"x" * 1_400), RequestContext(None, world.deadline())
                )
            )

        world.has_quorum = True
        waiting.cancel()
        await settle()
        await soon(world.leader.locks.release("daily", held.grant_id, None, world.deadline()))
        await soon(world.leader.close_session(holder, None, world.deadline()))

        view = await looked(world)
        assert (view.holders, view.queue) == ((), ())
        for each in writing:
            each.cancel()


@asynccontextmanager
async def left_in_vain(
    request: RequestId | None,
) -> AsyncIterator[tuple[World, GrantReply, str]]:
    """A waiter went away while nobody led; yields the world, who holds, and the waiter."""
    async with cluster(config=WITHOUT_LEASES) as world:
        holder, waiter = await opened(world, 3_600_000), await opened(world, 3_600_000)
        held = await soon(acquired(world, holder))
        waiting = acquiring(world, waiter, request=request, leave_on_cancel=True)
        await settle()
        world.elect(None)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        yield world, held, waiter


async def test_who_left_while_nobody_led_is_gone_when_somebody_does() -> None:
    """Without a request number nobody else can know of the contender, so it is taken back then."""
    async with left_in_vain(None) as (world, held, _):
        await world.advance(60_000)
        world.elect("2")
        await world.advance(2_000)

        await release(world, held)

        assert list((await looked(world)).holders) == []


async def test_a_late_undoing_takes_nothing_from_who_repeats_its_number() -> None:
    """Its client went on elsewhere, and holds; this member gave up in time."""
    async with left_in_vain(NUMBERED) as (world, held, waiter):
        await world.advance(60_000)
        world.elect("2")
        await release(world, held)
        await soon(acquired(world, waiter, request=NUMBERED))
        await world.advance(2_000)

        assert [each.session_id for each in (await looked(world)).holders] == [waiter]


async def test_nothing_is_undone_for_a_session_that_has_ended() -> None:
    """Its contenders went with it: the chore ends, and proposes nothing more."""
    async with left_in_vain(None) as (world, _, waiter):
        await world.advance(60_000)
        leaving = world.members["1"]._queues._leaving
        assert leaving.count == 1
        world.elect("2")
        await soon(world.leader.close_session(waiter, None, world.deadline()))
        await world.advance(20_000)

        assert leaving.count == 0


def nothing_from_3(sender: str, _receiver: str, _kind: str) -> str | None:
    """Member 3 is cut off: what it asks of others is not sent."""
    return "unsent" if sender == "3" else None


async def comes_back(world: World) -> None:
    """Member 3 follows again; return once it has taken back what it had to."""
    world.fault = lambda _sender, _receiver, _kind: None
    world.engines["3"].is_applying = True
    world.engines["3"].catch_up()
    async with asyncio.timeout(30):
        while world.members["3"]._queues._leaving.count:
            await asyncio.sleep(0.01)  # a leader that could not be used is tried again, by the wall
            await world.advance(STEP_MS)


async def test_an_opening_that_is_still_to_come_is_not_taken_for_an_end() -> None:
    """A member that lags behind does not know the session yet; the attempt is taken back later."""
    async with cluster(config=WITHOUT_LEASES) as world:
        held = await soon(acquired(world, await opened(world, 3_600_000)))
        lagging = world.members["3"]
        world.engines["3"].is_applying = False
        waiter = await opened(world, 3_600_000)
        waiting = acquiring(world, waiter, at=lagging, wait_deadline_ms=world.deadline(2_000))
        await settle()
        world.fault = nothing_from_3
        await world.advance(30_000)
        with pytest.raises(OutcomeUnknownError):
            await soon(waiting)

        await comes_back(world)
        await release(world, held)

        assert list((await looked(world)).holders) == []
        assert lagging._queues._leaving.count == 0


async def test_what_is_taken_back_late_is_not_what_its_client_holds_by_another_member() -> None:
    """The client was cut off with the member, repeated its number elsewhere, and was granted; the
    member's own time for it is up, and it comes back: it takes nothing from the holder."""
    async with cluster(config=WITHOUT_LEASES) as world:
        first, mine = await opened(world, 3_600_000), await opened(world, 3_600_000)
        held = await soon(acquired(world, first))
        cut_off, other = world.members["3"], world.members["2"]
        ends_ms = world.deadline(10_000)
        waiting = acquiring(
            world, mine, request=NUMBERED, at=cut_off, wait_deadline_ms=ends_ms,
            leave_on_cancel=False,
        )  # fmt: skip
        await settle()
        world.engines["3"].is_applying = False
        world.fault = nothing_from_3
        await world.advance(7_000)
        again = acquiring(
            world, mine, request=NUMBERED, at=other, wait_deadline_ms=ends_ms,
            leave_on_cancel=False,
        )  # fmt: skip
        await settle()
        await release(world, held)
        grant = await soon(again)
        await world.advance(6_000)
        with pytest.raises(OutcomeUnknownError):
            await soon(waiting)

        await comes_back(world)

        holders = (await looked(world)).holders
        assert [each.grant_id for each in holders] == [grant.grant_id]
