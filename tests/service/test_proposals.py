"""Writes from any member: sent on, sent again only where that is safe, never reported wrongly."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.clock import ManualClock
from coordinator.errors import (
    BadVersionError,
    ConnectionLostError,
    LeaderChangedError,
    NodeExistsError,
    NoLeaderError,
    NoSpaceError,
    OutcomeUnknownError,
    ProposalTimeoutError,
    ShuttingDownError,
    ThrottledError,
)
from coordinator.node.config import Config, RaftConfig
from coordinator.service.base.turns import ALONE_MAX, KEY
from coordinator.service.reads.reads import LINEARIZABLE, STALE
from coordinator.service.writes.proposals import RequestContext, SubmitOptions
from coordinator.state.commands import Create, RequestId, SetData
from tests.service.fake_cluster import cluster, settle, soon

REQUEST = RequestId("client", 1)


async def test_a_follower_sends_a_write_to_the_leader_and_then_shows_it() -> None:
    """A write through a follower is readable there, even stale, once it has returned."""
    async with cluster() as world:
        committed = await soon(
            world.follower.proposer.submit(
                Create("/a", b"x"), RequestContext(None, world.deadline())
            )
        )

        assert committed.is_local
        reply = await world.follower.get("/a", STALE, world.deadline())
        assert (reply.value[0], reply.zxid) == (b"x", committed.outcome.zxid)


async def test_a_write_has_the_time_of_the_leader_whichever_member_was_asked() -> None:
    """The clock of a member that does not lead is in no znode."""
    async with cluster() as world:
        wrong = ManualClock()
        wrong.step_wall(3_600_000)
        world.follower.proposer._clock = wrong

        await soon(
            world.follower.proposer.submit(
                Create("/a", b"x"), RequestContext(None, wrong.monotonic_ms() + 10_000)
            )
        )

        reply = await world.follower.get("/a", STALE, world.deadline())
        assert reply.value[1].ctime_ms == world.clock.wall_ms()


async def test_a_write_that_waited_for_its_own_member_to_lead_has_the_time_of_then() -> None:
    """Not that at which it was asked for: another leader's writes may be of between."""
    async with cluster(leader_id=None) as world:
        member = world.members["1"]
        writing = asyncio.ensure_future(
            member.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()
        await world.advance(5_000)
        world.elect("1")
        await soon(writing)

        reply = await member.get("/a", STALE, world.deadline())
        assert reply.value[1].ctime_ms == world.clock.wall_ms()


async def test_a_refusal_reaches_the_caller_of_a_follower_as_itself() -> None:
    """The error of the tree comes back with its class and its facts."""
    async with cluster() as world:
        create = Create("/a")
        await world.leader.proposer.submit(create, RequestContext(None, world.deadline()))

        with pytest.raises(NodeExistsError):
            await soon(
                world.follower.proposer.submit(create, RequestContext(None, world.deadline()))
            )
        wrong = SetData("/a", b"", expected_version=7)
        with pytest.raises(BadVersionError):
            await soon(
                world.follower.proposer.submit(wrong, RequestContext(None, world.deadline()))
            )


async def test_without_a_number_a_lost_reply_is_unknown_and_not_sent_again() -> None:
    """A command without a request number is proposed at most once."""
    async with cluster() as world:
        world.fault = lambda _sender, _receiver, _kind: "reply"

        with pytest.raises(ConnectionLostError):
            await soon(
                world.follower.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
            )
        assert len(world.log[1:]) == 1
        assert len(world.requests) == 1


@pytest.mark.parametrize("fault", ["request", "reply", "unsent"])
async def test_with_a_number_a_lost_request_is_sent_again_and_done_once(fault: str) -> None:
    """Whatever was lost, the repeat is answered with the first outcome."""
    async with cluster() as world:
        faults = [fault, fault]
        world.fault = lambda _sender, _receiver, _kind: faults.pop() if faults else None

        committed = await soon(
            world.follower.proposer.submit(Create("/a"), RequestContext(REQUEST, world.deadline()))
        )

        assert committed.outcome.zxid == 1
        assert len(world.requests) == 3


async def test_with_a_number_a_write_survives_a_change_of_leader() -> None:
    """The proposal of a deposed leader is repeated at the next one."""
    async with cluster() as world:
        world.has_quorum = False
        writing = asyncio.create_task(
            world.follower.proposer.submit(Create("/a"), RequestContext(REQUEST, world.deadline()))
        )
        await settle()
        world.elect("2")
        world.has_quorum = True

        committed = await soon(writing)

        assert committed.outcome.zxid == 1


async def test_without_a_number_a_change_of_leader_is_unknown() -> None:
    """Nobody knows whether the deposed leader's entry will be committed."""
    async with cluster() as world:
        world.has_quorum = False
        writing = asyncio.create_task(
            world.leader.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()
        world.elect("2")

        with pytest.raises(LeaderChangedError):
            await soon(writing)


async def test_a_write_sent_to_a_frozen_leader_is_repeated_as_soon_as_there_is_another() -> None:
    """With a number it does not wait for the silent leader until its deadline; no time passes."""
    async with cluster() as world:
        world.fault = lambda _sender, receiver, _kind: "frozen" if receiver == "1" else None
        writing = asyncio.create_task(
            world.follower.proposer.submit(Create("/a"), RequestContext(REQUEST, world.deadline()))
        )
        await settle()
        assert world.log[1:] == []
        world.elect("2")

        committed = await soon(writing)

        assert committed.outcome.zxid == 1
        assert [receiver for _, receiver, _ in world.requests] == ["1", "2"]


async def test_a_write_without_a_number_sent_to_a_frozen_leader_is_unknown_at_once() -> None:
    """It may lie in the old leader's log, so it is not sent again and not called failed."""
    async with cluster() as world:
        world.fault = lambda _sender, _receiver, _kind: "frozen"
        writing = asyncio.create_task(
            world.follower.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()
        world.elect(None)

        with pytest.raises(LeaderChangedError):
            await soon(writing)


async def test_a_heartbeat_sent_to_a_frozen_leader_goes_to_the_next_one() -> None:
    """A client's session does not hang on a leader that was replaced."""
    async with cluster() as world:
        opened = await world.leader.open_session(5_000, "", None, world.deadline())
        world.fault = lambda _sender, receiver, _kind: "frozen" if receiver == "1" else None
        beating = asyncio.create_task(world.follower.heartbeat(opened.session_id, world.deadline()))
        await settle()
        world.elect("2")

        ack = await soon(beating)

        assert ack.timeout_ms == 5_000


async def test_who_waits_for_a_leader_goes_on_when_one_is_known() -> None:
    """Nobody looks again and again: the engine's word wakes the write, with no time passing."""
    async with cluster(leader_id=None) as world:
        writing = asyncio.create_task(
            world.follower.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()
        world.elect("1")
        await settle()

        assert writing.done()


async def test_a_write_waits_for_a_leader_within_its_deadline() -> None:
    """No leader yet is not an error yet."""
    async with cluster(leader_id=None) as world:
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(None, world.deadline(5_000))
            )
        )
        await world.advance(1_000)
        world.elect("2")

        assert (await soon(writing)).outcome.zxid == 1


async def test_no_leader_until_the_deadline_means_nothing_was_proposed() -> None:
    """The definite error comes at the deadline, not before and not much after."""
    async with cluster(leader_id=None) as world:
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(None, world.deadline(1_000))
            )
        )
        await world.advance(900)
        assert not writing.done()
        await world.advance(100)

        with pytest.raises(NoLeaderError):
            await soon(writing)
        assert not world.log[1:]


async def test_who_asks_elsewhere_is_told_in_time_that_no_leader_is_known() -> None:
    """A member that is cut off keeps nobody until a far deadline; an election is waited for."""
    async with cluster(leader_id=None) as world:
        writes = [
            asyncio.create_task(
                world.follower.proposer.submit(
                    Create(path),
                    RequestContext(RequestId("client", number), world.deadline(60_000)),
                    SubmitOptions(is_long=is_long),
                )
            )
            for number, (path, is_long) in enumerate((("/a", True), ("/b", False)), 1)
        ]
        await world.advance(4_900)
        assert not any(each.done() for each in writes)
        await world.advance(200)

        with pytest.raises(NoLeaderError, match="ask another member"):
            await soon(writes[0])
        assert not writes[1].done()
        world.elect("1")
        await soon(writes[1])
        assert len(world.log[1:]) == 1


@pytest.mark.parametrize("is_follower", [True, False])
async def test_a_deadline_under_way_is_unknown(is_follower: bool) -> None:
    """Without a quorum nobody can say what becomes of a logged proposal."""
    async with cluster() as world:
        world.has_quorum = False
        member = world.follower if is_follower else world.leader
        writing = asyncio.create_task(
            member.proposer.submit(Create("/a"), RequestContext(REQUEST, world.deadline(1_000)))
        )
        await world.advance(1_000)

        with pytest.raises(ProposalTimeoutError):
            await soon(writing)


async def test_after_an_unknown_attempt_no_definite_error_is_reported() -> None:
    """That the second attempt found no leader says nothing about the first."""
    async with cluster() as world:
        world.fault = lambda _sender, _receiver, _kind: "reply"
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(REQUEST, world.deadline(1_000))
            )
        )
        await settle()
        world.fault = lambda _sender, _receiver, _kind: "unsent"
        world.elect(None)
        await world.advance(1_000)

        with pytest.raises(ProposalTimeoutError):
            await soon(writing)


async def test_a_known_outcome_is_returned_even_if_it_is_not_applied_here_in_time() -> None:
    """Known is known: a member that lags reports the outcome and that it is not local."""
    async with cluster() as world:
        member = world.members["3"]
        world.engines["3"].is_applying = False
        writing = asyncio.create_task(
            member.proposer.submit(Create("/a"), RequestContext(None, world.deadline(1_000)))
        )
        await world.advance(900)
        assert not writing.done()
        await world.advance(100)

        committed = await soon(writing)
        assert (committed.outcome.zxid, committed.is_local) == (1, False)


async def test_the_reply_waits_until_the_outcome_is_applied_here() -> None:
    """A follower that lags answers once it has caught up, and not before."""
    async with cluster() as world:
        engine = world.engines["3"]
        engine.is_applying = False
        writing = asyncio.create_task(
            world.members["3"].proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()
        assert not writing.done()
        engine.is_applying = True
        engine.catch_up()

        assert (await soon(writing)).is_local


async def test_too_much_under_way_is_throttled_at_once() -> None:
    """A follower refuses more than its share in flight; nothing was proposed."""
    async with cluster(config=Config(raft=RaftConfig(proposals_in_flight_max=1))) as world:
        world.has_quorum = False
        first = asyncio.create_task(
            world.follower.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
        )
        await settle()

        with pytest.raises(ThrottledError):
            await soon(
                world.follower.proposer.submit(
                    Create("/b"), RequestContext(REQUEST, world.deadline())
                )
            )
        first.cancel()


@pytest.mark.parametrize("asked", ["1", "2"])
async def test_too_many_bytes_under_way_are_throttled_at_once(asked: str) -> None:
    """Also while nobody leads and all of them wait; one alone is never too large; then there is
    room again."""
    async with cluster(config=Config(raft=RaftConfig(proposals_bytes_max=3_000))) as world:
        world.has_quorum = False
        data, member = b"x" * 1_000, world.members[asked]
        waiting = [
            asyncio.create_task(
                member.proposer.submit(Create(path, data), RequestContext(None, world.deadline()))
            )
            for path in ("/a", "/b")
        ]
        await settle()

        with pytest.raises(ThrottledError, match="bytes of proposals") as caught:
            await soon(
                member.proposer.submit(
                    Create("/c", data), RequestContext(REQUEST, world.deadline())
                )
            )
        assert caught.value.definite
        for each in waiting:
            each.cancel()
        await asyncio.wait(waiting)
        assert member.proposer._bytes.total == 0
        large = asyncio.create_task(
            member.proposer.submit(Create("/c", data * 5), RequestContext(None, world.deadline()))
        )
        await settle()
        assert not large.done()
        large.cancel()


@pytest.mark.parametrize("request_id", [None, REQUEST])
async def test_a_write_without_a_turn_at_the_leader_was_certainly_not_proposed(
    request_id: RequestId | None,
) -> None:
    """The leader says so before the deadline of the member that was asked, which is then certain,
    too."""
    async with cluster() as world:
        KEY.set("identity app")
        mark = world.leader.turns.begin("identity app", ALONE_MAX)
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(request_id, world.deadline(10_000))
            )
        )
        await settle()
        await world.advance(8_500)
        assert not writing.done()
        await world.advance(700)

        with pytest.raises(ThrottledError, match="nothing was proposed") as caught:
            await soon(writing)
        assert caught.value.definite
        assert len(world.log[1:]) == 0
        assert world.leader.proposer._bytes.total == 0
        world.leader.turns.end("identity app", mark, ALONE_MAX)
        assert world.leader.turns.begin("identity app", ALONE_MAX)


async def test_a_missed_turn_says_nothing_of_an_earlier_attempt() -> None:
    """What may have been proposed before stays unknown."""
    async with cluster() as world:
        KEY.set("identity app")
        faults: list[str | None] = ["reply"]
        world.fault = lambda _sender, _receiver, _kind: faults.pop() if faults else None
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(REQUEST, world.deadline(10_000))
            )
        )
        await settle()
        assert len(world.log[1:]) == 1
        world.leader.turns.begin("identity app", ALONE_MAX)
        for _ in range(110):
            await world.advance(100)

        with pytest.raises(OutcomeUnknownError):
            await soon(writing)


@pytest.mark.parametrize("asked", ["1", "2"])
async def test_a_leader_with_a_full_disk_refuses_at_once(asked: str) -> None:
    """Definitely: nothing was proposed, by whichever member it came; reads go on."""
    async with cluster() as world:
        world.engines["1"].is_full = True
        before = len(world.log)

        with pytest.raises(NoSpaceError) as caught:
            await soon(
                world.members[asked].proposer.submit(
                    Create("/a"), RequestContext(REQUEST, world.deadline())
                )
            )

        assert caught.value.definite
        assert len(world.log) == before
        await soon(world.members[asked].get("/", LINEARIZABLE, world.deadline()))


async def test_no_room_is_not_told_of_a_write_that_may_have_happened() -> None:
    """The first attempt's answer was lost: a refusal of the second says nothing of the first."""
    async with cluster() as world:
        world.fault = lambda _sender, _receiver, _kind: "reply"
        writing = asyncio.create_task(
            world.follower.proposer.submit(
                Create("/a"), RequestContext(REQUEST, world.deadline(1_000))
            )
        )
        await settle()
        world.fault = lambda _sender, _receiver, _kind: None
        world.engines["1"].is_full = True
        await world.advance(1_000)

        with pytest.raises(ProposalTimeoutError):
            await soon(writing)


async def test_a_stopping_member_refuses_and_tells_those_who_wait() -> None:
    """Whoever waits for a leader learns that this member will not find one."""
    async with cluster(leader_id=None) as world:
        member = world.members["1"]
        writing = asyncio.create_task(
            member.proposer.submit(Create("/a"), RequestContext(REQUEST, world.deadline()))
        )
        await settle()
        await member.stop()

        with pytest.raises(ShuttingDownError):
            await soon(writing)
        with pytest.raises(ShuttingDownError):
            await member.proposer.submit(Create("/a"), RequestContext(None, world.deadline()))
