"""A member whose disk was lost, or put back from an old copy, has no say until it has caught up."""

from __future__ import annotations

import asyncio
import errno

import pytest

from coordinator.errors import CoordinatorError, StorageError
from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.rejoin.recovering import (
    TRY_AGAIN_MS,
    Proof,
    Recovering,
    RecoveryStage,
    ask_after_ms,
)
from tests.raft.simulated_cluster import SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedDisk
from tests.raft.test_engine_rows import Bench


def a_new_member_of_some_age() -> Bench:
    """Return one that asks for terms as soon as it hears a leader."""
    bench = Bench(is_new=True)
    bench.clock.advance(ask_after_ms(bench.raft.election_timeout_ms_max))
    return bench


def test_a_new_member_acknowledges_nothing_before_it_knows_the_terms() -> None:
    """An older leader may not count on a member that has forgotten a newer one's term."""
    bench = a_new_member_of_some_age()
    append = say.Append(
        term=3, epoch=1, commit_index=1, prev_index=1, prev_term=0, entries=[(3, b"\x01")]
    )

    first = bench.receive("2", append)
    question = first[0][1]
    assert isinstance(question, say.TermQuestion)
    number = question.number
    bench.receive("2", say.TermAnswer(number, 3))
    with_one_answer = bench.receive("2", append)
    bench.receive("3", say.TermAnswer(number, 4))
    with_both = bench.receive("2", append)

    assert first == [(other, say.TermQuestion(number)) for other in ("2", "3")]
    assert [message for _, message in with_one_answer if isinstance(message, say.Appended)] == []
    assert with_both == [("2", say.TermNotice(4))]
    assert bench.terms() == [0]


def test_a_new_member_asks_for_terms_when_votes_of_its_life_before_count_nowhere() -> None:
    """A candidate may still count a forgotten vote, and one of a member that has not voted yet:
    asked now, that one would not know the candidate's term."""
    bench = Bench(is_new=True)
    until_ms = bench.clock.monotonic_ms() + bench.raft.election_timeout_ms_max * 1.02

    asked_ms = []
    for _ in range(60):
        replies = [message for _, message in bench.receive("2", say.Probe(3, 0))]
        if any(isinstance(message, say.TermQuestion) for message in replies):
            asked_ms.append(bench.clock.monotonic_ms())
        bench.clock.advance(25)

    assert until_ms < asked_ms[0] < until_ms + 100
    assert 0 <= asked_ms[1] - asked_ms[0] - bench.raft.heartbeat_interval_ms < 25


def test_answers_to_a_question_of_another_life_do_not_count() -> None:
    """A late answer may have been given before the disk was lost."""
    bench = a_new_member_of_some_age()
    append = say.Append(
        term=3, epoch=1, commit_index=1, prev_index=1, prev_term=0, entries=[(3, b"\x01")]
    )
    number = bench.receive("2", append)[0][1].number  # type: ignore[union-attr]

    for other in ("2", "3"):
        bench.receive(other, say.TermAnswer(number + 1, 3))

    assert not bench.recovering.may_follow("2")


def test_who_recovers_tells_no_terms() -> None:
    """It may have forgotten a newer one than it knows."""
    bench = Bench(is_new=True)

    assert bench.receive("2", say.TermQuestion(7)) == []
    assert Bench().receive("2", say.TermQuestion(7)) == [("2", say.TermAnswer(7, 0))]


def test_recovery_ends_only_with_an_entry_of_the_leaders_own_term_committed() -> None:
    """What a new leader knows to be committed of earlier terms may be less than what is."""
    bench = a_new_member_of_some_age()
    number = bench.receive("2", say.Probe(3, 0))[0][1].number  # type: ignore[union-attr]
    for other in ("2", "3"):
        bench.receive(other, say.TermAnswer(number, 3))

    standings = []
    for terms, previous, commit in ([2, 2], (1, 0), 1), ([3], (3, 2), 3), ([], (4, 3), 4):
        bench.append(3, previous, terms, commit=commit)
        bench.log.sync()
        bench.recovering.maybe_end(bench.log.durable_index, 0)
        standings.append(bench.recovering.is_proven)

    assert standings == [False, False, True]


def test_recovery_ends_only_with_more_than_was_committed_when_it_began() -> None:
    """It asks again for what it lacks; with as much as another life had they have no order."""
    bench = a_new_member_of_some_age()
    number = bench.receive("2", say.Probe(3, 0))[0][1].number  # type: ignore[union-attr]
    for other in ("2", "3"):
        bench.receive(other, say.TermAnswer(number, 3))
    bench.append(3, (1, 0), [3], commit=2)

    standings, questions = [], []
    for terms, previous, commit in ([], (2, 3), 2), ([], (2, 3), 2), ([3], (2, 3), 3):
        bench.clock.advance(200)
        bench.now.clear()
        bench.append(3, previous, terms, commit=commit)
        bench.log.sync()
        bench.recovering.maybe_end(bench.log.durable_index, 0)
        standings.append(bench.recovering.is_proven)
        questions.append(say.TermQuestion(number) in [message for _, message in bench.now])

    assert standings == [False, False, True]
    assert questions == [True, True, False]
    assert bench.recovering.proof == Proof(3, 3)


def test_a_leader_writes_an_entry_for_who_asks_for_terms() -> None:
    """Once, and only if nothing else is written; nobody else does."""
    bench = Bench()
    assert bench.entries.next() is None
    bench.lead()
    bench.log.sync()
    bench.follower_holds("2", 2)
    bench.consensus.tick()
    bench.core.apply()
    last_index = bench.log.last_index

    bench.receive("2", say.TermQuestion(7))

    bench.consensus.tick()
    assert bench.log.last_index == last_index + 1
    bench.consensus.tick()
    assert bench.log.last_index == last_index + 1


def test_recovery_does_not_end_before_what_was_caught_up_is_durable() -> None:
    """The mark goes after the sync of the log, never before."""
    bench = Bench(is_new=True)
    bench.recovering.note_history()
    bench.recovering.note_caught_up(Proof(1, 2))

    bench.recovering.maybe_end(1, 0)
    before = bench.recovering.is_proven
    bench.recovering.maybe_end(2, 0)

    assert (before, bench.recovering.is_proven) == (False, True)


@pytest.mark.parametrize("seed", range(10))
def test_the_mark_of_recovery_survives_any_crash_before_the_log_begins(seed: int) -> None:
    """Where there is a log of a new member there is its mark: the mark is stable first."""
    steps = 0
    while True:
        steps += 1
        disk = SimulatedDisk(seed)
        disk.make_directory("data")
        disk.crash_at_step = steps
        try:
            Recovering(disk, directory="data", member_id="1", member_count=3, is_new=True)
        except BaseException:  # the power went off
            disk.crash()
            disk.make_directory("data")
            again = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=True)
            assert again.stage is RecoveryStage.NEW
            continue
        disk.crash()
        assert (
            Recovering(disk, directory="data", member_id="1", member_count=3, is_new=False).stage
            is RecoveryStage.NEW
        )
        break


@pytest.mark.parametrize("seed", range(5))
def test_with_what_it_was_proven_is_stable_before_it_votes_again(seed: int) -> None:
    """Whatever step the power goes off at; and in the next life it says the same."""
    for steps in range(1, 50):
        disk = SimulatedDisk(seed)
        disk.make_directory("data")
        recovering = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=True)
        recovering.note_history()
        recovering.note_caught_up(Proof(3, 17))
        disk.crash_at_step = disk.step_count + steps
        try:
            recovering.maybe_end(17, 0)
        except BaseException:  # the power went off
            disk.crash()
            again = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=False)
            assert again.proof == Proof(3, 17) or not again.is_proven
            continue
        break
    disk.crash()

    again = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=False)

    assert steps > 5
    assert (again.is_proven, again.proof) == (True, Proof(3, 17))


@pytest.mark.parametrize(("operation", "name"), [("write", "proof"), ("remove", "unproven")])
def test_without_room_for_its_proof_a_member_stays_on_recovering(operation: str, name: str) -> None:
    """With the proof of an earlier life, others would take that for the later one. It tries again
    now and then, not with each message; where to remove a file takes room, that may fail, too."""
    bench = Bench(is_new=True)
    recovering, disk = bench.recovering, bench.disk
    recovering.note_history()
    disk.fail(operation, error=errno.ENOSPC, path_part=name)
    recovering.note_caught_up(Proof(3, 17))

    recovering.maybe_end(17, 5_000)
    steps = disk.step_count
    before = recovering.is_proven
    for later_ms in range(TRY_AGAIN_MS):
        recovering.maybe_end(17, 5_000 + later_ms)

    assert (before, recovering.is_proven, disk.step_count) == (False, False, steps)
    recovering.maybe_end(17, 5_000 + TRY_AGAIN_MS)
    assert (recovering.is_proven, recovering.proof) == (True, Proof(3, 17))


def test_a_damaged_proof_is_refused() -> None:
    """A greater one would let the others believe an older copy."""
    disk = SimulatedDisk()
    disk.make_directory("data")
    recovering = Recovering(disk, directory="data", member_id="1", member_count=3, is_new=True)
    recovering.note_caught_up(Proof(3, 17))
    recovering.maybe_end(17, 0)
    for offset in range(len(disk.read("data/proof"))):
        damaged = disk.copy()
        damaged.flip("data/proof", offset)
        with pytest.raises(StorageError, match="must be replaced"):
            Recovering(damaged, directory="data", member_id="1", member_count=3, is_new=False)


def test_what_is_replaced_twice_is_proven_with_more_each_time_though_nobody_writes() -> None:
    """An idle cluster: its leader writes an entry for who asks. With as much as before, one that
    was away could not tell which life is the later, and would accuse most of the others."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        away, *replaced = cluster.others(leader)
        proofs: dict[str, list[Proof]] = {member.member_id: [] for member in replaced}
        for _ in range(2):
            for member in replaced:
                await member.lose_disk()
                await member.start()
                await cluster.until(lambda each=member: not each.is_unproven)
                stored = Recovering(
                    member.disk,
                    directory="data",
                    member_id=member.member_id,
                    member_count=5,
                    is_new=False,
                )
                proofs[member.member_id].append(stored.proof)
            await asyncio.sleep(1)
            if away.is_up:
                await away.kill()
        await away.start()
        await asyncio.sleep(5)

        assert all(first < second for first, second in proofs.values())
        assert not any(member.is_unproven for member in cluster.members)
        assert (await cluster.leader()) is leader
        await cluster.stop()

    run(scenario())


def test_an_emptied_member_does_not_elect_one_that_lacks_what_it_had_acknowledged() -> None:
    """The leader and the emptied one had an entry, the third has not: it waits for the leader."""

    async def scenario() -> None:
        cluster, leader = await settled()
        emptied, behind = cluster.others(leader)
        await behind.kill(is_power_cut=False)
        applied = await leader.engine.propose(b"precious")
        await leader.kill()

        await emptied.lose_disk()
        await emptied.start()
        await behind.start()
        await asyncio.sleep(10)
        led_meanwhile = cluster.leaders()
        await emptied.kill()
        await emptied.start()
        await asyncio.sleep(10)
        led_after_a_restart = cluster.leaders()
        await leader.start()
        await cluster.leader()

        assert (led_meanwhile, led_after_a_restart) == ([], [])
        assert (await cluster.equal())[applied.result - 1] == b"precious"
        await cluster.until(lambda: not emptied.is_unproven)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("is_compacted", [False, True])
def test_an_emptied_member_is_proven_once_it_has_caught_up(is_compacted: bool) -> None:
    """By the log or by a snapshot; then it votes, and the two others' leader can be replaced."""

    async def scenario() -> None:
        few = {"snapshot_every_entries": 3, "keep_entries_after_snapshot": 1}
        cluster, leader = await settled(3, **(few if is_compacted else {}))
        emptied, other = cluster.others(leader)
        await emptied.lose_disk()
        await emptied.start()
        is_ready_at_once = emptied.engine.status().is_ready
        await cluster.until(lambda: not emptied.is_unproven)
        await cluster.until(lambda: emptied.engine.status().is_ready)

        await leader.kill()
        second = await cluster.leader([emptied, other])
        await second.engine.propose(b"more")

        assert not is_ready_at_once
        assert len(emptied.replica.commands) >= 5
        await cluster.stop()

    run(scenario())


def test_a_member_alone_is_a_new_cluster_with_an_empty_disk() -> None:
    """There is nobody who could remember more."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1).start()
        leader = await cluster.leader()

        await leader.engine.propose(b"a")

        assert not leader.is_unproven
        await cluster.stop()

    run(scenario())


def test_a_replaced_member_catches_up_under_writes_that_do_not_stop() -> None:
    """The leader makes several snapshots while one is on its way: what follows is kept so long."""

    async def scenario() -> None:
        cluster, leader = await settled(
            snapshot_every_entries=50, keep_entries_after_snapshot=12, snapshot_piece_bytes=512
        )
        for number in range(300):
            await leader.engine.propose(b"%d" % number + b"x" * 1_000)
        replaced = cluster.others(leader)[0]
        await replaced.lose_disk()
        await replaced.start()

        async def write_on() -> None:
            while True:
                await leader.engine.propose(b"more")
                await asyncio.sleep(0.003)

        writing = asyncio.ensure_future(write_on())
        await cluster.until(lambda: not replaced.is_unproven)
        writing.cancel()

        assert replaced.engine._passes.snapshots.installed_total == 1
        await cluster.equal()
        log = leader.engine._log
        for number in range(200):
            await leader.engine.propose(b"after %d" % number)
        await asyncio.sleep(1)
        assert log[-1][1] - log[0][1] < 200  # it is not kept for ever
        await cluster.stop()

    run(scenario())


def test_nobody_is_proven_without_the_term_that_was_won_with_its_forgotten_vote() -> None:
    """A candidate has one vote of two that it needs when the voter's disk is lost; a leader of the
    term before, which was paused, takes that member in; then the candidate gets the other vote."""

    async def scenario() -> None:
        cluster, old = await settled(5)
        candidate, voter, late, other = cluster.others(old)
        held: list[tuple[str, str, say.Message]] = []

        def sees(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.PreVoteRequest):
                return source == candidate.member_id
            if isinstance(message, say.VoteRequest) and target != voter.member_id:
                held.extend([(source, target, message)] * (target == late.member_id))
                return False
            return True

        cluster.network.on_message = sees
        old.pause()
        await cluster.until(lambda: bool(held))
        term = candidate.term
        for each in (candidate, late):
            for one, two in ((each, old), (old, each), (candidate, other), (other, candidate)):
                cluster.network.cut(one.member_id, two.member_id)
        await cluster.until(lambda: voter.term == term)
        await asyncio.sleep(0.005)  # its vote is on the way
        await voter.lose_disk()
        await voter.start()
        cluster.network.cut(candidate.member_id, voter.member_id)
        old.resume()
        await asyncio.sleep(0.5)

        cluster.network.on_message = None
        cluster.network.carry(*held[0])

        await cluster.until(lambda: candidate.engine.status().role is Role.LEADER, 100)
        assert candidate.term == term
        for _ in range(100):
            assert voter.is_unproven or voter.term >= term, "it would vote in that term again"
            await asyncio.sleep(0.01)
        cluster.network.heal()
        await cluster.equal()
        await cluster.stop()

    run(scenario())


def test_an_older_leader_does_not_count_on_a_member_that_forgot_its_vote() -> None:
    """A deposed leader wakes up and reaches only the emptied member: it commits nothing."""

    async def scenario() -> None:
        cluster, old = await settled()
        old.pause()
        second = await cluster.leader(cluster.others(old))
        await second.engine.propose(b"newer")
        (emptied,) = (member for member in cluster.others(old) if member is not second)
        cluster.network.isolate(second.member_id)
        await emptied.lose_disk()
        await emptied.start()
        old.resume()

        with pytest.raises((CoordinatorError, TimeoutError)):
            async with asyncio.timeout(5):
                await old.engine.propose(b"split brain")
        cluster.network.heal()
        await cluster.leader()

        assert (await cluster.equal())[-1] == b"newer"
        await cluster.stop()

    run(scenario())
