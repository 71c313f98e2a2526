"""Forced ends, conditions on writes, what a look shows, and the history, as members serve them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from coordinator.errors import (
    BadArgumentsError,
    NoNodeError,
    NotOwnerError,
)
from coordinator.model.acquire import AcquireRequest
from coordinator.model.limits import NEW_CLUSTER
from coordinator.model.sessions import LOST_MAX
from coordinator.model.views import nearest_rank
from coordinator.node.config import Config, SessionConfig
from coordinator.service.base.replica import MachineReplica
from coordinator.service.locks.contenders import LOCKS
from coordinator.service.locks.history import GrantsWanted
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.service.sessions.lease_remaining import REQUEST_KIND
from coordinator.service.sessions.revocations import Revocations
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.commands import (
    Create,
    CreateMode,
    Delete,
    Multi,
    RequestId,
)
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import (
    SHARED,
    WITHOUT_LEASES,
    acquired,
    acquiring,
    looked,
    opened,
    release,
)

SHORT_SESSIONS = Config(sessions=SessionConfig(timeout_ms_default=2_000))


def asked(world: World, request: RequestId | None = None) -> RequestContext:
    return RequestContext(request=request, deadline_ms=world.deadline())


async def history(world: World, wanted: GrantsWanted | None = None) -> list[tuple[str, str]]:
    """Return (grant id, how it ended) of the grants asked for."""
    read = await soon(
        world.follower.grant_history.page(wanted or GrantsWanted(), LINEARIZABLE, world.deadline())
    )
    return [(each.grant_id, each.how) for each in read.value.grants]


# --- forced ends


async def test_a_forced_release_grants_the_next_and_says_to_what_the_guards_are_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Who and why is kept and logged once; the token to raise to shuts the former holder out."""
    async with cluster(config=WITHOUT_LEASES) as world:
        stuck, other = await opened(world), await opened(world)
        held = await soon(acquired(world, stuck))
        waiting = acquiring(world, other, at=world.follower)
        await settle()

        with caplog.at_level(logging.WARNING, "coordinator.audit"):
            gone = await soon(
                world.follower.holding.revoke("daily", None, "ann", "host is gone", asked(world))
            )

        got = await soon(waiting)
        assert held.fencing_token < gone.fencing_token_min <= got.fencing_token
        assert (gone.grant.how, gone.grant.by, gone.grant.reason) == (
            "forced", "ann", "host is gone",
        )  # fmt: skip
        assert gone.grant.grant_id == held.grant_id
        assert [record.name for record in caplog.records] == ["coordinator.audit"]
        assert "host is gone" in caplog.text


async def test_the_former_holder_is_told_by_its_next_heartbeat() -> None:
    """Also by a heartbeat through another member, after a change of leader, and again later."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        await soon(world.leader.holding.revoke("daily", None, "ann", "stuck", asked(world)))
        for leader_id in ("1", "2"):
            world.elect(leader_id)
            for member in world.members.values():
                ack = await soon(member.heartbeat(session_id, world.deadline()))

                (lost,) = ack.lost
                assert (lost.path, lost.fencing_token) == (held.path, held.fencing_token)
                assert (lost.how, lost.by, lost.reason) == ("forced", "ann", "stuck")


async def test_what_is_given_back_is_not_told_as_lost() -> None:
    """A release, an abandoned attempt and the grants of other sessions are no news."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, other = await opened(world), await opened(world)
        await release(world, await soon(acquired(world, session_id)))
        await soon(acquired(world, other))
        await soon(world.leader.holding.revoke("daily", None, "ann", "stuck", asked(world)))

        ack = await soon(world.leader.heartbeat(session_id, world.deadline()))
        assert ack.lost == ()


async def test_a_grant_deleted_over_the_tree_is_told_as_well() -> None:
    """An operator's delete takes a lock as a forced release does."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        await world.leader.proposer.submit(
            Delete(held.path), RequestContext(None, world.deadline())
        )

        ack = await soon(world.follower.heartbeat(session_id, world.deadline()))
        assert [(each.path, each.how) for each in ack.lost] == [(held.path, "deleted")]


@pytest.mark.parametrize("limits", [{"grant_history_max": 1}, {"grant_history_bytes_max": 1}])
async def test_every_holder_is_told_however_short_the_history_is(limits: dict[str, int]) -> None:
    """Several grants end in one command, more than the history keeps, or than any: all are told."""
    config = replace(WITHOUT_LEASES, first_limits=replace(NEW_CLUSTER, **limits))
    async with cluster(config=config) as world:
        sessions = [await opened(world) for _ in range(3)]
        held = [await soon(acquired(world, each, f"l{each}")) for each in sessions]
        deletes = Multi(tuple([Delete(each.path) for each in held]))
        await world.leader.proposer.submit(deletes, RequestContext(None, world.deadline()))

        for session_id, grant in zip(sessions, held, strict=True):
            for member in (world.leader, world.follower):
                ack = await soon(member.heartbeat(session_id, world.deadline()))
                assert [(each.path, each.how) for each in ack.lost] == [(grant.path, "deleted")]
        again = await soon(acquired(world, sessions[0], "after"))
        await release(world, again)
        assert len(await history(world)) == (1 if "grant_history_max" in limits else 0)


async def test_what_was_taken_is_known_after_a_snapshot() -> None:
    """A member that was sent the state tells it as the others do, when it leads."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = await soon(acquired(world, session_id))
        world.engines["3"].is_applying = False
        await soon(world.leader.holding.revoke("daily", None, "ann", "stuck", asked(world)))
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None
        world.engines["3"].install(leader_replica.snapshot(), index=len(world.log))
        world.engines["3"].is_applying = True
        world.elect("3")

        ack = await soon(world.members["3"].heartbeat(session_id, world.deadline()))
        assert [each.path for each in ack.lost] == [held.path]


async def test_what_was_taken_is_forgotten_with_its_session() -> None:
    """Also of one that has no ephemerals left, whose end is therefore no event."""
    async with cluster(config=WITHOUT_LEASES) as world:
        replica = world.engines["1"].replica
        assert isinstance(replica, MachineReplica)
        taken = Revocations(replica)
        replica.add_listener(taken)
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        await soon(world.leader.holding.revoke("daily", None, "ann", "stuck", asked(world)))
        assert taken.of(session_id)

        await soon(world.leader.close_session(session_id, None, world.deadline()))

        assert taken.of(session_id) == ()


async def test_the_latest_hundred_are_told_in_order_and_after_a_snapshot_the_same() -> None:
    """More than fit, taken in one command: a client sees by the full list that it was cut."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        held = [await soon(acquired(world, session_id, f"l{n:03}")) for n in range(LOST_MAX + 20)]
        everything = Delete("/locks", is_recursive=True)
        await world.leader.proposer.submit(everything, RequestContext(None, world.deadline()))
        told = (await soon(world.leader.heartbeat(session_id, world.deadline()))).lost
        replica = world.engines["1"].replica
        assert replica is not None
        world.engines["3"].install(replica.snapshot(), index=len(world.log))
        world.elect("3")

        again = (await soon(world.members["3"].heartbeat(session_id, world.deadline()))).lost
        assert len(told) == LOST_MAX
        assert {each.path for each in told} < {each.path for each in held}
        assert again == told


async def test_a_repeated_forced_release_forces_nobody_else() -> None:
    """Its reply was lost, and somebody else holds by now: the first answer again."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id, request = await opened(world), RequestId("admin", 1)
        await soon(acquired(world, session_id))
        first = await soon(
            world.leader.holding.revoke("daily", None, "ann", "stuck", asked(world, request))
        )
        for is_held in (False, True):
            if is_held:
                await soon(acquired(world, session_id))
            again = await soon(
                world.follower.holding.revoke("daily", None, "ann", "stuck", asked(world, request))
            )

            assert again.grant.grant_id == first.grant.grant_id
            assert again.fencing_token_min == first.fencing_token_min
        assert len((await looked(world)).holders) == 1


async def test_a_forced_release_must_say_whose_when_several_hold() -> None:
    """And that nobody holds is said, too."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        holding = world.follower.holding
        with pytest.raises(NotOwnerError, match="nobody holds"):
            await soon(holding.revoke("daily", None, "ann", "stuck", asked(world)))
        first, second = [await soon(acquired(world, session_id, wish=SHARED)) for _ in range(2)]

        with pytest.raises(BadArgumentsError, match="expected a grant_id"):
            await soon(holding.revoke("daily", None, "ann", "stuck", asked(world)))
        await soon(holding.revoke("daily", first.grant_id, "ann", "stuck", asked(world)))
        assert [each.grant_id for each in (await looked(world)).holders] == [second.grant_id]


async def test_a_holder_that_queued_by_hand_can_be_forced_out_and_told_of() -> None:
    """Its znode has a name of its own; its grant id is number and token as any other's."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        create = Create(
            "/locks/daily/guid-",
            mode=CreateMode.EPHEMERAL_SEQUENTIAL,
            session_id=session_id,
            parents=CreateMode.CONTAINER,
        )
        await world.leader.proposer.submit(create, RequestContext(None, world.deadline()))
        (holder,) = (await looked(world)).holders

        gone = await soon(
            world.follower.holding.revoke("daily", holder.grant_id, "ann", "x", asked(world))
        )
        story = await soon(
            world.leader.grant_history.story(
                LOCKS, "daily", holder.grant_id, LINEARIZABLE, world.deadline()
            )
        )

        assert gone.grant.path == story.value.grant.path == holder.path
        assert (await looked(world)).holders == ()


# --- what a look shows


async def test_a_look_says_for_how_long_the_holder_is_safe() -> None:
    """What is left of the lease as the leader counts, through any member; less with a bound."""
    async with cluster(config=SHORT_SESSIONS) as world:
        session_id = await opened(world, 10_000)
        await soon(acquired(world, session_id))
        await soon(acquired(world, session_id, "bounded", AcquireRequest(max_hold_ms=4_000)))
        await world.advance(3_000)

        for member in world.members.values():
            (holder,) = (await looked(world, at=member)).holders
            assert holder.safe_ms == 7_000
            (holder,) = (await looked(world, "bounded", at=member)).holders
            assert holder.safe_ms == 1_000


async def test_what_is_left_is_less_by_the_time_that_the_answer_took() -> None:
    """The leader counts when it answers; who hears that late is not safe for longer."""
    async with cluster(config=SHORT_SESSIONS) as world:
        session_id = await opened(world, 10_000)
        grant = await soon(acquired(world, session_id, "b", AcquireRequest(max_hold_ms=20_000)))
        answer, has_come = world.engines["1"]._handlers[REQUEST_KIND], asyncio.Event()

        async def late(sender: str, payload: bytes) -> bytes:
            reply = await answer(sender, payload)
            await has_come.wait()
            return reply

        world.engines["1"].on_request(REQUEST_KIND, late)
        views = world.follower.lock_views
        lease = views.lease_left(session_id, (grant.path,), world.deadline())
        asking = asyncio.create_task(lease)
        looking = asyncio.create_task(looked(world, "b", at=world.follower))
        await world.advance(800)
        has_come.set()

        left_ms = world.leader._leases.remaining_ms(session_id)
        assert left_ms == 9_200
        assert await soon(asking) == (10_000, left_ms)
        assert [each.safe_ms for each in (await soon(looking)).holders] == [left_ms]


async def test_what_the_leader_does_not_say_is_not_known() -> None:
    """A stale look asks nobody; a leader that does not answer leaves it at null, not at a guess."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        view = (await soon(world.follower.lock_views.query("daily", STALE, world.deadline()))).value
        assert [each.safe_ms for each in view.holders] == [None]
        world.fault = lambda *way: "frozen" if way[-1] == REQUEST_KIND else None

        looking = asyncio.create_task(looked(world, at=world.follower))
        await world.advance(1_200)
        assert [each.safe_ms for each in (await soon(looking)).holders] == [None]


async def test_a_deposed_leader_promises_nothing() -> None:
    """It may have extended a lease that the present leader never heard of."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        world.confirming.clear()
        looking = asyncio.create_task(looked(world, at=world.members["3"]))
        await settle()
        world.elect("2")
        world.confirming.set()

        assert [each.safe_ms for each in (await soon(looking)).holders] == [None]


async def test_a_look_says_how_long_waits_and_holds_took() -> None:
    """By the history; nothing where it knows nothing."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        assert (await looked(world)).waits is None
        for held_ms in (1_000, 3_000, 2_000):
            grant = await soon(acquired(world, session_id))
            await world.advance(500)
            await soon(world.leader.heartbeat(session_id, world.deadline()))
            world.clock.step_wall(held_ms)
            await release(world, grant)

        view = await looked(world)
        assert view.waits is not None
        assert (view.waits.count, view.waits.p50_ms, view.waits.p99_ms) == (3, 0, 0)
        assert view.holds is not None
        assert (view.holds.p50_ms, view.holds.p95_ms) == (2_500, 3_500)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((7,), (7, 7, 7)), ((10, 20), (10, 20, 20)), (tuple(range(1, 101)), (50, 95, 99))],
)
def test_a_percentile_is_the_nearest_rank(
    lengths: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """The shorter of two is the half that the longer one is not; of a hundred, p50 is the 50th."""
    assert tuple(nearest_rank(lengths, each) for each in (50, 95, 99)) == expected


async def test_a_look_sets_the_lease_of_each_beside_the_holds() -> None:
    """Of who holds and of who waits, each by its own session."""
    async with cluster(config=WITHOUT_LEASES) as world:
        holder, waiter = await opened(world, 5_000), await opened(world, 20_000)
        grant = await soon(acquired(world, holder))
        waiting = acquiring(world, waiter)
        await settle()

        view = await looked(world)

        assert [each.lease_ms for each in view.holders] == [5_000]
        assert [each.lease_ms for each in view.queue] == [20_000]
        await release(world, grant)
        await soon(waiting)


# --- the history


async def test_the_history_says_how_each_grant_ended_and_can_be_narrowed() -> None:
    """By lock, session, token, end and time, in pages, with those that hold now."""
    async with cluster(config=SHORT_SESSIONS) as world:
        one, two = await opened(world), await opened(world, 600_000)
        first = await soon(acquired(world, one, "a"))
        await release(world, first)
        second = await soon(acquired(world, one, "b"))
        await world.advance(2_300)
        third = await soon(acquired(world, two, "a"))

        assert await history(world) == [
            (first.grant_id, "released"), (second.grant_id, "expired"), (third.grant_id, ""),
        ]  # fmt: skip
        of_a = GrantsWanted(directory=LOCKS.directory("a"))
        assert await history(world, of_a) == [(first.grant_id, "released"), (third.grant_id, "")]
        assert await history(world, GrantsWanted(session_id=one, how="expired")) == [
            (second.grant_id, "expired")
        ]
        by_token = GrantsWanted(fencing_token=third.fencing_token)
        assert await history(world, by_token) == [(third.grant_id, "")]
        page = (
            await soon(
                world.leader.grant_history.page(
                    GrantsWanted(limit=2), LINEARIZABLE, world.deadline()
                )
            )
        ).value
        assert page.next is not None
        assert await history(world, GrantsWanted(after=page.next)) == [(third.grant_id, "")]


async def test_the_story_of_a_lost_grant_says_why_and_who_was_next() -> None:
    """Silence, the term of the leader that ended it, and the next holder."""
    async with cluster(config=SHORT_SESSIONS) as world:
        dead, alive = await opened(world), await opened(world, 600_000)
        lost = await soon(acquired(world, dead))
        waiting = acquiring(world, alive)
        await world.advance(2_300)
        following = await soon(waiting)

        story = (
            await soon(
                world.follower.grant_history.story(
                    LOCKS, "daily", lost.grant_id, LINEARIZABLE, world.deadline()
                )
            )
        ).value
        assert (story.grant.how, story.grant.term) == ("expired", world.term)
        assert 2_000 <= story.grant.silent_ms <= 2_200
        assert story.next is not None
        assert story.next.grant_id == following.grant_id
        said = " ".join(story.sentences)
        assert "heard nothing of its session for 2." in said
        assert following.grant_id in said


async def test_a_grant_that_never_was_has_no_story() -> None:
    """Nor has one that only waits."""
    async with cluster(config=WITHOUT_LEASES) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id))
        waiting = acquiring(world, session_id)
        await settle()
        waiter = (await looked(world)).queue[0].grant_id

        for grant_id, said in (("7-7", "never held"), (waiter, "it waits")):
            with pytest.raises(NoNodeError, match=said):
                await soon(
                    world.leader.grant_history.story(
                        LOCKS, "daily", grant_id, LINEARIZABLE, world.deadline()
                    )
                )
        waiting.cancel()
