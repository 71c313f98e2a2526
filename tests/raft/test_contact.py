"""How long ago a member heard its leader or, leading, a quorum: what a stale read says of its age.

It is never said to be less than it was, whatever became of the leader, the member or the link.
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.replication import ANSWER_INTERVALS_MAX
from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run

IDLE_MS_MAX = int(ANSWER_INTERVALS_MAX * RaftConfig().heartbeat_interval_ms)
PAUSE_MS = 60_000


def age_of(member: Member) -> int:
    age_ms = member.engine.contact_age_ms()
    assert age_ms is not None
    return age_ms


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_of_an_idle_cluster_it_is_a_heartbeat_or_two(count: int) -> None:
    """On the leader, too, which is answered; alone it needs nobody."""

    async def scenario() -> None:
        cluster, leader = await settled(count)
        for _ in range(200):
            await asyncio.sleep(0.01)
            assert max(map(age_of, cluster.members)) <= IDLE_MS_MAX
        if count == 1:
            assert age_of(leader) == 0
        await cluster.stop()

    run(scenario())


def test_a_member_that_never_heard_a_leader_does_not_know_it() -> None:
    """Neither before it starts nor when it finds nobody."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        alone = cluster.members[0]
        await alone.start()
        for _ in range(50):
            await asyncio.sleep(0.1)
            assert alone.engine.contact_age_ms() is None
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("is_leader", [True, False])
def test_it_grows_from_the_moment_of_a_cut(is_leader: bool, is_told: bool) -> None:
    """Also while the member steps down or stands for election; whether connections close or not."""

    async def scenario() -> None:
        cluster, leader = await settled()
        member = leader if is_leader else cluster.others(leader)[0]
        await asyncio.sleep(2)
        cluster.network.isolate(member.member_id)
        cut_ms = member.clock.monotonic_ms()
        if is_told:
            for other in cluster.others(member):
                member.transport.drop(other.member_id)
        for _ in range(300):
            await asyncio.sleep(0.01)
            since_ms = member.clock.monotonic_ms() - cut_ms
            assert since_ms - 1 <= age_of(member) <= since_ms + IDLE_MS_MAX
        assert member.engine.status().role is not Role.LEADER
        cluster.network.heal()
        await asyncio.sleep(10)
        assert age_of(member) <= IDLE_MS_MAX
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_leader", [True, False])
def test_a_member_that_stood_still_heard_nobody_meanwhile(is_leader: bool) -> None:
    """It says so at once, and after passes in which it gives the others time to be heard."""

    async def scenario() -> None:
        cluster, leader = await settled()
        member = leader if is_leader else cluster.others(leader)[0]
        await asyncio.sleep(2)
        member.pause()
        cluster.network.isolate(member.member_id)
        await asyncio.sleep(PAUSE_MS / 1_000)

        member.clock.thaw()

        for _ in range(100):
            assert age_of(member) >= PAUSE_MS
            await asyncio.sleep(0.01)
        member.resume()
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_leader", [True, False])
def test_what_waited_for_a_member_that_stood_still_was_not_heard_just_now(is_leader: bool) -> None:
    """The others spoke for a second, which it reads a minute later: so old is what it has."""

    async def scenario() -> None:
        cluster, leader = await settled()
        member = leader if is_leader else cluster.others(leader)[0]
        await asyncio.sleep(2)
        member.pause()
        await asyncio.sleep(1)
        cluster.network.isolate(member.member_id)
        await asyncio.sleep(PAUSE_MS / 1_000)

        member.resume()

        for _ in range(200):
            assert age_of(member) >= PAUSE_MS
            await asyncio.sleep(0.01)
        cluster.network.heal()
        await asyncio.sleep(10)
        assert age_of(member) <= IDLE_MS_MAX
        await cluster.stop()

    run(scenario())
