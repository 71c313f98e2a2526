"""Locks: fair, one holder in log order, nothing left behind, nothing promised that is not so."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    LockLostError,
    LockTimeoutError,
    NoLeaderError,
    OutcomeUnknownError,
    ProposalTimeoutError,
    SessionExpiredError,
    ThrottledError,
)
from coordinator.model import queue_order as contention
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.node.config import Config, MemberLimits
from coordinator.service.base.leadership import LEADER_WITHIN_MS
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import Create, CreateMode, Delete, RequestId
from tests.service.fake_cluster import World, cluster, counted, settle, soon
from tests.service.locks.lock_scenes import (
    LOCK,
    WITHOUT_LEASES,
    acquired,
    acquiring,
    answered_late,
    lagging,
    opened,
    queue_of,
    release,
)


async def leave_a_contender(world: World, session_id: str, request: RequestId) -> None:
    """Wait, and go without the contender: the same request finds its place again."""
    wait = acquiring(world, session_id, request=request, leave_on_cancel=False)
    await settle()
    wait.cancel()
    await settle()


async def test_an_acquire_and_a_release_without_contention_are_two_proposals() -> None:
    """One round trip each; the token is the czxid of the contender."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        before = len(world.log)

        grant = await soon(acquired(world, session_id))
        await release(world, grant)

        assert len(world.log) - before == 2
        assert world.engines["1"].barrier_count == 0
        assert grant.path == "/locks/daily/lock-0000000000"
        assert grant.grant_id == f"0-{grant.fencing_token}"


async def test_whoever_must_wait_in_any_case_shares_a_round_with_others() -> None:
    """Behind a holder nobody waits for the entry; a first acquire and a try are urgent."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other = await opened(world), await opened(world)
        engine = world.engines["1"]
        await soon(acquired(world, session_id))
        with pytest.raises(LockTimeoutError):
            await soon(acquired(world, other, is_try=True, wait_deadline_ms=0))
        assert engine.patient_count == 0
        waiting = acquiring(world, other)
        await settle()
        assert engine.patient_count == 1
        waiting.cancel()


async def test_contenders_are_granted_in_the_order_of_arrival_with_growing_tokens() -> None:
    """Twenty waiters through different members, one after the other."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        members = list(world.members.values())
        tasks = []
        for number in range(20):
            tasks.append(acquiring(world, session_id, at=members[number % 3]))
            await settle()
        tokens = []
        for task in tasks:
            grant = await soon(task)
            tokens.append(grant.fencing_token)
            await release(world, grant)

        assert tokens == sorted(set(tokens))
        assert len(tokens) == 20


async def test_a_release_wakes_one_of_a_thousand_waiters() -> None:
    """One notification, one grant."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        holder = await soon(acquired(world, session_id))
        tasks = [acquiring(world, session_id) for _ in range(1_000)]
        for _ in range(20):
            await settle()
        before = counted(world.leader, "contender_wakeups_total")
        await release(world, holder)
        await settle()

        assert counted(world.leader, "contender_wakeups_total") - before == 1
        assert sum(task.done() for task in tasks) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_whoever_leaves_the_middle_of_the_queue_grants_nobody() -> None:
    """The woken contender looks again and waits for the one before."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        second, third = acquiring(world, session_id), acquiring(world, session_id)
        await settle()
        _, middle, last = await queue_of(world)
        await soon(world.leader.locks.release(LOCK, middle, None, world.deadline()))
        await settle()

        with pytest.raises(LockLostError):
            await soon(second)
        assert not third.done()
        await release(world, first)
        assert (await soon(third)).grant_id == last


async def test_a_predecessor_that_goes_at_once_is_not_missed() -> None:
    """Looking and registering are one step, so a release in between is seen."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        second = acquiring(world, session_id)
        await release(world, first)

        assert (await soon(second)).fencing_token > first.fencing_token


async def test_the_end_of_a_session_grants_the_next() -> None:
    """A crashed holder is found by silence and deadlocks nobody."""
    async with cluster() as world:
        dead, alive = await opened(world), await opened(world)
        await soon(acquired(world, dead))
        second = acquiring(world, alive, at=world.follower)
        for _ in range(11):
            await world.advance(200)
            await soon(world.leader.heartbeat(alive, world.deadline()))
            await settle()

        assert (await soon(second)).session_id == alive


async def test_a_waiter_whose_session_ended_is_told_so_and_never_granted() -> None:
    """The grant and the check of the own session are one look."""
    async with cluster() as world:
        holder, waiter = await opened(world), await opened(world)
        grant = await soon(acquired(world, holder))
        second = acquiring(world, waiter)
        await settle()
        await world.leader.close_session(waiter, None, world.deadline())
        await release(world, grant)

        with pytest.raises(SessionExpiredError):
            await soon(second)


async def test_a_member_that_was_paused_does_not_grant_what_has_ended_meanwhile() -> None:
    """It sees the release first and the end of the session later: the barrier waits for both."""
    async with cluster() as world:
        holder, waiter = await opened(world), await opened(world)
        grant = await soon(acquired(world, holder))
        engine = world.engines["3"]
        second = acquiring(world, waiter, at=world.members["3"])
        await settle()
        engine.is_applying = False
        await release(world, grant)
        released_index = len(world.log)
        await world.leader.close_session(waiter, None, world.deadline())
        term, command, _ = world.log[released_index - 1]
        assert engine.replica is not None
        engine.applied_index = released_index
        engine.replica.apply(released_index, term, command)  # only as far as the release
        await settle()
        assert not second.done()
        engine.is_applying = True
        engine.catch_up()

        with pytest.raises(SessionExpiredError):
            await soon(second)


async def test_try_once_answers_at_once_and_leaves_nothing() -> None:
    """timeout 0: held or not, with the holder, in one proposal."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other = await opened(world), await opened(world)
        grant = await soon(acquired(world, session_id, is_try=True, wait_deadline_ms=0))
        before = len(world.log)

        with pytest.raises(LockTimeoutError) as caught:
            await soon(acquired(world, other, is_try=True, wait_deadline_ms=0))

        assert caught.value.holder["grant_id"] == grant.grant_id
        assert caught.value.holder["label"] == "worker"
        assert await queue_of(world) == [grant.grant_id]
        assert len(world.log) == before + 1


@pytest.mark.parametrize("is_try", [True, False])
@pytest.mark.parametrize("catches_up", [True, False])
async def test_a_refusal_names_nobody_who_has_given_it_back(is_try: bool, catches_up: bool) -> None:
    """A member that lags behind names the holder of now, or nobody; never the one before."""
    async with cluster(config=WITHOUT_LEASES) as world:
        first, second, third = [await opened(world) for _ in range(3)]
        former = await soon(acquired(world, first))
        behind = lagging(world)
        await soon(world.leader.locks.release(LOCK, former.grant_id, None, world.deadline()))
        holder = await soon(acquired(world, second))

        refused = acquiring(
            world, third, at=behind, is_try=is_try, wait_deadline_ms=world.deadline(100)
        )
        await answered_late(world, behind, catches_up=catches_up)

        with pytest.raises((LockTimeoutError, OutcomeUnknownError)) as caught:
            await soon(refused)
        named = caught.value.fields.get("holder")
        assert named is None or named["grant_id"] == holder.grant_id
        if catches_up:
            assert named is not None


async def test_a_try_that_repeats_a_wait_answers_at_once_too() -> None:
    """The contender of the same request number stands from before: it leaves, or it holds."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        holder = await soon(acquired(world, session_id))
        await leave_a_contender(world, session_id, request)
        assert len(await queue_of(world)) == 2

        with pytest.raises(LockTimeoutError):
            await soon(acquired(world, session_id, request=request, is_try=True))
        assert await queue_of(world) == [holder.grant_id]


async def test_fifty_tries_at_once_have_one_winner() -> None:
    """Exactly one grant, and 49 refusals that name it."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_ids = [await opened(world) for _ in range(50)]
        members = list(world.members.values())
        results = await soon(
            asyncio.gather(
                *(
                    acquired(world, each, at=members[n % 3], is_try=True)
                    for n, each in enumerate(session_ids)
                ),
                return_exceptions=True,
            )
        )

        grants = [each for each in results if isinstance(each, GrantReply)]
        refusals = [each for each in results if isinstance(each, LockTimeoutError)]
        assert (len(grants), len(refusals)) == (1, 49)
        assert {each.holder["grant_id"] for each in refusals} == {grants[0].grant_id}


async def test_a_wait_that_ends_leaves_the_queue() -> None:
    """One overall deadline; the error names holder and position."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        holder = await soon(acquired(world, session_id))
        earlier = [acquiring(world, session_id) for _ in range(3)]
        await settle()
        late = acquiring(world, session_id, wait_deadline_ms=world.deadline(3_000))
        for _ in range(3):  # predecessors leave one by one; the deadline is not started anew
            await world.advance(700)
            queue = await queue_of(world)
            await soon(world.leader.locks.release(LOCK, queue[1], None, world.deadline()))
        await world.advance(900)

        with pytest.raises(LockTimeoutError) as caught:
            await soon(late)
        assert caught.value.holder["grant_id"] == holder.grant_id
        assert caught.value.position == 1
        assert await queue_of(world) == [holder.grant_id]
        await asyncio.gather(*earlier, return_exceptions=True)


async def test_a_cancelled_wait_leaves_the_queue() -> None:
    """A client that went away leaves no contender behind."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        holder = await soon(acquired(world, session_id))
        second = acquiring(world, session_id, at=world.follower)
        await settle()
        second.cancel()
        await asyncio.wait({second})
        await settle()

        assert second.cancelled()
        assert await queue_of(world) == [holder.grant_id]


async def test_a_wait_may_stay_when_its_client_goes() -> None:
    """With leave_on_cancel=False the same request finds its place again later."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        holder = await soon(acquired(world, session_id))
        await leave_a_contender(world, session_id, request)
        third = acquiring(world, session_id)
        await settle()
        again = acquiring(world, session_id, request=request, at=world.follower)
        await release(world, holder)

        grant = await soon(again)
        assert grant.fencing_token < (await queue_tokens(world))[1]
        third.cancel()


async def queue_tokens(world: World) -> list[int]:
    return [int(each.split("-")[1]) for each in await queue_of(world)]


async def test_without_a_quorum_an_acquire_ends_with_an_error_and_no_grant() -> None:
    """Nothing is entered without a grant: definite if nothing was proposed."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        world.elect(None)
        late_ms = world.deadline(1_000)
        task = acquiring(world, session_id, wait_deadline_ms=late_ms, at=world.follower)
        await world.advance(1_000)

        with pytest.raises(NoLeaderError):
            await soon(task)


async def test_an_acquire_under_way_without_a_quorum_is_unknown() -> None:
    """The contender may come to stand, and that is what the error says."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        world.has_quorum = False
        task = acquiring(world, session_id, wait_deadline_ms=world.deadline(1_000))
        await world.advance(2_500)

        with pytest.raises(ProposalTimeoutError):
            await soon(task)


async def test_a_stopping_member_ends_its_waits_and_leaves_the_contenders() -> None:
    """Indefinite, because the contender stands; the same request goes on elsewhere."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("client", 1)
        holder = await soon(acquired(world, session_id))
        second = acquiring(world, session_id, request=request, at=world.members["3"])
        await settle()
        await world.members["3"].stop()

        with pytest.raises(ConnectionLostError) as caught:
            await soon(second)
        assert caught.value.path == "/locks/daily/lock-0000000001"
        again = acquiring(world, session_id, request=request, at=world.members["2"])
        await release(world, holder)
        assert (await soon(again)).grant_id.startswith("1-")


async def test_a_snapshot_makes_every_waiter_look_again() -> None:
    """A release inside an installed snapshot is not missed."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id))
        engine = world.engines["3"]
        second = acquiring(world, session_id, at=world.members["3"])
        await settle()
        engine.is_applying = False
        await release(world, grant)
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None
        engine.install(leader_replica.snapshot(), index=len(world.log))
        engine.is_applying = True

        assert (await soon(second)).fencing_token > grant.fencing_token


async def test_a_lock_shows_who_holds_and_who_waits() -> None:
    """With host, pid, label and trace id: two acquisitions of one session are two grants."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        worker = AcquireRequest("worker", host="host-1", pid=42, trace_id="trace-7")
        grant = await soon(acquired(world, session_id, wish=worker))
        second = acquiring(world, session_id, wish=AcquireRequest("other"))
        await settle()

        view = (await world.follower.lock_views.query(LOCK, STALE, world.deadline())).value
        page = (await world.follower.lock_views.list_locks(STALE, world.deadline())).value

        assert view.holder is not None
        assert (view.holder.grant_id, view.holder.fencing_token) == (
            grant.grant_id, grant.fencing_token,
        )  # fmt: skip
        shown = (view.holder.label, view.holder.host, view.holder.pid, view.holder.trace_id)
        assert shown == ("worker", "host-1", 42, "trace-7")
        assert [(each.position, each.label) for each in view.queue] == [(1, "other")]
        assert [(each.lock, each.queue_length) for each in page.locks] == [(LOCK, 1)]
        second.cancel()


async def test_locks_are_listed_in_pages() -> None:
    """A page says how to go on; released locks are not shown."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        names = [f"l/{number}" for number in range(5)]
        grants = [await soon(acquired(world, session_id, name=name)) for name in names]
        await release(world, grants[2])
        locks = world.leader.lock_views

        first = (await locks.list_locks(LINEARIZABLE, world.deadline(), limit=3)).value
        rest = (
            await locks.list_locks(LINEARIZABLE, world.deadline(), after=first.next, limit=3)
        ).value

        assert [each.lock for each in first.locks] == ["l/0", "l/1"]
        assert [each.lock for each in rest.locks] == ["l/3", "l/4"]
        assert rest.next is None


@pytest.mark.parametrize(
    "name", ["a/b", ".", "..", "%2E", "a b", "ü☃", "lock-0000000001", "x" * 200]
)
async def test_any_name_is_one_lock_of_its_own(name: str) -> None:
    """Names are opaque: slashes, dots and escapes neither nest nor collide."""
    async with cluster(1, config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id, name=name))
        page = (await world.leader.lock_views.list_locks(STALE, world.deadline())).value

        assert grant.path.count("/") == 3
        assert [each.lock for each in page.locks] == [name]
        await release(world, grant)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00b", "a\nb"])
async def test_a_name_that_cannot_be_is_refused(name: str) -> None:
    """Before anything is proposed."""
    async with cluster(1, config=WITHOUT_LEASES) as world:
        session_id = await opened(world)

        with pytest.raises(BadArgumentsError):
            await soon(acquired(world, session_id, name=name))


async def test_contenders_made_over_the_plain_tree_stand_in_the_same_queue() -> None:
    """The recipe by hand and the lock of the server interoperate."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        create = Create(
            f"/locks/{LOCK}/guid-",
            mode=CreateMode.EPHEMERAL_SEQUENTIAL,
            session_id=session_id,
            parents=CreateMode.CONTAINER,
        )
        created = await world.leader.proposer.submit(create, RequestContext(None, world.deadline()))
        by_hand: Any = created.outcome.unwrap()
        second = acquiring(world, session_id)
        await settle()
        names = (await world.leader.children(f"/locks/{LOCK}", STALE, world.deadline())).value.names

        assert contention.holder(names) == by_hand.path.rpartition("/")[2]
        assert not second.done()
        await world.leader.proposer.submit(
            Delete(by_hand.path), RequestContext(None, world.deadline())
        )
        assert (await soon(second)).session_id == session_id


async def test_waiters_are_limited() -> None:
    """Beyond the limit an acquire is refused before anything is proposed."""
    config = Config(limits=replace(MemberLimits(), lock_waiters_max=1))
    async with cluster(config=config) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        second = acquiring(world, session_id)
        await settle()

        with pytest.raises(ThrottledError):
            await soon(acquired(world, session_id))
        second.cancel()


@pytest.mark.parametrize(("led_ago_ms", "barriers"), [(0, 0), (1_900, 0), (1_960, 1), (None, 1)])
async def test_a_member_that_led_a_moment_ago_grants_without_asking_the_others(
    led_ago_ms: int | None, barriers: int
) -> None:
    """No later leader can have ended a session of 2 s yet; beyond that, less a margin, it asks."""
    async with cluster() as world:
        first, second = await opened(world), await opened(world)
        grant = await soon(acquired(world, first))
        waiting = acquiring(world, second)
        await settle()
        engine = world.engines["1"]
        if led_ago_ms is not None:
            engine.led_ms = world.clock.monotonic_ms() - led_ago_ms
        before = engine.barrier_count
        await release(world, grant)

        assert (await soon(waiting)).session_id == second
        assert engine.barrier_count - before == barriers


async def test_a_member_without_a_leader_keeps_no_contender_that_is_not_queued() -> None:
    """It may be cut off: the client asks another one with the same number, at the same place."""
    async with cluster() as world:
        session_id = await opened(world)
        world.elect(None)
        request = RequestId("client", 9)
        far_ms = world.deadline(60_000)
        cut_off = world.members["3"]
        waiting = acquiring(world, session_id, at=cut_off, request=request, wait_deadline_ms=far_ms)
        await world.advance(LEADER_WITHIN_MS + 200)

        with pytest.raises(NoLeaderError, match="ask another member"):
            await soon(waiting)
        world.elect("2")
        again = acquiring(world, session_id, request=request, wait_deadline_ms=world.deadline())
        assert (await soon(again)).session_id == session_id
