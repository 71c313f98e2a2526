"""Leases and heartbeats: nobody is ended early, nobody is kept alive by a deposed leader."""

from __future__ import annotations

import asyncio
import json

import pytest

from coordinator.errors import (
    NoLeaderError,
    ProposalTimeoutError,
    SessionExpiredError,
    ThrottledError,
)
from coordinator.model.sessions import SessionLease
from coordinator.node.config import Config, SessionConfig
from coordinator.raft.engine import Applied
from coordinator.service.member import Member
from coordinator.service.reads.reads import STALE
from coordinator.service.sessions.session_ends import ENDED_AT_ONCE
from coordinator.service.writes.proposals import RequestContext
from coordinator.state.codec import decode_command
from coordinator.state.commands import Create, CreateMode, ExpireSession
from tests.service.fake_cluster import STEP_MS, World, cluster, counted, settle, soon


async def opened(world: World, timeout_ms: int = 2_000, *, at: Member | None = None) -> str:
    member = at or world.leader
    session = await soon(member.open_session(timeout_ms, "test", None, world.deadline()))
    return session.session_id


async def is_open(world: World, session_id: str) -> bool:
    reply = await world.leader.sessions.page(STALE, world.deadline())
    return session_id in [each.session_id for each in reply.value.sessions]


async def test_a_silent_session_ends_between_its_timeout_and_one_tick_more() -> None:
    """Never before the timeout, at most a tick after it, its ephemerals too."""
    async with cluster() as world:
        session_id = await opened(world)
        ephemeral = Create("/e", mode=CreateMode.EPHEMERAL, session_id=session_id)
        await world.leader.proposer.submit(ephemeral, RequestContext(None, world.deadline()))

        await world.advance(1_900)
        assert await is_open(world, session_id)
        await world.advance(200)

        assert not await is_open(world, session_id)
        page = await world.leader.children("/", STALE, world.deadline())
        assert page.value.names == ()
        assert counted(world.leader, "sessions_expired_total") == 1


@pytest.mark.parametrize("is_follower", [True, False])
async def test_heartbeats_keep_a_session_through_any_member(is_follower: bool) -> None:
    """Each acknowledged heartbeat starts the timeout again."""
    async with cluster() as world:
        session_id = await opened(world)
        member = world.follower if is_follower else world.leader

        for _ in range(5):
            await world.advance(1_500)
            ack = await soon(member.heartbeat(session_id, world.deadline(1_000)))
            assert ack == SessionLease(session_id, 2_000)

        await world.advance(1_900)
        assert await is_open(world, session_id)


async def test_a_heartbeat_after_the_end_is_refused_and_revives_nothing() -> None:
    """The old holder's heartbeat cannot extend anything."""
    async with cluster() as world:
        session_id = await opened(world)
        await world.advance(2_200)

        with pytest.raises(SessionExpiredError):
            await soon(world.follower.heartbeat(session_id, world.deadline()))


async def test_a_leader_without_a_quorum_acknowledges_no_heartbeat() -> None:
    """A deposed leader that has not noticed keeps no client believing."""
    async with cluster() as world:
        session_id = await opened(world)
        world.has_quorum = False
        beating = asyncio.create_task(world.leader.heartbeat(session_id, world.deadline(1_000)))
        await world.advance(1_000)

        with pytest.raises(NoLeaderError):
            await soon(beating)


async def test_a_round_that_a_change_of_leader_crosses_is_not_an_answer() -> None:
    """The confirmation must be of the leadership in which the heartbeat arrived."""
    async with cluster() as world:
        session_id = await opened(world)
        world.confirming.clear()
        beating = asyncio.create_task(world.leader.heartbeat(session_id, world.deadline()))
        await settle()
        world.elect("2")
        world.elect("1")
        world.confirming.set()
        await settle()

        assert not beating.done()
        assert await soon(beating) == SessionLease(session_id, 2_000)  # by a round of its own
        assert world.engines["1"].confirm_count == 2


async def test_a_new_leader_starts_every_lease_in_full() -> None:
    """A change of leader delays an expiry, and never hastens one."""
    async with cluster() as world:
        session_id = await opened(world)
        await world.advance(1_900)
        world.elect("2")

        await world.advance(1_900)
        assert await is_open(world, session_id)
        await world.advance(200)

        assert not await is_open(world, session_id)


async def test_a_leader_without_sessions_looks_at_those_of_its_next_leadership() -> None:
    """As if it had never been told that there is nothing to look at; it did not stall."""
    async with cluster() as world:
        await world.advance(1_000)
        world.elect("2")
        session_id = await opened(world)
        await world.advance(1_000)
        world.elect("1")

        await world.advance(1_900)
        assert await is_open(world, session_id)
        await world.advance(200)

        assert not await is_open(world, session_id)
        assert counted(world.leader, "lease_restarts_total") == 0


async def test_a_former_leader_expires_nothing() -> None:
    """Whoever stepped down drops its leases; only the present leader proposes."""
    async with cluster() as world:
        session_id = await opened(world)
        world.elect("2")
        for _ in range(5):
            await world.advance(1_500)
            await soon(world.leader.heartbeat(session_id, world.deadline()))

        operations = [decode_command(command).operation for _, command, _ in world.log]
        assert not [each for each in operations if isinstance(each, ExpireSession)]


async def test_an_expiry_carries_the_term_of_its_leader() -> None:
    """So it is void if another leader has taken over before it is in the log."""
    async with cluster() as world:
        session_id = await opened(world)
        await world.advance(2_200)

        operation = decode_command(world.log[-1][1]).operation
        assert operation == ExpireSession(
            session_id, term=world.term, silent_ms=2_000, at_once=ENDED_AT_ONCE
        )


async def test_no_heartbeat_is_acknowledged_while_an_expiry_is_undecided() -> None:
    """The log decides the race; until then the client hears neither yes nor no."""
    async with cluster() as world:
        session_id = await opened(world)
        world.has_quorum = False  # the expiry is proposed and cannot be committed
        await world.advance(2_200)
        beating = asyncio.create_task(world.leader.heartbeat(session_id, world.deadline(1_000)))
        world.confirming.set()
        world.has_quorum = True  # rounds succeed again, the expiry is still not committed
        await world.advance(500)
        assert not beating.done()
        await world.advance(500)

        with pytest.raises(NoLeaderError):
            await soon(beating)


async def test_a_leader_that_stalled_starts_all_leases_again() -> None:
    """Heartbeats that came during the stall may still be unread, so nobody is ended for it."""
    async with cluster() as world:
        session_id = await opened(world)
        await world.advance(1_000)
        world.clock.advance(5_000)  # not one tick in five seconds

        await world.advance(1_900)
        assert await is_open(world, session_id)
        await world.advance(300)

        assert not await is_open(world, session_id)


class Expiries:
    """What the leader proposes; each is answered as the test says."""

    def __init__(self, world: World) -> None:
        self.answers: list[asyncio.Future[Applied]] = []
        world.engines["1"].propose = self._propose  # type: ignore[method-assign]

    async def _propose(self, _command: bytes) -> Applied:
        answer: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)
        return await answer


async def test_an_expiry_under_way_during_a_stall_stays_the_only_one() -> None:
    """Its lease starts anew with the others, and it comes back to them once it is decided."""
    async with cluster() as world:
        session_id = await opened(world)
        expiries = Expiries(world)
        await world.advance(2_100)
        world.clock.advance(5_000)
        await world.advance(4_000)
        assert len(expiries.answers) == 1

        expiries.answers[0].set_exception(ThrottledError("too much"))
        await settle()
        await world.advance(100)
        assert len(expiries.answers) == 2
        expiries.answers[1].set_exception(ThrottledError("too much"))
        await settle()
        await soon(world.leader.heartbeat(session_id, world.deadline()))
        before = counted(world.leader, "leases_looked_at_total")
        await world.advance(2_500)

        assert counted(world.leader, "leases_looked_at_total") - before == 2
        assert len(expiries.answers) == 3


async def test_a_refusal_says_nothing_of_an_earlier_expiry_nobody_knows_of() -> None:
    """The first may still end the session, so no heartbeat is acknowledged before one is known."""
    async with cluster() as world:
        session_id = await opened(world)
        expiries = Expiries(world)
        await world.advance(2_100)
        expiries.answers[0].set_exception(ProposalTimeoutError("who knows"))
        await settle()
        await world.advance(100)
        expiries.answers[1].set_exception(ThrottledError("too much"))
        await settle()

        beating = asyncio.create_task(world.leader.heartbeat(session_id, world.deadline(200)))
        await settle()
        await world.advance(300)

        with pytest.raises(NoLeaderError):
            await soon(beating)


async def test_a_step_of_the_wall_clock_ends_nothing() -> None:
    """Leases are counted on the monotonic clock only."""
    async with cluster() as world:
        session_id = await opened(world)
        world.clock.step_wall(3_600_000)
        await world.advance(1_900)
        world.clock.step_wall(-7_200_000)

        assert await is_open(world, session_id)


async def test_heartbeats_of_many_share_requests_and_rounds() -> None:
    """A follower has one request under way; who comes meanwhile shares the next one."""
    config = Config(sessions=SessionConfig(timeout_ms_default=2_000))
    async with cluster(config=config) as world:
        session_ids = [await opened(world) for _ in range(100)]
        world.requests.clear()
        world.confirming.clear()
        member = world.follower
        beating = [
            asyncio.create_task(member.heartbeat(each, world.deadline())) for each in session_ids
        ]
        await settle()
        late = asyncio.create_task(member.heartbeat(session_ids[0], world.deadline()))
        await settle()
        world.confirming.set()
        await soon(asyncio.gather(*beating))
        await world.advance(STEP_MS)

        acks = await soon(asyncio.gather(*beating, late))

        assert [ack.session_id for ack in acks] == [*session_ids, session_ids[0]]
        assert [kind for _, _, kind in world.requests].count("heartbeat") == 2
        assert world.engines["1"].confirm_count == 2


async def test_a_lost_reply_to_a_heartbeat_is_asked_for_again() -> None:
    """Extending twice is harmless, so the member does it by itself."""
    async with cluster() as world:
        session_id = await opened(world)
        faults = ["reply", "request", "unsent"]
        world.fault = lambda _sender, _receiver, kind: (
            faults.pop() if faults and kind == "heartbeat" else None
        )

        ack = await soon(world.follower.heartbeat(session_id, world.deadline()))

        assert ack == SessionLease(session_id, 2_000)


async def test_ten_thousand_sessions_cost_a_tick_little() -> None:
    """A tick looks at the leases that end, not at all of them."""
    async with cluster(1) as world:
        for _ in range(10_000):
            await world.leader.open_session(60_000, "", None, world.deadline())
        short = await opened(world)

        await world.advance(2_100)

        assert not await is_open(world, short)
        assert counted(world.leader, "leases_looked_at_total") == 1


async def test_a_session_closed_by_its_client_has_no_lease_any_more() -> None:
    """Closing is told to the lease, and closing again does nothing."""
    async with cluster() as world:
        session_id = await opened(world, at=world.follower)

        ended = await soon(world.follower.close_session(session_id, None, world.deadline()))
        again = await soon(world.follower.close_session(session_id, None, world.deadline()))

        assert (ended.was_open, again.was_open) == (True, False)
        assert world.leader._leases.deadline_ms(session_id) is None


async def test_a_batch_is_answered_by_each_session() -> None:
    """One ended session in a batch does not spoil the answer of the others."""
    async with cluster() as world:
        alive, ended = await opened(world), await opened(world)
        await world.leader.close_session(ended, None, world.deadline())
        payload = json.dumps([alive, ended]).encode()

        reply = await world.engines["3"].request("1", "heartbeat", payload)

        assert json.loads(reply) == {"timeouts": {alive: 2_000, ended: None}}
