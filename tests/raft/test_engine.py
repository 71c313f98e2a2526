"""The engine's promises, on whole members in simulated time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from coordinator.errors import (
    ConnectionLostError,
    LeaderChangedError,
    NoLeaderError,
    OutcomeUnknownError,
    ShuttingDownError,
    ThrottledError,
)
from coordinator.raft.engine import Role
from tests.raft.simulated_cluster import SimulatedCluster
from tests.raft.simulated_loop import run


@pytest.mark.parametrize("count", [1, 3, 5])
@pytest.mark.parametrize("sync_ms_max", [0.0, 30.0])
def test_a_cluster_elects_commits_and_applies_everywhere(count: int, sync_ms_max: float) -> None:
    """One, three and five members elect one leader and apply the same, on fast and slow disks."""

    async def scenario() -> None:
        cluster = SimulatedCluster(count)
        cluster.sync_ms_max = sync_ms_max
        await cluster.start()
        leader = await cluster.leader()

        applied = [await leader.engine.propose(b"%d" % number) for number in range(20)]

        assert [one.result for one in applied] == list(range(1, 21))
        assert await cluster.equal() == [b"%d" % number for number in range(20)]
        assert len(cluster.leaders()) == 1
        await cluster.stop()

    run(scenario())


def test_everything_proposed_in_one_pass_is_one_entry_and_one_sync() -> None:
    """Row 31: a hundred concurrent proposals cost one log entry and one sync of the leader."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"first")
        before = dict(leader.engine.metrics())

        results = await asyncio.gather(*(leader.engine.propose(b"x") for _ in range(100)))

        after = leader.engine.metrics()
        assert len({one.index for one in results}) == 1
        assert after["entries_total"] - before["entries_total"] == 1
        assert after["syncs_total"] - before["syncs_total"] == 1
        await cluster.stop()

    run(scenario())


def test_a_proposal_waits_for_no_timer() -> None:
    """Row 31: with 1 ms between members a write takes one round trip, not a tick."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        loop = asyncio.get_running_loop()
        began = loop.time()

        await leader.engine.propose(b"x")

        assert loop.time() - began < 0.003
        await cluster.stop()

    run(scenario())


def test_followers_refuse_proposals_and_say_who_leads() -> None:
    """A follower's refusal is definite and names the leader."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        await cluster.until(lambda: follower.engine.status().leader_id == leader.member_id)

        with pytest.raises(NoLeaderError) as caught:
            await follower.engine.propose(b"x")

        assert caught.value.definite
        assert caught.value.leader_id == leader.member_id
        await cluster.stop()

    run(scenario())


def test_too_many_proposals_are_refused_at_once() -> None:
    """The queue is bounded: beyond it ThrottledError, and nothing was proposed."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, proposals_in_flight_max=10).start()
        leader = await cluster.leader()

        results = await asyncio.gather(
            *(leader.engine.propose(b"x") for _ in range(15)), return_exceptions=True
        )

        assert sum(isinstance(one, ThrottledError) for one in results) == 5
        assert len(await cluster.equal()) == 10
        await cluster.stop()

    run(scenario())


def test_too_many_bytes_of_proposals_are_refused_at_once() -> None:
    """A thousand large ones are a gigabyte: their size counts, in the queue and in the log. What
    was answered, and what the step down gave up, is room again."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, proposals_bytes_max=4_000).start()
        leader = await cluster.leader()

        for _ in range(3):
            results = await asyncio.gather(
                *(leader.engine.propose(b"x" * 1_000) for _ in range(6)), return_exceptions=True
            )
            assert sum(isinstance(one, ThrottledError) for one in results) == 2
        assert len(await cluster.equal()) == 12

        others = cluster.others(leader)
        for other in others:
            await other.kill()
        lost = [asyncio.ensure_future(leader.engine.propose(b"y" * 1_000)) for _ in range(4)]
        await asyncio.sleep(0.05)  # in the log, and with no quorum
        with pytest.raises(ThrottledError, match="4000 bytes"):
            await leader.engine.propose(b"z" * 1_000)
        results = await asyncio.gather(*lost, return_exceptions=True)
        assert all(isinstance(one, OutcomeUnknownError) for one in results)
        for other in others:
            await other.start()
        leader = await cluster.leader()
        await asyncio.gather(*(leader.engine.propose(b"x" * 1_000) for _ in range(4)))
        await cluster.stop()

    run(scenario())


def test_failover_elects_another_and_loses_nothing() -> None:
    """Kill the leader: another one leads, with every acknowledged command, within a moment."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        for number in range(10):
            await leader.engine.propose(b"%d" % number)
        loop = asyncio.get_running_loop()
        began = loop.time()

        await leader.kill()
        successor = await cluster.leader(cluster.others(leader))
        await successor.engine.propose(b"after")

        assert loop.time() - began < 0.1, "a closed connection is a hint to campaign at once"
        assert successor.replica.commands == [*(b"%d" % n for n in range(10)), b"after"]
        await leader.start()
        assert len(await cluster.equal()) == 11
        await cluster.stop()

    run(scenario())


def test_silent_death_of_a_leader_is_found_by_the_timer() -> None:
    """A leader that vanishes without closing anything is replaced after the election timeout."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"x")
        loop = asyncio.get_running_loop()
        began = loop.time()

        cluster.network.isolate(leader.member_id)
        await cluster.leader(cluster.others(leader))

        assert loop.time() - began < 1.0
        await cluster.stop()

    run(scenario())


def test_a_cut_off_leader_steps_down_within_an_election_timeout() -> None:
    """Row 21: without its quorum a leader stops leading soon, its waiters are told "unknown"."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        loop = asyncio.get_running_loop()
        cluster.network.isolate(leader.member_id)
        began = loop.time()
        waiting = asyncio.ensure_future(leader.engine.propose(b"lost?"))

        with pytest.raises(LeaderChangedError):
            await asyncio.wait_for(waiting, 60)

        assert (loop.time() - began) * 1000 < cluster.raft.election_timeout_ms_max
        assert leader.engine.status().role is not Role.LEADER
        with pytest.raises(NoLeaderError):
            await leader.engine.confirm_leadership()
        await cluster.stop()

    run(scenario())


def test_a_patient_proposal_shares_the_next_entry_or_goes_after_a_moment() -> None:
    """It keeps its place before what comes later, and waits for nothing that does not come."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        first = asyncio.ensure_future(leader.engine.propose(b"first", is_patient=True))
        await asyncio.sleep(0.001)

        second = await leader.engine.propose(b"second")
        assert (await first).index == second.index
        lone = await leader.engine.propose(b"lone", is_patient=True)
        assert lone.index == second.index + 1
        assert leader.replica.commands == [b"first", b"second", b"lone"]
        await cluster.stop()

    run(scenario())


def test_a_leader_knows_when_it_led_by_what_a_quorum_holds() -> None:
    """What was logged before a cut and never acknowledged proves nothing."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        assert cluster.others(leader)[0].engine.led_ms is None
        await leader.engine.propose(b"held")
        known_ms = leader.engine.led_ms
        cluster.network.isolate(leader.member_id)
        unknown = asyncio.ensure_future(leader.engine.propose(b"unknown"))

        await cluster.leader(cluster.others(leader))

        assert leader.engine.led_ms == known_ms
        cluster.network.heal()
        with pytest.raises(LeaderChangedError):
            await unknown
        await cluster.equal()
        assert leader.engine.led_ms == known_ms
        await cluster.stop()

    run(scenario())


def test_a_cut_off_leader_answers_no_read() -> None:
    """Reads on the old side of a partition are refused while the new side writes."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"old")
        cluster.network.isolate(leader.member_id)
        reading = asyncio.ensure_future(leader.engine.read_barrier())
        successor = await cluster.leader(cluster.others(leader))

        await successor.engine.propose(b"new")

        with pytest.raises(NoLeaderError):
            await reading
        with pytest.raises(NoLeaderError):
            await leader.engine.read_barrier()
        cluster.network.heal()
        assert await cluster.equal() == [b"old", b"new"]
        await cluster.stop()

    run(scenario())


def test_reads_on_every_member_see_what_was_acknowledged_before() -> None:
    """Row 24: after a write returns, a barrier on any member shows it, however news travels."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(5, seed=4).start()
        leader = await cluster.leader()
        cluster.network.delay_ms, cluster.network.is_ordered = (1.0, 30.0), False
        for number in range(20):
            await leader.engine.propose(b"%d" % number)

            for member in cluster.members:
                await member.engine.read_barrier()
                assert b"%d" % number in member.replica.commands
        await cluster.stop()

    run(scenario())


def test_reads_share_a_round() -> None:
    """Two hundred reads in one pass ask each follower once."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"x")
        await asyncio.sleep(0.005)
        before = cluster.network.sent_total

        await asyncio.gather(*(leader.engine.read_barrier() for _ in range(200)))

        assert cluster.network.sent_total - before <= 10
        await cluster.stop()

    run(scenario())


def test_restart_of_all_members_brings_everything_back() -> None:
    """After a power cut of all members at once, every acknowledged command is there."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        for number in range(50):
            await leader.engine.propose(b"%d" % number)

        for member in cluster.members:
            await member.kill()
        for member in cluster.members:
            await member.start()
        await cluster.leader()

        assert await cluster.equal() == [b"%d" % number for number in range(50)]
        await cluster.stop()

    run(scenario())


def test_a_member_far_behind_gets_a_snapshot() -> None:
    """Rows 28 and 29: who misses more than the kept tail is sent a snapshot in pieces."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            3,
            snapshot_every_entries=100,
            keep_entries_after_snapshot=20,
            snapshot_piece_bytes=1_000,
        ).start()
        leader = await cluster.leader()
        lagging = cluster.others(leader)[0]
        await lagging.kill()
        for number in range(450):
            await leader.engine.propose(b"%d" % number)

        await lagging.start()

        assert len(await cluster.equal()) == 450
        assert lagging.replica.restored_total == 1
        assert leader.engine.metrics()["snapshots_sent_total"] == 1
        await lagging.kill()
        await lagging.start()
        assert len(await cluster.equal()) == 450
        await cluster.stop()

    run(scenario())


def test_a_member_a_little_behind_gets_entries_only() -> None:
    """Row 29: the kept tail saves a short absence the whole snapshot."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            3, snapshot_every_entries=100, keep_entries_after_snapshot=100
        ).start()
        leader = await cluster.leader()
        lagging = cluster.others(leader)[0]
        for number in range(90):
            await leader.engine.propose(b"%d" % number)
        await lagging.stop()
        for number in range(50):
            await leader.engine.propose(b"%d" % number)

        await lagging.start()

        assert len(await cluster.equal()) == 140
        assert leader.engine.metrics()["snapshots_sent_total"] == 0
        await cluster.stop()

    run(scenario())


def test_requests_between_members_are_answered_or_fail_honestly() -> None:
    """A request gets its reply; to a dead member it is definite; lost on the way it is not."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        await cluster.start()
        one, two, three = cluster.members

        async def shout(member_id: str, payload: bytes) -> bytes:
            if payload == b"die":
                two.transport.vanish()
            return member_id.encode() + payload.upper()

        two.engine.on_request("shout", shout)
        assert await one.engine.request("2", "shout", b"hello") == b"1HELLO"
        with pytest.raises(NoLeaderError):
            await one.engine.request("2", "no such kind", b"")
        with pytest.raises(ConnectionLostError):
            await one.engine.request("2", "shout", b"die")
        await three.kill()
        await asyncio.sleep(0)
        with pytest.raises(NoLeaderError):
            await one.engine.request("3", "shout", b"hello")
        await cluster.stop()

    run(scenario())


def test_stop_fails_what_waits() -> None:
    """A leader that stops in vain for a quorum tells what is under way that nobody knows."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        cluster.network.isolate(leader.member_id)
        logged = asyncio.ensure_future(leader.engine.propose(b"logged"))
        await asyncio.sleep(0.01)

        stopping = asyncio.ensure_future(leader.stop())
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDownError):
            await leader.engine.propose(b"while it stops")
        await stopping

        with pytest.raises(LeaderChangedError):
            await logged
        with pytest.raises(ShuttingDownError):
            await leader.engine.propose(b"late")
        await cluster.stop()

    run(scenario())


def test_every_change_of_the_known_leader_is_told_with_its_term() -> None:
    """A leader that vanishes without a word is told as None first, and then the next one."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        told: dict[str, list[tuple[str | None, int]]] = {"1": [], "2": [], "3": []}
        for member in cluster.members:
            member.on_leader_change = lambda *seen, m=member: told[m.member_id].append(seen)
        await cluster.start()
        first = await cluster.leader()
        follower = cluster.others(first)[0]
        await cluster.until(lambda: follower.engine.status().leader_id == first.member_id)
        term = first.term

        cluster.network.isolate(first.member_id)
        second = await cluster.leader(among=cluster.others(first))
        await cluster.until(lambda: follower.engine.status().leader_id == second.member_id)

        seen = told[follower.member_id]
        assert (first.member_id, term) in seen
        assert seen[-1] == (second.member_id, second.term)
        assert None in [known for known, _ in seen[seen.index((first.member_id, term)) :]]
        assert all(one != other for one, other in itertools.pairwise(seen))
        await cluster.stop()

    run(scenario())


def test_a_question_to_a_leader_that_is_frozen_ends_when_it_leads_no_more() -> None:
    """The connection stands and no reply comes: the question ends with the leadership, unknown."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)

        async def never(_sender: str, _payload: bytes) -> bytes:
            await asyncio.Event().wait()
            return b""

        for member in cluster.members:
            member.handlers = {"wait": never}
        await cluster.start()
        leader = await cluster.leader()
        follower = cluster.others(leader)[0]
        await cluster.until(lambda: follower.engine.status().leader_id == leader.member_id)
        loop = asyncio.get_running_loop()
        asked = asyncio.ensure_future(follower.engine.request(leader.member_id, "wait", b""))
        reading = asyncio.ensure_future(follower.engine.read_barrier())
        await asyncio.sleep(0)
        leader.pause()
        began = loop.time()

        with pytest.raises(LeaderChangedError):
            await asked
        await reading

        assert loop.time() - began < 2.5 * cluster.raft.election_timeout_ms_max / 1000
        leader.resume()
        await cluster.stop()

    run(scenario())
