"""What may be sent by anybody and changes nothing: only a little of it is an entry of the log."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import NoAuthError, ThrottledError
from coordinator.model.access import Caller, Rule, Verb
from coordinator.node.config import Config, RaftConfig
from coordinator.service.writes.proposals import PROPOSED_MAX, Committed, RequestContext
from coordinator.state.commands import Create, RequestId
from coordinator.state.outcomes import SessionEnded
from tests.service.fake_cluster import World, cluster, settle, soon
from tests.service.locks.test_waiting_room import client
from tests.service.rights import allowed, with_rights

EACH = pytest.mark.parametrize("asked", ["1", "2"], ids=["leader", "follower"])


async def end(world: World, session_id: str, *, at: str) -> SessionEnded:
    member = world.members[at]
    return await soon(member.close_session(session_id, None, world.deadline()))


@EACH
async def test_the_ends_of_sessions_that_are_not_there_fill_no_log(asked: str) -> None:
    """They are answered as if they had been proposed; another client's end is proposed."""
    async with cluster() as world:
        before = len(world.log)
        with client("raging"):
            ended = [await end(world, f"{n:032x}", at=asked) for n in range(10 * PROPOSED_MAX)]
            assert len(world.log) - before == PROPOSED_MAX
        with client("other"):
            ended.append(await end(world, "0" * 32, at=asked))

        assert len(world.log) - before == PROPOSED_MAX + 1
        assert not any(each.was_open for each in ended)
        session = await soon(world.leader.open_session(None, "", None, world.deadline()))
        with client("raging"):
            assert (await end(world, session.session_id, at=asked)).was_open


@EACH
async def test_writes_without_a_right_fill_no_log(asked: str) -> None:
    """Nor does it matter that this member has not seen yet that the caller may do it by now."""
    async with cluster() as world:
        caller = await with_rights(world, Rule("/own", (Verb.WRITE,)))
        member, before = world.members[asked], len(world.log)
        with client("raging"):
            for number in range(10 * PROPOSED_MAX):
                with pytest.raises(NoAuthError):
                    await soon(
                        member.proposer.submit(
                            Create("/theirs"),
                            RequestContext(
                                RequestId("raging", number + 1), world.deadline(), caller=caller
                            ),
                        )
                    )
            assert len(world.log) - before == PROPOSED_MAX
            engine = world.engines[asked]
            engine.is_applying = asked == world.leader_id
            await allowed(world, Rule("/theirs", (Verb.WRITE,)))
            late = asyncio.create_task(
                member.proposer.submit(
                    Create("/theirs"), RequestContext(None, world.deadline(), caller=caller)
                )
            )
            await settle()
            engine.is_applying = True
            engine.catch_up()

            assert (await soon(late)).outcome.refusal is None


async def test_a_request_that_came_before_gets_its_first_outcome() -> None:
    """Though its caller may not do it any more, and has asked for too much."""
    async with cluster() as world:
        caller = await with_rights(world, Rule("/own", (Verb.WRITE,)))
        with client("raging"):
            for number in range(2 * PROPOSED_MAX):
                with pytest.raises(NoAuthError):
                    await soon(
                        world.leader.proposer.submit(
                            Create("/theirs"), RequestContext(None, world.deadline(), caller=caller)
                        )
                    )
                if number == 0:
                    first = await soon(_create_own(world, caller))
                    await allowed(world, Rule("/other", (Verb.WRITE,)))

            assert (await soon(_create_own(world, caller))).outcome.result == first.outcome.result


@EACH
async def test_one_client_leaves_proposals_to_others(asked: str) -> None:
    """However long they wait for an answer, and whichever member was asked."""
    config = Config(raft=RaftConfig(proposals_in_flight_max=8))
    async with cluster(config=config) as world:
        world.has_quorum = False
        waiting = []
        with client("raging"):
            for number in range(8):
                waiting.append(_creating(world, f"/raging-{number}", asked))
            await settle()
            refused = [each for each in waiting if each.done()]
            assert len(refused) == 4
            for each in refused:
                with pytest.raises(ThrottledError, match="of one client"):
                    each.result()
        await world.advance(1_000)
        with client("other"):
            other = _creating(world, "/other", asked)
        await settle()

        assert not other.done(), "it is under way"
        for each in (*waiting, other):
            each.cancel()


def _creating(world: World, path: str, asked: str) -> asyncio.Task[object]:
    submit = world.members[asked].proposer.submit
    return asyncio.create_task(
        submit(Create(path), RequestContext(None, world.deadline(30_000)))
    )


async def _create_own(world: World, caller: Caller) -> Committed:
    return await world.leader.proposer.submit(
        Create("/own"), RequestContext(RequestId("mine", 1), world.deadline(), caller=caller)
    )
