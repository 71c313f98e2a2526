"""An idle cluster: who is woken, how often, and what is told and heard all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from coordinator.config import RaftConfig
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.passes import Passes
from coordinator.raft.replication import ANSWER_INTERVALS_MAX, Replication
from coordinator.raft.run_loop import NEAR_S, RUN_EVERY_S, RunLoop
from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
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
        self.said: list[say.Message] = []
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
        self.said.append(message)
        return True

    def answer(self, member_id: str) -> None:
        """The follower acknowledges everything."""
        progress = self.replication.followers[member_id]
        progress.heard_ms = self.now_ms
        reply = say.Appended(term=1, epoch=progress.epoch, next_index=3, is_success=True)
        self.replication.on_appended(member_id, reply, 1, 2)

    def beat(self, *silent: str, is_short: bool = False) -> list[tuple[str, str]]:
        """Let an interval pass and send heartbeats; who was asked answers, but for ``silent``.

        ``is_short``: by the short way, which must not refuse."""
        self.now_ms += INTERVAL_MS
        self.sent.clear()
        if is_short:
            assert self.replication.beat(1, 2, self.now_ms)
        else:
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


@pytest.mark.parametrize("followers", [1, 2, 3, 4])
def test_the_short_way_of_a_heartbeat_sends_what_the_long_one_sends(followers: int) -> None:
    """Message by message; both may follow each other."""
    long, short, mixed = Leader(followers), Leader(followers), Leader(followers)
    for each in (long, short, mixed):
        each.replication.send_commit_index(1, 2)

    for turn in range(5):
        expected = long.beat()
        assert short.beat(is_short=True) == expected
        assert mixed.beat(is_short=turn % 2 == 0) == expected
        assert short.said == long.said == mixed.said


@pytest.mark.parametrize(
    "happened",
    ["silence", "no answer yet", "other connection", "entry under way", "commit", "entry here"],
)
def test_the_short_way_of_a_heartbeat_refuses_where_there_is_more_to_do(happened: str) -> None:
    """It sends nothing then, and the long way sends what it would have sent before."""
    leader = Leader(followers=2)
    leader.replication.send_commit_index(1, 2)
    leader.beat(is_short=True)
    progress = leader.replication.followers["3"]
    commit_index = 2
    if happened == "silence":
        leader.now_ms += int(ANSWER_INTERVALS_MAX * INTERVAL_MS) + 1
    elif happened == "no answer yet":
        progress.heard_ms = None
    elif happened == "other connection":
        leader.replication.on_connection_changed("3")
    elif happened == "entry under way":
        progress.in_flight.append((3, 1))
    elif happened == "commit":
        commit_index = 3
    else:
        leader.log.append((b"\x01", 3, 1))
    leader.sent.clear()

    assert not leader.replication.beat(1, commit_index, leader.now_ms)
    assert not leader.sent


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


def leading() -> Bench:
    """A leader whose followers hold all of its log and know it, when heartbeats are due."""
    bench = Bench()
    bench.lead()
    bench.log.sync()
    for _ in range(2):
        for member_id in ("2", "3"):
            bench.follower_holds(member_id, 2)
        bench.consensus.tick()
        bench.core.apply()
        bench.consensus.send_commit_index()
    bench.clock.advance(INTERVAL_MS)
    bench.now.clear()
    return bench


def test_heartbeats_by_the_short_way_are_those_of_a_pass() -> None:
    """The same messages, at the same times; and they count as those of a pass for the next one."""
    short, long = leading(), leading()

    for turn in range(4):
        assert short.consensus.due_ms() == long.consensus.due_ms()
        due_ms = short.consensus.beat()
        assert due_ms == short.consensus.due_ms()
        long.consensus.tick()
        assert short.now == long.now
        for bench in (short, long):
            asked = [each for each, message in bench.now if isinstance(message, say.Append)]
            bench.now.clear()
            for member_id in asked:
                bench.follower_holds(member_id, 2)
            bench.clock.advance(INTERVAL_MS)
        assert short.core.role is Role.LEADER, turn


def test_heartbeats_before_their_time_after_a_pause_or_with_a_round_take_a_pass() -> None:
    """A leader that did not read its sockets excuses its followers; a round's probes go along."""
    early, paused, asked = leading(), leading(), leading()
    early.core.next_heartbeat_ms(early.clock.monotonic_ms())
    paused.clock.advance(RAFT.election_timeout_ms_min // 2)
    asked.consensus.rounds.join()
    asked.consensus.tick()
    for bench in (early, paused, asked):
        bench.now.clear()
        assert bench.consensus.beat() is None
        assert not bench.now


def test_a_leader_that_nobody_answers_sends_no_heartbeats_by_the_short_way() -> None:
    """So a pass finds in time that it must step down."""
    bench = leading()
    until_ms = bench.clock.monotonic_ms() + 2 * RAFT.election_timeout_ms_min
    while bench.core.role is Role.LEADER and bench.clock.monotonic_ms() < until_ms:
        if bench.consensus.beat() is None:
            bench.consensus.tick()
        bench.clock.advance(INTERVAL_MS)

    assert bench.core.role is Role.FOLLOWER
    heard_ms = bench.clock.monotonic_ms() - INTERVAL_MS - RAFT.election_timeout_ms_min
    known = [each.heard_ms or 0 for each in bench.consensus.replication.followers.values()]
    assert max(known) >= heard_ms - INTERVAL_MS


@pytest.mark.parametrize("is_short", [True, False])
@pytest.mark.parametrize("heartbeat", [HEARTBEAT, say.CommitNotice(3, 1)])
def test_a_heartbeat_by_the_short_way_does_what_it_does_by_the_long_one(
    heartbeat: say.Append | say.CommitNotice, is_short: bool
) -> None:
    """No election is due for a whole timeout; what asks for an answer gets the same one."""
    bench = Bench()
    first = bench.receive("2", HEARTBEAT)
    bench.clock.advance(300)

    if is_short:
        bench.held.clear()
        bench.now.clear()
        assert bench.consensus.take_repeat("2", heartbeat)
        said = [*bench.now, *bench.held]
    else:
        said = bench.receive("2", heartbeat)

    assert said == ([] if isinstance(heartbeat, say.CommitNotice) else first)
    timeout_ms = bench.core.election_due_ms - bench.clock.monotonic_ms()
    assert bench.raft.election_timeout_ms_min <= timeout_ms <= bench.raft.election_timeout_ms_max
    assert bench.consensus.leader_id == "2"


@pytest.mark.parametrize(
    ("member_id", "heartbeat"),
    [
        ("3", HEARTBEAT),
        ("2", HEARTBEAT._replace(term=4)),
        ("2", HEARTBEAT._replace(term=2)),
        ("2", HEARTBEAT._replace(epoch=2)),
        ("2", HEARTBEAT._replace(commit_index=2)),
        ("2", HEARTBEAT._replace(prev_index=2, prev_term=3)),
        ("2", HEARTBEAT._replace(entries=[(3, b"\x01")])),
        ("3", say.CommitNotice(3, 1)),
        ("2", say.CommitNotice(2, 1)),
        ("2", say.CommitNotice(3, 2)),
    ],
)
def test_what_says_something_else_takes_the_long_way(
    member_id: str, heartbeat: say.Append | say.CommitNotice
) -> None:
    """Another sender, term, epoch, commit index, place in the log, or an entry."""
    bench = Bench()
    bench.receive("2", HEARTBEAT)
    bench.held.clear()

    assert not bench.consensus.take_repeat(member_id, heartbeat)
    assert not bench.held


def test_after_the_connection_to_the_leader_ended_its_heartbeat_takes_the_long_way() -> None:
    """It is in sight again, which others have to be told."""
    bench = Bench()
    bench.receive("2", HEARTBEAT)
    bench.consensus.on_disconnected("2")

    assert not bench.consensus.take_repeat("2", HEARTBEAT)


def test_a_heartbeat_after_the_log_has_changed_takes_the_long_way() -> None:
    """The former answer would say what is not true any more."""
    bench = Bench()
    bench.receive("2", HEARTBEAT)
    bench.append(3, (1, 0), [3])

    assert not bench.consensus.take_repeat("2", HEARTBEAT)


def test_an_idle_cluster_makes_hardly_a_pass() -> None:
    """One a second on each member: heartbeats and their answers take none."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await asyncio.sleep(2)
        passes: Counter[str] = Counter()
        for member in cluster.members:
            count_passes(member, passes)

        await asyncio.sleep(10)

        assert set(passes) == {member.member_id for member in cluster.members}
        assert max(passes.values()) <= 12
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


async def calm() -> tuple[SimulatedCluster, Member, Member, Passes]:
    """Return a cluster, its leader and a follower with its passes, whose heartbeats repeat."""
    cluster, leader = await settled()
    await asyncio.sleep(2)
    follower = cluster.others(leader)[0]
    passes = follower.engine._passes
    assert passes is not None
    assert passes.may_repeat()
    return cluster, leader, follower, passes


def test_who_learns_that_it_has_an_older_copy_acknowledges_nothing_more() -> None:
    """A heartbeat like the last one is answered by the short way only by who is proven."""

    async def scenario() -> None:
        cluster, _leader, _follower, passes = await calm()

        passes.consensus.on_older_copy("an older copy was put back")

        assert not passes.may_repeat()
        await cluster.stop()

    run(scenario())


def test_heartbeats_are_calm_until_something_else_is_heard() -> None:
    """Only repetitions leave it at what was found; anything else has it looked at again."""

    async def scenario() -> None:
        cluster, leader = await settled()
        await asyncio.sleep(2)
        follower = cluster.others(leader)[0]
        for member in (leader, follower):
            passes, engine = member.engine._passes, member.engine
            assert passes is not None
            assert passes.may_repeat()
            assert passes.is_calm
            passes.run()
            assert not passes.is_calm
            assert passes.may_repeat()
            engine._run_loop.wake()
            assert not passes.may_repeat()
            await asyncio.sleep(2)
            assert passes.may_repeat()
            passes.consensus.recovering.begin("a test")
            assert not engine._run_loop.is_woken
            assert not passes.may_repeat()
        await cluster.stop()

    run(scenario())


def test_what_an_incarnation_says_disturbs_the_calm() -> None:
    """Its messages ask for no pass, and may leave something to be said again."""

    async def scenario() -> None:
        cluster, leader, follower, passes = await calm()
        transport: Any = follower.engine._transport
        listener = transport._listener if hasattr(transport, "_listener") else transport.listener

        listener.on_message(leader.member_id, say.IncarnationSeen(0))

        assert not passes.is_calm
        await cluster.stop()

    run(scenario())


def count_passes(member: Member, passes: Counter[str]) -> None:
    run_loop = member.engine._run_loop
    run_pass = run_loop._run

    def counted() -> None:
        passes[member.member_id] += 1
        run_pass()

    run_loop._run = counted


async def test_who_is_awake_sets_its_timer_again_before_it_comes() -> None:
    """Otherwise a follower would be woken by it as well as by heartbeats."""
    passes: list[float] = []
    loop = asyncio.get_running_loop()
    run_loop = RunLoop(lambda: passes.append(loop.time()), lambda: False, now_ms)
    run_loop.wake()
    await asyncio.sleep(0.01)
    due: list[int] = []

    def due_ms() -> int:
        due.append(now_ms() + 10_000)
        return due[-1]

    run_loop.set_due(now_ms() + int(NEAR_S * 1_000) + 60_000)
    run_loop.postpone(due_ms)
    assert not due
    run_loop.cancel()
    run_loop.set_due(now_ms() + int(NEAR_S * 1_000) - 10)
    run_loop.postpone(due_ms)
    assert len(due) == 1
    assert run_loop._timer_at - loop.time() > 9
    assert len(passes) == 1
    run_loop._ran_at -= RUN_EVERY_S
    run_loop.postpone(due_ms)
    await asyncio.sleep(0.01)
    assert len(passes) == 2
    run_loop.cancel()


def now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1_000)
