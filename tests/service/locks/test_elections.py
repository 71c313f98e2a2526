"""Elections: one elected at a time, with an epoch that grows and a value that only it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import BadArgumentsError, LockTimeoutError, NotOwnerError
from coordinator.model.events import Bookmark
from coordinator.model.grants import GrantReply
from coordinator.model.views import ElectionView
from coordinator.node.config import Config
from coordinator.service.member import Member
from coordinator.service.reads.reads import LINEARIZABLE
from coordinator.state.commands import RequestId
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.lock_scenes import answered_late, lagging

NAME = "scheduler"


async def opened(world: World, label: str = "job") -> str:
    session = await soon(world.leader.open_session(60_000, label, None, world.deadline()))
    return session.session_id


async def campaigned(
    world: World, session_id: str, value: bytes = b"", *, at: Member | None = None, **options: Any
) -> GrantReply:
    options.setdefault("request", None)
    options.setdefault("wait_deadline_ms", world.deadline())
    member = at or world.leader
    return await member.elections.campaign(NAME, session_id=session_id, value=value, **options)


def campaigning(world: World, *arguments: Any, **options: Any) -> asyncio.Task[GrantReply]:
    return asyncio.create_task(campaigned(world, *arguments, **options))


async def who(world: World) -> ElectionView:
    return (await soon(world.follower.elections.who(NAME, LINEARIZABLE, world.deadline()))).value


async def test_the_first_candidate_is_elected_and_the_others_wait_in_order() -> None:
    """Who is elected, with which value, and who would be next."""
    async with cluster() as world:
        one, two = await opened(world, "one"), await opened(world, "two")
        elected = await soon(campaigned(world, one, b"host-1"))
        second = campaigning(world, two, b"host-2", at=world.follower)
        await settle()

        view = await who(world)

        assert view.elected is not None
        assert view.elected.fencing_token == elected.fencing_token
        assert view.elected.value == b"host-1"
        assert [(each.label, each.position) for each in view.candidates] == [("two", 1)]
        assert elected.path == "/elections/scheduler/candidate-0000000000"
        second.cancel()


async def test_an_epoch_grows_with_every_elected() -> None:
    """It is the fencing token: whoever comes later has a higher one."""
    async with cluster() as world:
        session_id = await opened(world)
        first = await soon(campaigned(world, session_id))
        second = campaigning(world, session_id, at=world.follower)
        await soon(world.leader.elections.release(NAME, first.grant_id, None, world.deadline()))

        assert (await soon(second)).fencing_token > first.fencing_token


async def test_the_end_of_the_session_elects_the_next() -> None:
    """A crashed leader of the application is replaced."""
    async with cluster() as world:
        dead, alive = await opened(world), await opened(world)
        await soon(campaigned(world, dead))
        second = campaigning(world, alive)
        await settle()
        await world.leader.close_session(dead, None, world.deadline())

        assert (await soon(second)).session_id == alive


async def test_a_number_of_another_operation_proclaims_nothing_and_says_so() -> None:
    """It would be answered with what that operation came to."""
    async with cluster() as world:
        session_id = await opened(world)
        request = RequestId("c", number=7, floor_index=0)
        won = await soon(campaigned(world, session_id, b"old", request=request))

        with pytest.raises(BadArgumentsError, match="that of another operation"):
            await soon(
                world.leader.elections.proclaim(
                    NAME, won.grant_id, b"new", request, world.deadline()
                )
            )

        view = await who(world)
        assert view.elected is not None
        assert view.elected.value == b"old"


async def test_the_elected_proclaims_and_nobody_else() -> None:
    """A candidate that waits, one that resigned, one that never was: NotOwner."""
    async with cluster() as world:
        session_id = await opened(world)
        first = await soon(campaigned(world, session_id, b"old"))
        second = campaigning(world, session_id)
        await settle()
        waiter = (await who(world)).candidates[0]
        elections = world.follower.elections

        done = await soon(elections.proclaim(NAME, first.grant_id, b"new", None, world.deadline()))

        assert done.epoch == first.fencing_token
        view = await who(world)
        assert view.elected is not None
        assert view.elected.value == b"new"
        with pytest.raises(NotOwnerError):
            await soon(elections.proclaim(NAME, waiter.grant_id, b"x", None, world.deadline()))
        await soon(elections.release(NAME, first.grant_id, None, world.deadline()))
        await soon(second)
        with pytest.raises(NotOwnerError):
            await soon(elections.proclaim(NAME, first.grant_id, b"x", None, world.deadline()))
        with pytest.raises(NotOwnerError):
            await soon(elections.proclaim(NAME, "9-999", b"x", None, world.deadline()))


@pytest.mark.parametrize("catches_up", [True, False])
async def test_a_refused_resignation_names_nobody_who_has_resigned(catches_up: bool) -> None:
    """A member that lags behind names who is elected now, or nobody."""
    async with cluster() as world:
        first, second, third = [await opened(world) for _ in range(3)]
        lost = await soon(campaigned(world, first))
        await world.leader.close_session(first, None, world.deadline())
        former = await soon(campaigned(world, second))
        behind = lagging(world)
        elections = world.leader.elections
        await soon(elections.release(NAME, former.grant_id, None, world.deadline()))
        elected = await soon(campaigned(world, third))

        refused = asyncio.create_task(
            behind.elections.release(NAME, lost.grant_id, None, world.deadline(1_000))
        )
        await answered_late(world, behind, catches_up=catches_up)

        with pytest.raises(NotOwnerError) as caught:
            await soon(refused)
        named = caught.value.fields["holder"]
        assert (named and named["grant_id"]) == (elected.grant_id if catches_up else None)


async def test_a_proclamation_repeated_after_resigning_is_answered_as_the_first_time() -> None:
    """The request number wins over the present state: it did happen."""
    async with cluster() as world:
        session_id, request = await opened(world), RequestId("client", 1)
        won = await soon(campaigned(world, session_id))
        elections = world.leader.elections
        first = await elections.proclaim(NAME, won.grant_id, b"x", request, world.deadline())
        await elections.release(NAME, won.grant_id, None, world.deadline())

        again = await elections.proclaim(NAME, won.grant_id, b"x", request, world.deadline())

        assert again == first


async def test_a_try_to_be_elected_leaves_no_candidate() -> None:
    """The refusal says who is elected."""
    async with cluster() as world:
        session_id = await opened(world)
        won = await soon(campaigned(world, session_id, b"me"))

        with pytest.raises(LockTimeoutError) as caught:
            await soon(campaigned(world, session_id, is_try=True))
        assert caught.value.holder["grant_id"] == won.grant_id
        assert (await who(world)).candidates == ()


async def test_an_abandoned_campaign_is_out_of_the_queue() -> None:
    """The request number is enough to undo it."""
    async with cluster() as world:
        session_id = await opened(world)
        await soon(campaigned(world, session_id))
        second = campaigning(world, session_id, request=RequestId("client", 5))
        await settle()
        await world.leader.elections.abandon(NAME, "client", 5, 0, world.deadline())
        await asyncio.wait({second})

        assert (await who(world)).candidates == ()


async def test_an_observer_sees_each_change_of_the_elected_and_its_value() -> None:
    """Candidates that come and go behind the elected are not told."""
    async with cluster() as world:
        session_id = await opened(world)
        views = world.follower.elections.observe(NAME)
        seen = [await soon(anext(views))]
        first = await soon(campaigned(world, session_id, b"1"))
        seen.append(await soon(anext(views)))
        second = campaigning(world, session_id, b"2")
        await settle()
        elections = world.leader.elections
        await elections.proclaim(NAME, first.grant_id, b"1b", None, world.deadline())
        seen.append(await soon(anext(views)))
        await elections.release(NAME, first.grant_id, None, world.deadline())
        await soon(second)
        seen.append(await soon(anext(views)))
        await views.aclose()

        values = []
        for view in seen:
            assert not isinstance(view, Bookmark)
            values.append(None if view.elected is None else view.elected.value)
        assert values == [None, b"1", b"1b", b"2"]
        assert world.follower.watches._streams == {}


async def test_an_observer_goes_on_after_a_snapshot() -> None:
    """It looks at the state anew instead of missing what happened between."""
    async with cluster() as world:
        session_id = await opened(world)
        engine = world.engines["3"]
        views = world.members["3"].elections.observe(NAME)
        await soon(anext(views))
        engine.is_applying = False
        await soon(campaigned(world, session_id, b"1"))
        leader_replica = world.engines["1"].replica
        assert leader_replica is not None
        engine.install(leader_replica.snapshot(), index=len(world.log))

        view = await soon(anext(views))

        assert not isinstance(view, Bookmark)
        assert view.elected is not None
        assert view.elected.value == b"1"
        await views.aclose()


async def test_an_observation_ends_when_the_member_stops() -> None:
    """So that the observer goes to another member."""
    async with cluster() as world:
        member: Member = world.members["2"]
        views = member.elections.observe(NAME)
        await soon(anext(views))
        await member.stop()

        with pytest.raises(StopAsyncIteration):
            await soon(anext(views))


async def test_a_config_without_members_is_a_cluster_of_one() -> None:
    """Elections run on any cluster, also on the smallest."""
    async with cluster(1, config=Config()) as world:
        session_id = await opened(world)

        assert (await soon(campaigned(world, session_id, at=world.leader))).fencing_token > 0
