"""An idle cluster: who is woken, how often, and what is told and heard all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from coordinator.node.config import RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.replication import ANSWER_INTERVALS_MAX, Replication
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run
from tests.raft.test_engine_rows import Bench

RAFT = RaftConfig()
INTERVAL_MS = RAFT.heartbeat_interval_ms
HEARTBEAT = say.Append(
    term=3, epoch=1, commit_index=1, prev_index=1, prev_term=0, entries=[]
)  # fmt: skip


class Leader:
    """The sending side of a leader whose followers hold all of its log."""

    def __init__(self, followers: int) -> None:
        self.now_ms = 10_000
        self.sent: list[tuple[str, str]] = []
        self.log = [(b"\x01", 1, 1), (b"\x01", 2, 1)]
        ids = [str(number) for number in range(2, 2 + followers)]
        self.replication = Replication(
            ids, log=self.log, raft=RAFT, now_ms=lambda: self.now_ms,
            send=self._note, on_snapshot_needed=lambda _: None,
        )  # fmt: skip
        self.replication.begin_term(self.now_ms)
        for each in ids:
            self.answer(each)

    def _note(self, member_id: str, message: say.Message) -> bool:
        self.sent.append((member_id, type(message).__name__))
        return True

    def answer(self, member_id: str) -> None:
        """The follower acknowledges everything."""
        progress = self.replication.followers[member_id]
        progress.heard_ms = self.now_ms
        reply = say.Appended(term=1, epoch=progress.epoch, next_index=3, is_success=True)
        self.replication.on_appended(member_id, reply, 1, 2)

    def beat(self, *silent: str) -> list[tuple[str, str]]:
        """Let an interval pass and send heartbeats; who was asked answers, but for ``silent``."""
        self.now_ms += INTERVAL_MS
        self.sent.clear()
        self.replication.send_heartbeats(1, 2)
        sent = self.sent[:]
        for member_id, kind in sent:
            if kind == "Append" and member_id not in silent:
                self.answer(member_id)
        return sent


def test_the_followers_are_asked_to_answer_in_turns() -> None:
    """Each hears every heartbeat and answers every second one; a quorum is heard each time."""
    leader = Leader(followers=2)

    beats = [leader.beat() for _ in range(4)]

    one, other = [("2", "CommitNotice"), ("3", "Append")], [("2", "Append"), ("3", "CommitNotice")]
    assert beats in ([one, other, one, other], [other, one, other, one])


@pytest.mark.parametrize("followers", [1, 3])
def test_all_are_asked_where_half_of_them_are_no_quorum(followers: int) -> None:
    """A leader of one follower would hear its quorum half as often."""
    leader = Leader(followers)

    for _ in range(3):
        assert {kind for _, kind in leader.beat()} == {"Append"}


def test_all_are_asked_while_one_does_not_answer() -> None:
    """The others are the quorum then, and are heard as often as ever."""
    leader = Leader(followers=2)
    for _ in range(int(ANSWER_INTERVALS_MAX) + 1):
        leader.beat("3")

    assert leader.beat("3") == [("2", "Append"), ("3", "Append")]
    assert leader.beat() == [("2", "Append"), ("3", "Append")]
    assert sorted(kind for _, kind in leader.beat()) == ["Append", "CommitNotice"]


def test_all_are_asked_after_a_connection_was_made() -> None:
    """What was said over the former one may be lost."""
    leader = Leader(followers=2)
    leader.replication.on_connection_changed("3")

    assert leader.beat() == [("2", "Append"), ("3", "Append")]


@pytest.mark.parametrize("heartbeat", [HEARTBEAT, say.CommitNotice(3, 1)])
def test_after_a_heartbeat_no_election_is_due_for_a_whole_timeout(
    heartbeat: say.Append | say.CommitNotice,
) -> None:
    """What asks for an answer gets the same one as before."""
    bench = Bench()
    first = bench.receive("2", HEARTBEAT)
    bench.clock.advance(300)

    said = bench.receive("2", heartbeat)

    assert said == ([] if isinstance(heartbeat, say.CommitNotice) else first)
    timeout_ms = bench.core.election_due_ms - bench.clock.monotonic_ms()
    assert bench.raft.election_timeout_ms_min <= timeout_ms <= bench.raft.election_timeout_ms_max
    assert bench.consensus.leader_id == "2"


def test_an_idle_cluster_makes_hardly_a_pass() -> None:
    """A leader makes one for each of its heartbeats, a follower one for each election timeout, and
    at least one a second; heartbeats that come, and their answers, take none."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await asyncio.sleep(2)
        passes: Counter[str] = Counter()
        for member in cluster.members:
            count_passes(member, passes)

        await asyncio.sleep(10)

        assert set(passes) == {member.member_id for member in cluster.members}
        of_leader = passes.pop(leader.member_id)
        assert of_leader <= 10_000 / INTERVAL_MS + 2
        assert max(passes.values()) <= 10_000 / RAFT.election_timeout_ms_min + 2
        assert min(passes.values()) >= 9
        assert leader.engine.status().role is Role.LEADER
        await cluster.stop()

    run(scenario())


def test_a_member_alone_is_woken_once_a_second() -> None:
    """It has nobody to send heartbeats to, and is as ready as before."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1).start()
        leader = await cluster.leader()
        await asyncio.sleep(1)
        passes, consensus = 0, leader.engine._consensus
        tick = consensus.tick

        def counted() -> None:
            nonlocal passes
            passes += 1
            tick()

        consensus.tick = counted  # type: ignore[method-assign]
        await asyncio.sleep(10)
        assert 5 <= passes <= 12
        await leader.engine.propose(b"after")
        await cluster.stop()

    run(scenario())


def test_answers_go_on_when_a_snapshot_ends_while_all_is_idle() -> None:
    """The log that it trims has to be made durable, and nobody else asks for that."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(
            3, snapshot_every_entries=100, keep_entries_after_snapshot=0, segment_bytes=1_000
        ).start()
        leader = await cluster.leader()
        answers_ms: dict[str, list[int]] = {each.member_id: [] for each in cluster.members}
        for member in cluster.members:
            member.sync_ms = 2_000.0  # what the snapshot's file takes
            note_answers(member, answers_ms[member.member_id])
        for number in range(110):
            await leader.engine.propose(b"%d" % number)

        await asyncio.sleep(10)

        made = [each.engine.metrics()["snapshots_made_total"] for each in cluster.members]
        assert made == [1, 1, 1]
        for follower in cluster.others(leader):
            said = answers_ms[follower.member_id]
            gap_ms = max(later - one for one, later in pairwise(said))
            assert gap_ms <= ANSWER_INTERVALS_MAX * INTERVAL_MS
        assert leader.is_leading
        assert leader.engine.status().term == leader.roles[-1][1]
        await cluster.stop()

    run(scenario())


def note_answers(member: Member, said_ms: list[int]) -> None:
    def on_said(_to: str, message: say.Message) -> None:
        if isinstance(message, say.Appended):
            said_ms.append(member.clock.monotonic_ms())

    member.on_said = on_said


def count_passes(member: Member, passes: Counter[str]) -> None:
    run_loop = member.engine._run_loop
    run_pass = run_loop._run

    def counted() -> None:
        passes[member.member_id] += 1
        run_pass()

    run_loop._run = counted
