"""Bounded holds and lock-delays: ended by the leader's clock, never before the holder knows.

The holder's own deadline is counted as a client counts it: from when a heartbeat was sent, by what
its answer said was left.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from coordinator.errors import CoordinatorError, LockTimeoutError, NoLeaderError
from coordinator.model.acquire import AcquireRequest
from coordinator.model.grants import GrantReply
from coordinator.node.config import Config, SessionConfig
from coordinator.state.codec import decode_command
from coordinator.state.commands import EndHold, Reopen
from tests.service.fake_cluster import STEP_MS, World, cluster, settle, soon
from tests.service.locks.lock_scenes import acquired, acquiring, looked, opened, release

LONG_SESSIONS = Config(sessions=SessionConfig(timeout_ms_default=600_000))
SHORT_SESSIONS = Config(sessions=SessionConfig(timeout_ms_default=2_000))


def bounded(max_hold_ms: int) -> AcquireRequest:
    return AcquireRequest(max_hold_ms=max_hold_ms)


def proposed(world: World, kind: type) -> list[object]:
    operations = [decode_command(command).operation for _, command, _ in world.log]
    return [each for each in operations if isinstance(each, kind)]


async def test_a_bounded_hold_ends_on_time_and_grants_the_next() -> None:
    """Not before its time, and within a tick of it; the history says why."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id, wish=bounded(5_000)))
        waiting = acquiring(world, session_id, at=world.follower)
        await world.advance(4_900)
        assert not waiting.done()
        await world.advance(200)

        second = await soon(waiting)
        assert second.fencing_token > first.fencing_token
        assert second.previous is not None
        assert second.previous.how == "max_hold"
        assert len(proposed(world, EndHold)) == 1


async def test_a_hold_given_back_in_time_is_not_ended() -> None:
    """Its timer goes with it; a later grant of the same session is left alone."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        await release(world, await soon(acquired(world, session_id, wish=bounded(1_000))))
        later = await soon(acquired(world, session_id))
        await world.advance(3_000)

        assert proposed(world, EndHold) == []
        assert [each.grant_id for each in (await looked(world)).holders] == [later.grant_id]


async def test_the_wait_does_not_count_as_hold() -> None:
    """The bound begins with the grant, not with the place in the queue."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        first = await soon(acquired(world, session_id))
        waiting = acquiring(world, session_id, wish=bounded(1_000))
        await world.advance(5_000)
        await release(world, first)
        second = await soon(waiting)
        await world.advance(900)

        assert [each.grant_id for each in (await looked(world)).holders] == [second.grant_id]
        await world.advance(200)
        assert (await looked(world)).holders == ()


async def test_a_new_leader_starts_bounds_anew_and_in_full() -> None:
    """A hold may last longer by a change of leader, never less; the old leader ends nothing."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, wish=bounded(3_000)))
        await world.advance(2_000)
        world.elect("2")
        await world.advance(2_900)
        assert len((await looked(world)).holders) == 1
        await world.advance(200)

        assert (await looked(world)).holders == ()
        (ended,) = proposed(world, EndHold)
        assert isinstance(ended, EndHold)
        assert ended.term == world.term


async def test_an_end_that_could_not_be_proposed_is_proposed_again() -> None:
    """Without a quorum nothing is decided; with it, soon."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, wish=bounded(1_000)))
        world.has_quorum = False
        await world.advance(1_500)
        world.elect("1")  # what was under way ends as LeaderChanged
        world.has_quorum = True
        await world.advance(1_200)

        assert (await looked(world)).holders == ()


async def test_a_heartbeat_tells_what_is_left_of_each_bounded_hold() -> None:
    """Through any member; what is not bounded is not there, what has ended is not either."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id, "a", bounded(5_000)))
        await soon(acquired(world, session_id, "b"))
        await world.advance(2_000)

        for member in (world.leader, world.follower):
            ack = await soon(member.heartbeat(session_id, world.deadline()))
            assert dict(ack.holds) == {grant.path: 3_000}
        await world.advance(3_100)
        ack = await soon(world.follower.heartbeat(session_id, world.deadline()))
        assert dict(ack.holds) == {}
        assert [(each.path, each.how) for each in ack.lost] == [(grant.path, "max_hold")]


async def test_a_several_lock_hold_ends_as_one() -> None:
    """Every queue is free at once, by one command."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        grant = await soon(acquired(world, session_id, ("a", "b"), bounded(1_000)))
        ack = await soon(world.follower.heartbeat(session_id, world.deadline()))
        assert dict(ack.holds) == {each.path: 1_000 for each in grant.grants}
        await world.advance(1_200)

        for name in ("a", "b"):
            assert (await looked(world, name)).holders == ()
        assert len(proposed(world, EndHold)) == 1


@pytest.mark.parametrize("seed", range(6))
async def test_a_holder_that_counts_by_heartbeats_knows_before_anybody_else_is_granted(
    seed: int,
) -> None:
    """Whatever is late, lost, or led by another: its own deadline comes first (guarantee 8)."""
    chosen = random.Random(seed)
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        for _ in range(6):
            bound_ms = chosen.randrange(500, 4_000, 100)
            grant = await soon(acquired(world, session_id, wish=bounded(bound_ms)))
            waiting = acquiring(world, session_id, at=chosen.choice(list(world.members.values())))
            own_deadline_ms = await _held_until(world, grant, chosen, waiting)
            second = await soon(waiting)

            assert own_deadline_ms is None or own_deadline_ms <= world.clock.monotonic_ms()
            await release(world, second)


async def _held_until(
    world: World, grant: GrantReply, chosen: random.Random, waiting: asyncio.Task[GrantReply]
) -> int | None:
    """Let time pass until somebody else is granted; return until when the holder believed."""
    believed: int | None = None
    beats: dict[asyncio.Task[int | None], int] = {}
    for _ in range(400):
        if waiting.done():
            break
        if chosen.random() < 0.5:
            member = chosen.choice(list(world.members.values()))
            sent_ms = world.clock.monotonic_ms()
            beat = member.heartbeat(grant.session_id, world.deadline(1_000))
            beats[asyncio.create_task(_left_ms(beat, grant.path))] = sent_ms
        if chosen.random() < 0.05:
            world.elect(chosen.choice(["1", "2", "3"]))
        world.confirming.clear() if chosen.random() < 0.2 else world.confirming.set()
        await world.advance(STEP_MS)
        for beat_task in [each for each in beats if each.done()]:
            left_ms, sent_ms = beat_task.result(), beats.pop(beat_task)
            if left_ms is not None:
                assert not waiting.done() or sent_ms + left_ms <= world.clock.monotonic_ms()
                believed = max(believed or 0, sent_ms + left_ms)
    world.confirming.set()
    if world.leader_id is None:
        world.elect("1")
    for beat_task in beats:
        beat_task.cancel()
    return believed


async def _left_ms(beat: object, path: str) -> int | None:
    try:
        ack = await beat  # type: ignore[misc]
    except CoordinatorError:
        return None
    left_ms: int | None = ack.holds.get(path)
    return left_ms


async def test_a_queue_is_closed_after_an_unclean_loss_for_its_delay() -> None:
    """Nobody is granted until it is over; a view says what is left, as the leader counts."""
    async with cluster(config=SHORT_SESSIONS) as world:
        dead, alive = await opened(world), await opened(world, 600_000)
        await soon(acquired(world, dead, wish=AcquireRequest(lock_delay_ms=5_000)))
        waiting = acquiring(world, alive, at=world.follower)
        await world.advance(2_200)

        view = await looked(world)
        assert view.holders == ()
        assert view.closed is not None
        assert view.closed.delay_ms == 5_000
        left_ms = view.closed.remaining_ms
        assert left_ms is not None
        assert 4_700 <= left_ms <= 5_000
        await world.advance(4_600)
        assert not waiting.done()
        await world.advance(600)

        assert (await soon(waiting)).session_id == alive
        assert (await looked(world)).closed is None
        assert len(proposed(world, Reopen)) == 1


async def test_who_asks_for_a_closed_lock_is_told_that_nobody_holds_it_and_why() -> None:
    """Not granted in time, without a holder: the message says that it is closed."""
    async with cluster(config=SHORT_SESSIONS) as world:
        dead, alive = await opened(world), await opened(world, 600_000)
        await soon(acquired(world, dead, wish=AcquireRequest(lock_delay_ms=5_000)))
        await world.advance(2_200)

        with pytest.raises(LockTimeoutError, match="closed for a while") as caught:
            await soon(acquired(world, alive, is_try=True))
        assert caught.value.holder is None


async def test_a_clean_end_closes_nothing() -> None:
    """A release and a closed session grant the next at once."""
    async with cluster(config=SHORT_SESSIONS) as world:
        leaving, alive = await opened(world), await opened(world, 600_000)
        wish = AcquireRequest(lock_delay_ms=60_000)
        await release(world, await soon(acquired(world, leaving, wish=wish)))
        await soon(acquired(world, leaving, wish=wish))
        waiting = acquiring(world, alive)
        await settle()
        await world.leader.close_session(leaving, None, world.deadline())

        assert (await soon(waiting)).session_id == alive


async def test_a_new_leader_waits_the_whole_delay_again() -> None:
    """It may not know how much of it is over: longer, never shorter."""
    async with cluster(config=SHORT_SESSIONS) as world:
        dead, alive = await opened(world), await opened(world, 600_000)
        await soon(acquired(world, dead, wish=AcquireRequest(lock_delay_ms=3_000)))
        waiting = acquiring(world, alive, at=world.members["3"])
        await world.advance(2_200 + 2_000)
        world.elect("2")
        await world.advance(2_900)
        assert not waiting.done()
        await world.advance(300)

        assert (await soon(waiting)).session_id == alive


async def test_a_member_that_does_not_lead_ends_nothing() -> None:
    """Nor one whose lead was taken while its proposal was under way (the term says so)."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, wish=bounded(1_000)))
        world.elect(None)
        await world.advance(5_000)
        assert proposed(world, EndHold) == []
        world.elect("3")
        await world.advance(900)

        assert len((await looked(world)).holders) == 1
        await world.advance(200)
        assert (await looked(world)).holders == ()


async def test_nobody_is_told_what_is_left_without_a_leader() -> None:
    """A bounded hold of which nothing is confirmed is not extended by anything."""
    async with cluster(config=LONG_SESSIONS) as world:
        session_id = await opened(world)
        await soon(acquired(world, session_id, wish=bounded(1_000)))
        world.elect(None)
        beat = asyncio.create_task(world.follower.heartbeat(session_id, world.deadline(500)))
        await world.advance(600)

        with pytest.raises(NoLeaderError):
            await soon(beat)
