"""Sessions that a member keeps alive while their client waits: through leaders that come and go."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    LockLostError,
    LockTimeoutError,
    OutcomeUnknownError,
)
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.service.sessions.kept_sessions import KeptSession
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Enter, Kind
from tests.service.fake_cluster import World, cluster, settle, soon

LEASE_MS = 2_000


async def acquired(world: World, kept: KeptSession, wait_ms: int = 10_000) -> GrantReply:
    """Acquire with the attempt that opens the session, as a request without a number does."""
    return await world.follower.locks.acquire(
        "a",
        session_id=kept.session_id,
        wanted=AcquireRequest(label="worker"),
        request=None,
        wait_deadline_ms=world.deadline(wait_ms),
        opening=kept.begin(),
        own_request=kept.request,
        on_entered=kept.on_entered,
    )


async def opened(world: World) -> KeptSession:
    kept = world.follower.kept_sessions.new(LEASE_MS, "curl")
    await soon(acquired(world, kept))
    return kept


def is_open(world: World, kept: KeptSession) -> bool:
    return world.follower._replica.machine.session(kept.session_id) is not None


async def kept_for(world: World, kept: KeptSession, by_ms: int) -> None:
    await kept.kept(world.advance(by_ms))


async def test_it_is_kept_alive_through_changes_of_the_leader() -> None:
    """Each leader stays for three leases, and there is none for half a lease in between."""
    async with cluster() as world:
        kept = await opened(world)

        async def several_leaders() -> None:
            for leader_id in ("2", "1", "3"):
                await world.advance(3 * LEASE_MS)
                world.elect(None)
                await world.advance(LEASE_MS // 2)
                world.elect(leader_id)
            await world.advance(3 * LEASE_MS)

            assert is_open(world, kept)

        await kept.kept(several_leaders())
        await world.advance(LEASE_MS + 200)
        assert not is_open(world, kept), "nobody keeps it any more"


async def test_the_lease_runs_out_when_its_member_is_cut_off() -> None:
    """A member that dies, or reaches nobody, keeps nothing alive."""
    async with cluster() as world:
        kept, last = await opened(world), world.follower
        world.fault = lambda sender, _to, kind: "request" if kind == "heartbeat" else None

        await kept_for(world, kept, LEASE_MS + 300)

        assert last is world.follower
        assert not is_open(world, kept)


async def test_it_promises_no_more_than_the_leader_keeps() -> None:
    """Also when an answer takes long: what remains is counted from when it was asked."""
    async with cluster() as world:
        kept = await opened(world)
        world.confirming.clear()
        beginning = asyncio.create_task(kept.begin_in_full(()))
        await world.advance(300)
        world.confirming.set()
        await settle()
        await soon(beginning)

        for _ in range(20):
            promised = world.leader._leases.remaining_ms(kept.session_id)
            assert kept.remaining_ms(()) <= (promised or 0)
            await world.advance(100)
        assert kept.remaining_ms(()) == 0


async def test_a_grant_whose_lease_nobody_confirms_is_not_told() -> None:
    """The answer is that nobody knows, as soon as the lease could be over."""
    async with cluster() as world:
        kept = await opened(world)
        world.has_quorum = False
        world.confirming.clear()
        beginning = asyncio.create_task(kept.begin_in_full(()))

        await world.advance(LEASE_MS - 200)
        assert not beginning.done()
        await world.advance(600)

        with pytest.raises(ConnectionLostError, match="lease"):
            await soon(beginning)


async def test_a_grant_that_was_taken_before_it_is_told_is_lost() -> None:
    """Somebody revoked it in the moment in between."""
    async with cluster() as world:
        kept = await opened(world)
        member = world.follower
        context = RequestContext(None, world.deadline())
        await soon(member.holding.revoke("a", None, "ann", "test", context))

        with pytest.raises(LockLostError):
            await soon(kept.begin_in_full(["/locks/a/lock-0000000000"]))


@pytest.mark.parametrize("fault", ["request", "reply", "frozen"])
async def test_an_opening_of_which_nobody_knows_is_ended_exactly(fault: str) -> None:
    """Whether the first one was done or not, none is open afterwards, nor comes to be later."""
    async with cluster() as world:
        kept = world.follower.kept_sessions.new(LEASE_MS, "curl")
        world.fault = lambda _sender, _to, kind: fault if kind == "propose" else None
        opening = asyncio.create_task(acquired(world, kept, 400))
        await world.advance(2_000)
        with pytest.raises(OutcomeUnknownError):
            await opening
        world.fault = lambda _sender, _to, _kind: None

        await soon(kept.end(world.deadline()))

        assert not is_open(world, kept)


async def test_an_opening_that_was_refused_leaves_nothing_to_end() -> None:
    """Nothing is proposed for it any more."""
    async with cluster() as world:
        kept = world.follower.kept_sessions.new(1, "curl")
        with pytest.raises(BadArgumentsError, match="timeout"):
            await soon(acquired(world, kept))
        proposed = len(world.log)

        await soon(kept.end(world.deadline()))

        assert len(world.log) == proposed


async def test_an_opening_that_arrives_after_its_end_is_refused() -> None:
    """However late a copy of it comes, no session is left that nobody knows of."""
    async with cluster() as world:
        kept = await opened(world)
        opening = world.log[-1][1]
        await soon(kept.end(world.deadline()))

        world.commit(opening)

        assert not is_open(world, kept)


async def test_a_lost_opening_that_arrives_after_its_end_is_refused() -> None:
    """It was under way to a leader that nobody heard of again; it comes when all is tidied up."""
    async with cluster() as world:
        kept = world.follower.kept_sessions.new(LEASE_MS, "curl")
        world.fault = lambda _sender, _to, kind: "request" if kind == "propose" else None
        opening = asyncio.create_task(acquired(world, kept, 400))
        await world.advance(2_000)
        with pytest.raises(OutcomeUnknownError):
            await opening
        world.fault = lambda _sender, _to, _kind: None
        await soon(kept.end(world.deadline()))

        enter = Enter(
            ("/locks/a",),
            prefix="lock-",
            kind=Kind.EXCLUSIVE,
            session_id=kept.session_id,
            data=b"",
            opening=kept._opening,
        )
        world.commit(encode_command(Command(enter, wall_ms=1, request=kept.request)))

        assert not is_open(world, kept)


async def test_a_try_that_fails_costs_one_entry_and_opens_nothing() -> None:
    """And one that is granted costs no more: the session comes with it."""
    async with cluster() as world:
        before = len(world.log)
        await opened(world)
        granted = len(world.log)
        kept = world.follower.kept_sessions.new(LEASE_MS, "curl")
        with pytest.raises(LockTimeoutError):
            await soon(
                world.follower.locks.acquire(
                    "a",
                    session_id=kept.session_id,
                    wanted=AcquireRequest(),
                    request=None,
                    wait_deadline_ms=world.deadline(),
                    is_try=True,
                    opening=kept.begin(),
                    own_request=kept.request,
                    on_entered=kept.on_entered,
                )
            )
        await soon(kept.end(world.deadline()))

        assert (granted - before, len(world.log) - granted) == (1, 1)
        assert not is_open(world, kept)
