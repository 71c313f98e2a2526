"""The first election of a new cluster: with all of its members, and held again if cut short."""

from __future__ import annotations

import asyncio

import pytest

from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.rejoin.recovering import (
    Recovering,
    RecoveryStage,
)
from tests.raft.simulated_cluster import SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.test_engine_rows import Bench


def test_a_new_member_gives_no_vote_to_one_that_has_a_log() -> None:
    """Neither vote nor pre-vote, however good the candidate's log is."""
    bench = Bench(is_new=True)

    replies = [
        *bench.receive("2", say.PreVoteRequest(term=5, last_index=9, last_term=4)),
        *bench.receive("2", say.VoteRequest(term=5, last_index=9, last_term=4)),
    ]

    assert replies == []
    assert bench.recovering.stage is RecoveryStage.JOINING


def test_new_members_elect_a_first_leader_among_themselves() -> None:
    """All logs are empty: votes are given as ever, and everybody who took part is proven."""
    bench = Bench(is_new=True)

    before = bench.receive("2", say.PreVoteRequest(term=1, last_index=1, last_term=0, is_new=True))
    is_proven_before = bench.recovering.is_proven
    vote = bench.receive("2", say.VoteRequest(term=1, last_index=1, last_term=0, is_new=True))

    assert before == [("2", say.PreVoteGrant(1))]
    assert vote == [("2", say.VoteGrant(1))]
    assert (is_proven_before, bench.recovering.is_proven) == (False, True)


@pytest.mark.parametrize("has_log", [False, True])
def test_a_proven_member_gives_a_new_one_its_vote_as_long_as_nothing_was_ever_written(
    has_log: bool,
) -> None:
    """Which is known if nobody has anything: the new one needs the pre-vote of each."""
    bench = Bench()
    if has_log:
        bench.append(1, (1, 0), [1], commit=1)
        bench.clock.advance(10_000)

    replies = [
        *bench.receive("2", say.PreVoteRequest(term=5, last_index=1, last_term=0, is_new=True)),
        *bench.receive("2", say.VoteRequest(term=5, last_index=1, last_term=0, is_new=True)),
    ]

    expected = [] if has_log else [say.PreVoteGrant, say.VoteGrant]
    assert [type(each[1]) for each in replies] == expected


def test_a_new_member_stands_only_with_the_pre_votes_of_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two of three are not enough; it says once whom it waits for."""
    bench = Bench(is_new=True)
    requests = []
    for _ in range(6):
        bench.clock.advance(1_000)
        bench.consensus.tick()
        bench.clock.advance(5)
        bench.consensus.tick()
        bench.receive("2", say.PreVoteGrant(bench.core.term + 1))
        requests = [each for each in bench.held if isinstance(each[1], say.VoteRequest)]
        assert requests == []

    bench.receive("3", say.PreVoteGrant(bench.core.term + 1))

    requests = [each for each in bench.held if isinstance(each[1], say.VoteRequest)]
    assert [who for who, _ in requests] == ["2", "3"]
    logged = [each.getMessage() for each in caplog.records if "waits for" in each.getMessage()]
    assert [each.rpartition("waits for ")[2] for each in logged] == ["3"]


def test_a_new_member_that_has_seen_a_history_takes_part_in_no_first_election() -> None:
    """Not after a restart either: it neither stands nor votes."""
    bench = Bench(is_new=True)
    bench.receive("2", say.PreVoteRequest(term=5, last_index=9, last_term=4))

    replies = bench.receive("3", say.PreVoteRequest(term=6, last_index=1, last_term=0, is_new=True))
    bench.now.clear()
    for _ in range(20):
        bench.clock.advance(500)
        bench.consensus.tick()
    again = Recovering(bench.disk, directory="data", member_id="1", member_count=3, is_new=False)

    assert replies == []
    assert not [message for _, message in bench.now if isinstance(message, say.PreVoteRequest)]
    assert again.stage is RecoveryStage.JOINING


@pytest.mark.parametrize("late", ["1", "2", "3"])
def test_a_new_cluster_starts_with_all_of_its_members(late: str) -> None:
    """Two of three wait for the third; from then on two are enough."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        first = [member for member in cluster.members if member.member_id != late]
        for member in first:
            await member.start()
        await asyncio.sleep(30)
        assert [member.engine.status().role for member in first] != [Role.LEADER]
        third = next(member for member in cluster.members if member.member_id == late)

        await third.start()
        leader = await cluster.leader()
        await leader.engine.propose(b"a")

        assert await cluster.equal() == [b"a"]
        assert not any(member.is_unproven for member in cluster.members)
        await leader.kill()
        await cluster.leader([member for member in cluster.members if member.is_up])
        await cluster.stop()

    run(scenario())


def test_a_lost_disk_and_a_member_that_never_was_there_begin_no_second_history() -> None:
    """Two of five that were there from the beginning are emptied: what the others know stays."""

    async def scenario() -> None:
        cluster, leader = await settled()
        emptied, other = cluster.others(leader)
        await leader.engine.propose(b"precious")
        await cluster.equal()
        await leader.kill()
        for member in (emptied, other):  # more than may be lost; it is noticed all the same
            await member.lose_disk()
            await member.start()

        await asyncio.sleep(30)

        assert cluster.leaders() == []
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_first_election_that_was_cut_short_is_held_again(is_killed: bool) -> None:
    """The first grants are lost, so that some are proven with empty logs and others are not."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        lost: list[str] = []

        def lose(_source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.VoteGrant) and len(lost) < 2:
                lost.append(target)
                return False
            return True

        cluster.network.on_message = lose
        for member in cluster.members:
            await member.start()
        await cluster.until(lambda: len(lost) == 2)
        if is_killed:
            candidate = next(each for each in cluster.members if each.member_id == lost[0])
            await candidate.kill()
            await candidate.start()

        leader = await cluster.leader()

        await leader.engine.propose(b"a")
        assert await cluster.equal() == [b"a"]
        await cluster.stop()

    run(scenario())


def test_votes_do_not_count_when_their_election_is_over() -> None:
    """Who gave one may have lost its disk since, and have been proven again by others."""
    bench = Bench(members=("1", "2", "3", "4", "5"))
    bench.clock.advance(bench.raft.election_timeout_ms_max + 1)
    bench.consensus.tick()
    bench.clock.advance(5)
    bench.consensus.tick()
    for other in ("2", "3"):
        bench.receive(other, say.PreVoteGrant(bench.core.term + 1))
    term = bench.core.term
    bench.receive("2", say.VoteGrant(term))
    for _ in range(2):
        bench.clock.advance(bench.raft.election_timeout_ms_max + 1)
        bench.consensus.tick()

    bench.receive("3", say.VoteGrant(term))

    assert (bench.core.role, bench.core.term) == (Role.CANDIDATE, term)
