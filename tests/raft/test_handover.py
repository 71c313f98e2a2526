"""A leader that stops in order gives its leadership away: no election timeout, nothing unknown."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.errors import CoordinatorError, NoLeaderError, UnavailableError
from coordinator.raft.engine import Role
from coordinator.raft.handover import HANDOVER_MS_MAX
from coordinator.raft.network import messages as say
from coordinator.raft.rejoin.recovering import RecoveryStage
from tests.raft.simulated_cluster import SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.test_engine_rows import Bench


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("sync_ms_max", [0.0, 30.0])
def test_another_member_leads_when_a_leader_has_stopped(count: int, sync_ms_max: float) -> None:
    """At once, in the next term, without anybody's election timer having ended."""

    async def scenario() -> None:
        cluster = SimulatedCluster(count)
        cluster.sync_ms_max = sync_ms_max
        await cluster.start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        term = leader.term
        loop = asyncio.get_running_loop()
        began = loop.time()

        await leader.stop()
        second = await cluster.leader(cluster.others(leader))
        await second.engine.propose(b"after")
        took_ms = (loop.time() - began) * 1000

        assert second.term == term + 1
        assert took_ms < (30 if not sync_ms_max else cluster.raft.election_timeout_ms_min)
        assert await cluster.equal() == [b"before", b"after"]
        await cluster.stop()

    run(scenario())


def test_a_leader_that_is_asked_hands_over_and_goes_on_as_a_follower() -> None:
    """Another member leads in the next term; the one that led takes part, and may lead again."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        term = leader.term

        await leader.engine.hand_over()
        second = await cluster.leader(cluster.others(leader))
        await second.engine.propose(b"after")

        assert second.term == term + 1
        assert leader.engine.status().role is Role.FOLLOWER
        with pytest.raises(NoLeaderError):
            await leader.engine.hand_over()
        assert await cluster.equal() == [b"before", b"after"]
        await cluster.stop()

    run(scenario())


def test_a_leader_that_nobody_can_follow_says_so_and_still_leads() -> None:
    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        for each in cluster.others(leader):
            await each.stop()

        with pytest.raises(UnavailableError):
            await leader.engine.hand_over()
        await cluster.stop()

    run(scenario())


def test_what_is_under_way_is_answered_and_what_comes_later_is_refused_definitely() -> None:
    """Of two hundred proposals around the stop none is unknown; refused ones did not happen."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, append_batch_bytes=100).start()
        leader = await cluster.leader()
        done: list[bytes] = []
        refused: list[bytes] = []

        async def write(number: int) -> None:
            await asyncio.sleep(number / 20_000)
            command = b"%d" % number
            try:
                await leader.engine.propose(command)
                done.append(command)
            except UnavailableError:
                refused.append(command)

        writing = [asyncio.ensure_future(write(number)) for number in range(200)]
        await asyncio.sleep(0.005)
        await leader.stop()
        await asyncio.gather(*writing)
        await cluster.leader(cluster.others(leader))

        assert done
        assert refused
        assert sorted(await cluster.equal()) == sorted(done)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("late_ms", [0, 17, 51, 85])
def test_a_stop_goes_on_when_the_write_under_way_is_answered(late_ms: int) -> None:
    """With the pass that answers it, and not with the next heartbeat."""

    async def scenario() -> None:
        cluster, leader = await settled()
        await cluster.others(leader)[0].kill()  # so that no later acknowledgement wakes the leader
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.2 + late_ms / 1000)
        writing = asyncio.ensure_future(leader.engine.propose(b"last"))
        await asyncio.sleep(0)
        began = loop.time()

        await leader.stop()
        took_ms = (loop.time() - began) * 1000

        await writing
        assert took_ms < 15
        await cluster.stop()

    run(scenario())


def test_the_one_that_has_most_is_chosen_and_gets_the_rest() -> None:
    """A follower that is behind, or hears nothing, is passed over."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        behind, level = cluster.others(leader)
        cluster.network.cut(leader.member_id, behind.member_id)
        for number in range(20):
            await leader.engine.propose(b"%d" % number)

        await leader.stop()
        cluster.network.heal()

        assert (await cluster.leader([behind, level])) is level
        assert len(await cluster.equal()) == 20
        await cluster.stop()

    run(scenario())


def test_nobody_is_asked_to_stand_before_it_has_all() -> None:
    """What is under way when the leader is asked is on its way to the next one, too."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        cluster.sync_ms_max = 30.0
        await cluster.start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        lacked: list[int] = []

        def look(target: str, message: object) -> None:
            if isinstance(message, say.StandNow):
                (asked,) = [each for each in cluster.members if each.member_id == target]
                lacked.append(leader.engine._log.last_index - asked.engine._log.durable_index)

        leader.on_said = look
        under_way = [asyncio.ensure_future(leader.engine.propose(b"%d" % n)) for n in range(20)]
        await asyncio.sleep(0.001)

        await leader.engine.hand_over()

        assert lacked[0] == 0
        assert len(await asyncio.gather(*under_way)) == 20
        await cluster.stop()

    run(scenario())


def test_one_that_does_not_stand_is_followed_by_the_next() -> None:
    """Two questions lost on their way to one follower, and the other is asked."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"a")
        asked: list[str] = []

        def lose(_source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.StandNow):
                asked.append(target)
                return target != asked[0]
            return True

        cluster.network.on_message = lose

        await leader.stop()
        second = await cluster.leader(cluster.others(leader), within_ms=100)

        assert second.member_id == asked[-1] != asked[0]
        await cluster.stop()

    run(scenario())


def test_a_leader_that_reaches_nobody_does_not_wait() -> None:
    """Its connections are gone: there is nobody to hand over to."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        for other in cluster.others(leader):
            await other.kill()
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0.01)
        began = loop.time()

        await leader.stop()

        assert loop.time() - began < 0.1

    run(scenario())


def test_a_leader_cut_off_silently_stops_within_bounds() -> None:
    """Its connections stand and nothing comes back: it waits so long and no longer."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        cluster.network.isolate(leader.member_id)
        proposal = asyncio.ensure_future(leader.engine.propose(b"a"))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await leader.stop()

        assert loop.time() - began < HANDOVER_MS_MAX / 1000 + 0.1
        with pytest.raises(CoordinatorError) as caught:
            await proposal
        assert not caught.value.definite
        cluster.network.heal()
        await cluster.stop()

    run(scenario())


def test_a_follower_stops_at_once() -> None:
    """It has nothing to hand over, and the leader stays."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        term = leader.term
        loop = asyncio.get_running_loop()
        began = loop.time()

        await cluster.others(leader)[0].stop()

        assert loop.time() - began < 0.01
        await leader.engine.propose(b"a")
        assert leader.term == term
        await cluster.stop()

    run(scenario())


def test_only_the_leader_may_ask_a_member_to_stand() -> None:
    """Not one of an older term, not another follower, and not whom recovery keeps from it."""
    bench = Bench()
    bench.append(2, (1, 0), [2])
    bench.receive("3", say.StandNow(2))
    bench.receive("2", say.StandNow(1))
    before = bench.core.role

    bench.receive("2", say.StandNow(2))
    unproven = Bench()
    unproven.append(2, (1, 0), [2])
    unproven.recovering.stage = RecoveryStage.JOINING
    unproven.receive("2", say.StandNow(2))

    assert (before, bench.core.role) == (Role.FOLLOWER, Role.CANDIDATE)
    assert {message for _, message in bench.held} == {
        say.VoteRequest(term=3, last_index=2, last_term=2, is_new=False, is_handed_over=True)
    }
    assert unproven.core.role is Role.FOLLOWER


def test_who_hears_a_leader_votes_for_whom_that_leader_asked_to_stand() -> None:
    """Stickiness protects a leader, not one that wants to go; the leader itself votes too."""
    follower = Bench()
    follower.append(2, (1, 0), [2])
    leader = Bench()
    leader.lead()
    leader.log.sync()
    term = leader.core.term

    voted = follower.receive(
        "3", say.VoteRequest(term=3, last_index=2, last_term=2, is_new=False, is_handed_over=True)
    )
    stepped_down = leader.receive(
        "3",
        say.VoteRequest(
            term=term + 1, last_index=2, last_term=term, is_new=False, is_handed_over=True
        ),
    )

    assert voted == [("3", say.VoteGrant(3))]
    assert stepped_down == [("3", say.VoteGrant(term + 1))]
    assert leader.core.role is Role.FOLLOWER
