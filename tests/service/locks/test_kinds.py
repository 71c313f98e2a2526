"""Shared locks, semaphores and several locks at once: one fair queue, through any member."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import (
    BadArgumentsError,
    LockLostError,
    LockTimeoutError,
    NoNodeError,
    NotOwnerError,
    SessionExpiredError,
)
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Kind, RequestId
from tests.service.fake_cluster import World, cluster, counted, settle, soon
from tests.service.locks.lock_scenes import (
    SHARED,
    WITHOUT_LEASES,
    acquired,
    acquiring,
    looked,
    opened,
    release,
)


def slot(size: int) -> AcquireRequest:
    return AcquireRequest(kind=Kind.SLOT, size=size)


def asked(world: World) -> RequestContext:
    return RequestContext(request=None, deadline_ms=world.deadline())


def done(tasks: list[asyncio.Task[GrantReply]]) -> list[bool]:
    return [each.done() for each in tasks]


async def test_readers_share_and_a_waiting_writer_is_not_overtaken() -> None:
    """Whoever comes after the writer waits behind it; then the readers come in together."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = [await soon(acquired(world, session_id, wish=SHARED)) for _ in range(2)]
        writer = acquiring(world, session_id, at=world.follower)
        await settle()
        later = [acquiring(world, session_id, wish=SHARED, at=world.follower) for _ in range(3)]
        await settle()
        assert (writer.done(), done(later)) == (False, [False] * 3)

        await release(world, first[1])
        await settle()
        assert not writer.done()
        await release(world, first[0])
        written = await soon(writer)
        assert done(later) == [False] * 3
        before = counted(world.follower, "contender_wakeups_total")
        await release(world, written)
        read = [await soon(each) for each in later]

        assert counted(world.follower, "contender_wakeups_total") - before == 3
        assert [each.kind for each in (*first, written, *read)] == [
            "shared", "shared", "exclusive", "shared", "shared", "shared",
        ]  # fmt: skip
        tokens = [each.fencing_token for each in (*first, written, *read)]
        assert tokens == sorted(set(tokens))
        assert read[0].grant_id == f"read-3-{read[0].fencing_token}"


async def test_a_downgrade_lets_readers_in_and_keeps_the_token() -> None:
    """The grant goes on under the same token; a writer behind the readers still waits."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        reader = acquiring(world, session_id, wish=SHARED, at=world.follower)
        await settle()
        writer = acquiring(world, session_id)
        await settle()
        holding = world.follower.holding

        shared = await soon(holding.downgrade("daily", held.grant_id, asked(world)))
        again = await soon(holding.downgrade("daily", held.grant_id, asked(world)))

        assert shared.kind == again.kind == "shared"
        assert (shared.grant_id, shared.fencing_token) == (held.grant_id, held.fencing_token)
        assert (await soon(reader)).kind == "shared"
        assert not writer.done()
        view = await looked(world)
        assert [each.kind for each in view.holders] == ["shared", "shared"]
        assert [(each.kind, each.position) for each in view.queue] == [("exclusive", 2)]
        writer.cancel()


async def test_who_does_not_hold_cannot_downgrade() -> None:
    """A waiter, and one that is gone: NotOwner, and nothing changes."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        waiting = acquiring(world, session_id)
        await settle()
        waiter = (await looked(world)).queue[0].grant_id
        await release(world, held)
        got = await soon(waiting)
        third = acquiring(world, session_id)
        await settle()
        last = (await looked(world)).queue[0].grant_id

        for grant_id in (held.grant_id, last):
            with pytest.raises(NotOwnerError):
                await soon(world.leader.holding.downgrade("daily", grant_id, asked(world)))
        assert got.grant_id == waiter
        third.cancel()


async def test_a_semaphore_has_as_many_holders_as_its_size_which_may_change() -> None:
    """A larger size grants at once, a smaller one takes nobody's slot."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        holding = world.follower.holding
        one = await soon(acquired(world, session_id, wish=slot(2)))
        two = await soon(acquired(world, session_id, wish=AcquireRequest(kind=Kind.SLOT)))
        waiting = [acquiring(world, session_id, wish=slot(9)) for _ in range(3)]
        await settle()
        assert done(waiting) == [False] * 3

        resized = await soon(holding.resize("daily", 3, asked(world)))
        await settle()
        assert (resized.size, done(waiting)) == (3, [True, False, False])
        await soon(holding.resize("daily", 1, asked(world)))
        view = await looked(world)
        assert (view.size, len(view.holders)) == (1, 3)
        for grant in (one, two):
            await release(world, grant)
            await settle()
        assert done(waiting) == [True, False, False]
        await release(world, waiting[0].result())
        await settle()

        assert done(waiting) == [True, True, False]
        waiting[2].cancel()


async def test_a_semaphore_that_nobody_made_has_no_size() -> None:
    """A new one needs its size with the first slot, and cannot be resized before."""
    async with cluster(1, config=WITHOUT_LEASES) as world:
        session_id = await opened(world)

        with pytest.raises(BadArgumentsError, match="size"):
            await soon(acquired(world, session_id, wish=AcquireRequest(kind=Kind.SLOT)))
        with pytest.raises(NoNodeError):
            await soon(world.leader.holding.resize("daily", 3, asked(world)))


async def test_several_locks_are_granted_at_once_or_not_at_all() -> None:
    """One entry and one token; while one of them is held none is taken from the others."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id, "b"))
        seen: list[int] = []
        both = acquiring(
            world, session_id, ("c", "b", "a"), at=world.follower, on_position=seen.append
        )
        await settle()
        assert ((await looked(world, "a")).holders, both.done()) == ((), False)
        behind = acquiring(world, session_id, "a")
        await settle()
        assert not behind.done()

        await release(world, held)
        grant = await soon(both)
        await settle()

        assert [each.lock for each in grant.grants] == ["a", "b", "c"]
        assert {each.fencing_token for each in grant.grants} == {grant.fencing_token}
        assert (grant.lock, seen) == ("a", [1])
        assert not behind.done()
        before = len(world.log)
        await release(world, grant.grants[2])
        assert len(world.log) == before + 1
        await soon(behind)
        for name in ("b", "c"):
            assert (await looked(world, name)).holders == ()


async def test_several_locks_wanted_crosswise_do_not_block_each_other() -> None:
    """Everybody enters all queues in one command, so the order of the names does not matter."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        members = list(world.members.values())
        wanted = [("a", "b"), ("b", "a"), ("c", "b"), ("a", "c"), ("c", "a", "b")]
        tasks = [
            acquiring(world, session_id, names, at=members[number % 3])
            for number, names in enumerate(wanted * 4)
        ]
        left = set(tasks)
        while left:
            await settle()
            granted = [each for each in left if each.done()]
            assert granted, "somebody always goes on"
            for each in granted:
                await release(world, each.result())
                left.discard(each)


async def test_a_multi_lock_cancelled_while_it_waits_leaves_every_queue() -> None:
    """All its places go, whatever it waited for; the same for its session's end."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other = await opened(world), await opened(world)
        held = await soon(acquired(world, session_id, "b"))
        cancelled = acquiring(world, session_id, ("a", "b"), at=world.follower)
        ended = acquiring(world, other, ("a", "b", "c"), at=world.follower)
        await settle()
        cancelled.cancel()
        await world.leader.close_session(other, None, world.deadline())
        with pytest.raises(SessionExpiredError):
            await soon(ended)
        await settle()

        for name in ("a", "b", "c"):
            view = await looked(world, name)
            assert view.queue == ()
            assert [each.grant_id for each in view.holders] == [held.grant_id] * (name == "b")


async def test_names_given_twice_or_shared_are_refused() -> None:
    """Several locks are taken exclusively, each of them once; nothing is entered otherwise."""
    async with cluster(1, config=WITHOUT_LEASES) as world:
        session_id = await opened(world)

        with pytest.raises(BadArgumentsError, match="found 'a' twice"):
            await soon(acquired(world, session_id, ("a", "b", "a")))
        with pytest.raises(BadArgumentsError, match="exclusively"):
            await soon(acquired(world, session_id, ("a", "b"), SHARED))
        assert (await looked(world, "a", at=world.leader)).queue == ()


@pytest.mark.parametrize(
    "wish", [SHARED, slot(1), AcquireRequest()], ids=["shared", "slot", "exclusive"]
)
async def test_a_try_of_any_kind_is_one_entry_and_leaves_nothing(wish: AcquireRequest) -> None:
    """Granted in that command or not at all, with who holds."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = slot(1) if wish.size else AcquireRequest()
        held = await soon(acquired(world, session_id, wish=first))
        before = len(world.log)

        with pytest.raises(LockTimeoutError) as caught:
            await soon(acquired(world, session_id, wish=wish, is_try=True))

        assert len(world.log) == before + 1
        assert caught.value.holder["grant_id"] == held.grant_id
        assert (await looked(world)).queue == ()


async def test_a_repeated_request_of_any_kind_finds_its_grant_again() -> None:
    """The reply was lost: same grants, same token, through another member."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        for number, (name, wish) in enumerate(
            [("a", SHARED), ("b", slot(2)), (("c", "d"), AcquireRequest())], start=1
        ):
            request = RequestId("client", number)
            first = await soon(acquired(world, session_id, name, wish, request=request))
            again = await soon(
                acquired(world, session_id, name, wish, request=request, at=world.follower)
            )

            assert (again.grant_id, again.fencing_token) == (first.grant_id, first.fencing_token)
            assert len(again.grants) == len(first.grants)


async def test_a_number_used_for_another_kind_gets_no_grant() -> None:
    """To be granted an exclusive lock by an answer about a shared one would be a lie."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        await soon(acquired(world, session_id, wish=SHARED, request=request))

        with pytest.raises(BadArgumentsError, match="request number"):
            await soon(acquired(world, session_id, request=request))


async def test_the_grant_before_says_how_it_ended_and_what_was_noted() -> None:
    """Where to go on: the last holder's note, also when it was lost."""
    async with cluster() as world:
        session_id, lost = await opened(world), await opened(world)
        first = await soon(acquired(world, lost))
        assert first.previous is None
        note = world.follower.holding.note("daily", first.grant_id, b"page 7", asked(world))
        await soon(note)
        waiting = acquiring(world, session_id, at=world.follower)
        for _ in range(11):
            await world.advance(200)
            await soon(world.leader.heartbeat(session_id, world.deadline()))
        second = await soon(waiting)

        previous = second.previous
        assert previous is not None
        assert (previous.how, previous.note) == ("expired", b"page 7")
        assert (previous.grant_id, previous.fencing_token) == (first.grant_id, first.fencing_token)
        with pytest.raises(NotOwnerError):
            await soon(world.leader.holding.note("daily", first.grant_id, b"x", asked(world)))


async def test_a_waiter_that_is_forced_out_is_told_that_it_was() -> None:
    """Its wait ends with LockLost; who holds is left alone."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        waiting = acquiring(world, session_id, at=world.follower)
        await settle()
        waiter = (await looked(world)).queue[0].grant_id

        gone = await soon(
            world.leader.holding.revoke("daily", waiter, "ann", "in the way", asked(world))
        )

        with pytest.raises(LockLostError):
            await soon(waiting)
        assert (gone.grant.granted_zxid, gone.grant.how) == (0, "forced")
        assert [each.grant_id for each in (await looked(world)).holders] == [held.grant_id]
