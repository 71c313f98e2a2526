"""Why a member lost its leader, or a leader its quorum, as it saw it."""

from __future__ import annotations

import asyncio

import pytest

from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run


def causes_at(member: Member) -> list[str]:
    """Return a list that gets the cause of each loss which the member notices from now on."""
    seen: list[str] = []

    def on_leader(leader_id: str | None, _term: int) -> None:
        if leader_id is None:
            seen.append(member.engine.status().lost_by)

    member.engine.on_leader_change(on_leader)
    return seen


def seen_after(act: str, *, at_leader: bool) -> list[str]:
    """Return the causes that the leader, or a follower, sees of what is done to it."""

    async def scenario() -> list[str]:
        cluster, leader = await settled()
        member = leader if at_leader else cluster.others(leader)[0]
        await asyncio.sleep(2)
        seen = causes_at(member)
        await DEEDS[act](cluster, member, leader)
        await cluster.stop()
        return seen

    return run(scenario())


async def cut(cluster: SimulatedCluster, member: Member, _leader: Member) -> None:
    cluster.network.isolate(member.member_id)
    await asyncio.sleep(3)


async def hang_up(cluster: SimulatedCluster, member: Member, leader: Member) -> None:
    member.transport.drop(leader.member_id)
    cluster.network.isolate(member.member_id)
    await asyncio.sleep(3)


async def stand_still(cluster: SimulatedCluster, member: Member, _leader: Member) -> None:
    member.pause()
    cluster.network.isolate(member.member_id)
    await asyncio.sleep(5)
    member.resume()
    await asyncio.sleep(0.3)


DEEDS = {"cut": cut, "hang up": hang_up, "stand still": stand_still}


@pytest.mark.parametrize(
    ("act", "at_leader", "cause"),
    [
        ("cut", False, "silence"),
        ("cut", True, "silence"),
        ("hang up", False, "link"),
        ("stand still", False, "pause"),
        ("stand still", True, "pause"),
    ],
)
def test_a_member_says_what_it_saw(act: str, at_leader: bool, cause: str) -> None:
    """An operator looks at the machine, the disk or the network by it."""
    assert seen_after(act, at_leader=at_leader)[:1] == [cause]
