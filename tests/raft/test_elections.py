"""Votes count within one election timeout, by the clock: whatever the candidate did meanwhile.

What each message about votes means on its own is in ``test_engine_rows`` (rows 19, 22 and 23).
"""

from __future__ import annotations

import asyncio

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from tests.raft.simulated_cluster import SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.test_engine_rows import Bench

FIVE = ("1", "2", "3", "4", "5")


def a_candidate() -> Bench:
    """Return member 1 of five, which has just asked for votes."""
    bench = Bench(FIVE)
    bench.clock.advance(bench.raft.election_timeout_ms_max + 1)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    for voter in ("2", "3"):
        bench.receive(voter, say.PreVoteGrant(bench.core.term + 1))
    assert bench.core.role is Role.CANDIDATE
    return bench


def hear_votes(bench: Bench, term: int) -> Role:
    for voter in ("2", "3"):
        bench.receive(voter, say.VoteGrant(term))
    return bench.core.role


@pytest.mark.parametrize(("late_ms", "expected"), [(0, Role.LEADER), (1, Role.CANDIDATE)])
def test_votes_count_for_the_longest_election_timeout_and_no_longer(
    late_ms: int, expected: Role
) -> None:
    """A candidate that stood still reads old grants before it notices that its time is over."""
    bench = a_candidate()
    bench.clock.advance(bench.raft.election_timeout_ms_max + late_ms)

    assert hear_votes(bench, bench.core.term) is expected


def test_a_candidate_does_not_count_for_longer_because_it_grants_pre_votes() -> None:
    """Somebody who cannot win asks again and again; each grant postpones the next election."""
    bench = a_candidate()
    term = bench.core.term
    for _ in range(10):
        bench.clock.advance(bench.raft.election_timeout_ms_min - 100)
        replies = bench.receive("5", say.PreVoteRequest(term=term + 1, last_index=1, last_term=0))
        assert replies == [("5", say.PreVoteGrant(term + 1))]
        bench.consensus.tick()

    assert hear_votes(bench, term) is Role.CANDIDATE


def test_the_votes_of_the_next_election_count_again() -> None:
    """The time is that of one election, not of the candidate."""
    bench = a_candidate()
    for _ in range(2):
        bench.clock.advance(bench.raft.election_timeout_ms_max + 1)
        bench.consensus.tick()
    for voter in ("2", "3"):
        bench.receive(voter, say.PreVoteGrant(bench.core.term + 1))

    assert hear_votes(bench, bench.core.term) is Role.LEADER


@pytest.mark.parametrize(("is_new", "expected"), [(True, True), (False, False)])
def test_who_was_proven_in_a_first_election_that_failed_gives_way_to_new_members(
    is_new: bool, expected: bool
) -> None:
    """No new member votes for it, and those need the pre-vote of all. Of equals the lower id goes
    first."""
    bench = Bench(FIVE)
    bench.clock.advance(bench.raft.election_timeout_ms_max + 1)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    term = bench.core.term + 1
    assert ("2", say.PreVoteRequest(term=term, last_index=1, last_term=0)) in bench.now

    replies = bench.receive(
        "2", say.PreVoteRequest(term=term, last_index=1, last_term=0, is_new=is_new)
    )

    assert (replies == [("2", say.PreVoteGrant(term))]) is expected


@pytest.mark.parametrize("seed", range(3))
def test_a_cluster_that_comes_back_elects_as_soon_as_a_majority_is_there(seed: int) -> None:
    """Members that start one after the other need not wait for the timeout of the first try."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, seed=seed).start()
        await (await cluster.leader()).engine.propose(b"before")
        await cluster.equal()
        await cluster.kill()
        loop = asyncio.get_running_loop()
        for member in cluster.members:
            await asyncio.sleep(0.25)
            began = loop.time()
            await member.start()
            if member is cluster.members[1]:
                break  # a majority

        leader = await cluster.leader(cluster.members[:2])

        assert (loop.time() - began) * 1000 < cluster.raft.election_timeout_ms_min / 3
        await leader.engine.propose(b"after")
        await cluster.stop()

    run(scenario())


def test_members_that_come_back_with_slow_disks_ask_when_their_votes_count() -> None:
    """Where the members note durably who is there, votes count later than pre-votes.

    Asking on connection lost an election timeout more often than not."""

    async def took_ms(seed: int) -> float:
        cluster, _ = await settled(seed=seed)
        await cluster.kill()
        cluster.sync_ms_max = 40.0
        for member in cluster.members:
            await asyncio.sleep(0.08)
            await member.start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        await cluster.leader()
        took = loop.time() - began
        await cluster.stop()
        return took * 1000

    took = sorted(run(took_ms(seed)) for seed in range(7))
    assert took[3] < RaftConfig().election_timeout_ms_min / 2, took
    assert took[5] < RaftConfig().election_timeout_ms_min, took
