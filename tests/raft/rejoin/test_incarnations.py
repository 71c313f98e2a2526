"""An older copy of a member's data, put back, is told from the newest by those who met that one."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from coordinator.raft.engine import Role
from coordinator.raft.network import messages as say
from coordinator.raft.rejoin import incarnation_record as incarnations
from coordinator.raft.rejoin.incarnation_record import (
    load,
)
from coordinator.raft.rejoin.incarnations import INCARNATION_MS
from coordinator.raft.rejoin.recovering import Proof
from tests.amount import drawn
from tests.raft.rejoin.copies import lose_and_catch_up
from tests.raft.simulated_cluster import Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run


async def start_again(cluster: SimulatedCluster, *members: Member) -> None:
    for member in members:
        await member.start()


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(10)))
def test_an_old_copy_elects_nobody_though_everybody_forgot_what_they_knew_in_memory(
    seed: int,
) -> None:
    """One was away while the two others committed; those two and the cluster end, and one of them
    comes back as it was before. The one that was away must not be elected with its vote."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3, seed)
        await cluster.start()
        leader = await cluster.leader()
        restored, away = cluster.others(leader)
        await leader.engine.propose(b"before")
        await cluster.equal()
        await away.kill()
        await restored.kill()
        old = restored.disk.copy()
        await restored.start()
        for number in range(5):
            await leader.engine.propose(b"%d" % number)
        await cluster.equal()
        await leader.kill()
        await restored.kill()

        restored.disk = old
        await start_again(cluster, restored, away, leader)

        await cluster.until(lambda: restored.is_unproven)
        assert (await cluster.leader()) is leader
        assert len(await cluster.equal()) == 6
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_a_copy_taken_while_the_member_ran_is_found_out_a_minute_later() -> None:
    """A backup of a running member, put back after some minutes, all having been started anew."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored = cluster.others(leader)[0]
        old = restored.disk.copy()
        for number in range(3):
            await asyncio.sleep(INCARNATION_MS / 1000)
            await leader.engine.propose(b"later %d" % number)
        await cluster.equal()
        await asyncio.sleep(1)
        for member in cluster.members:
            await member.kill()

        restored.disk = old
        for _ in range(3):  # however often it is started before it meets anybody
            await restored.start()
            await restored.kill()
        await start_again(cluster, *cluster.members)

        await cluster.until(lambda: restored.is_unproven)
        assert len(await cluster.equal()) == 8
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_an_old_copy_that_leads_steps_down_when_it_meets_one_that_knows_better() -> None:
    """Beyond a minority of faults it can be elected; not for longer than it takes to be met."""

    async def scenario() -> None:
        cluster, leader = await settled()
        restored, away = cluster.others(leader)
        await restored.kill()
        old = restored.disk.copy()
        await away.kill()
        await restored.start()
        await leader.engine.propose(b"known to two")
        await cluster.equal()
        await leader.kill()
        await restored.kill()
        restored.disk = old
        await start_again(cluster, restored, away)
        await cluster.leader([restored, away])

        await leader.start()
        await cluster.until(lambda: restored.is_unproven)

        assert restored.engine.status().role is not Role.LEADER
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.stop()

    run(scenario())


def test_an_emptied_member_is_met_anew() -> None:
    """It knows none of its incarnations and says that it is recovering: it is taken as it is."""

    async def scenario() -> None:
        cluster, leader = await settled()
        emptied = cluster.others(leader)[0]
        await emptied.lose_disk()
        await emptied.start()

        await cluster.until(lambda: not emptied.is_unproven)
        for member in cluster.members:
            await member.kill()
        await start_again(cluster, *cluster.members)

        assert len(await cluster.equal()) == 5
        assert not emptied.is_unproven
        await cluster.stop()

    run(scenario())


def test_one_that_was_away_does_not_accuse_those_that_were_replaced_meanwhile() -> None:
    """Found by the world of seed 70117: three of five had new disks, one after the other, and were
    proven again; then the fifth came back and took each for an old copy, so nobody could lead."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        away, *replaced = cluster.others(leader)
        await away.kill()
        for member in replaced:
            await lose_and_catch_up(cluster, member)
        accused = []
        cluster.network.on_message = lambda _source, target, message: (
            accused.append(target) or True if isinstance(message, say.IncarnationLost) else True
        )

        await away.start()
        await cluster.equal()
        await asyncio.sleep(1)

        assert accused == []
        assert not any(member.is_unproven for member in cluster.members)
        await leader.kill()
        await replaced[0].kill()
        await cluster.leader([away, *replaced[1:]])  # it counts on them, and they on it
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("cut_on", [say.VoteRequest, say.VoteGrant])
def test_one_that_was_away_since_the_first_election_accuses_nobody(
    cut_on: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It met all others while they recovered; none of those incarnations is kept."""
    monkeypatch.setattr(incarnations, "INCARNATIONS_KEPT", 8)  # 4,096 are days of writes

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        away: list[Member] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, cut_on) and not away:
                away_id = target if cut_on is say.VoteRequest else source
                away.append(cluster.members[int(away_id) - 1])
                cluster.network.isolate(away_id)
            return True

        cluster.network.on_message = note
        await cluster.start()
        await cluster.until(lambda: bool(away))
        (third,) = away
        rest = cluster.others(third)
        await (await cluster.leader(rest)).engine.propose(b"first")
        assert all(met.proof == Proof(0, 0) for met in load(third.disk, "data").met.values())
        await third.kill()
        for number in range(incarnations.INCARNATIONS_KEPT + 2):
            await asyncio.sleep(INCARNATION_MS / 1000 + 1)
            await (await cluster.leader(rest)).engine.propose(b"%d" % number)

        cluster.network.heal()
        await third.start()

        await cluster.equal()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        await cluster.stop()

    run(scenario())


def test_a_copy_of_before_the_replacement_is_found_out_by_those_who_met_the_life_after() -> None:
    """With the incarnations of before it had come further, and it was proven with less."""

    async def scenario() -> None:
        cluster, leader = await settled(5)
        restored, *_ = cluster.others(leader)
        for _ in range(4):
            await restored.kill()
            await restored.start()
            await cluster.equal()
        await restored.kill()
        old = restored.disk.copy()
        await lose_and_catch_up(cluster, restored)
        await cluster.equal()
        await asyncio.sleep(1)
        for member in cluster.members:
            await member.kill()

        restored.disk = old
        await start_again(cluster, *cluster.members)

        await cluster.until(lambda: restored.is_unproven)
        await cluster.until(lambda: not restored.is_unproven)
        await cluster.equal()
        await cluster.stop()

    run(scenario())


def test_a_member_with_a_full_disk_can_be_started_again() -> None:
    """It goes on in its incarnation, and begins one when there is room."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full = cluster.others(leader)[0]
        await full.kill()
        before = load(full.disk, "data").number
        full.disk.fill()

        await full.start()
        await asyncio.sleep(3)
        assert not full.failures
        assert load(full.disk, "data").number == before
        full.disk.capacity_bytes = None
        await cluster.until(lambda: load(full.disk, "data").number == before + 1)

        await leader.engine.propose(b"more")
        assert b"more" in await cluster.equal()
        assert not full.is_unproven
        await cluster.stop()

    run(scenario())


def test_a_incarnation_that_found_no_room_begins_though_another_note_found_none_either() -> None:
    """Whom it met is one note, its own incarnation another; the later of two attempts owes both."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full, other = cluster.others(leader)
        await full.kill()
        await other.kill()
        before = load(full.disk, "data").number
        full.disk.fail("write", error=errno.ENOSPC, path_part="chapters", count=2)

        await full.start()
        await other.start()
        await asyncio.sleep(5)

        assert load(full.disk, "data").number == before + 1
        await cluster.stop()

    run(scenario())


def test_whom_a_member_met_without_room_is_noted_when_there_is_some() -> None:
    """What it counted on must be known in its next life."""

    async def scenario() -> None:
        cluster, leader = await settled()
        full, met = cluster.others(leader)
        await cluster.equal()
        full.disk.fail("write", error=errno.ENOSPC, path_part="chapters", count=3)
        await met.kill()
        await met.start()
        await asyncio.sleep(8)

        number = load(met.disk, "data").number
        assert load(full.disk, "data").met[met.member_id].number == number
        await cluster.stop()

    run(scenario())


def test_members_that_do_not_know_each_other_yet_ask_each_other_now_and_then() -> None:
    """While their disks note it an answer is no question: there would be no end to them."""

    async def scenario() -> None:
        cluster = SimulatedCluster(3)
        count = 0

        def see(_source: str, _target: str, message: say.Message) -> bool:
            nonlocal count
            count += isinstance(message, say.Incarnation)
            return True

        cluster.network.on_message = see
        cluster.network.delay_ms = (0.2, 0.2)
        for member in cluster.members:
            member.sync_ms = 1_000.0
            await member.start()
        await asyncio.sleep(0.5)

        assert 6 <= count < 100
        for member in cluster.members:
            await member.kill()

    run(scenario())


def test_members_started_again_and_again_are_never_accused() -> None:
    """Power cuts at any step of noting: what was shown is known after, always."""

    async def scenario() -> None:
        cluster, _ = await settled()
        draw = random.Random(1)
        for _ in range(150):
            member = draw.choice(cluster.members)
            if not member.is_up:
                await member.start()
            elif draw.random() < 0.3:
                member.disk.crash_at_step = member.disk.step_count + draw.randint(1, 9)
            else:
                await member.kill()
            await asyncio.sleep(draw.uniform(0.0, 0.3))
            for each in cluster.members:
                if each.is_up and each.failures:
                    await each.kill()
                    each.failures.clear()
                assert not each.is_unproven
        for member in cluster.members:
            member.disk.crash_at_step = None
            if not member.is_up:
                await member.start()
        assert len(await cluster.equal()) == 5
        await cluster.stop()

    run(scenario())


def test_a_incarnation_that_begins_while_a_leader_leads_sends_nothing_again() -> None:
    """Its followers have heard it all the time: what is under way to them is not lost."""

    async def scenario() -> None:
        cluster, leader = await settled()
        consensus = leader.engine._consensus
        assert consensus is not None
        followers = consensus.replication.followers.values()
        number, epochs = load(leader.disk, "data").number, [each.epoch for each in followers]

        for _ in range(150):
            await leader.engine.propose(b"more")
            await asyncio.sleep(1)

        assert load(leader.disk, "data").number >= number + 2
        assert [each.epoch for each in followers] == epochs
        await cluster.equal()
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("seed", range(3))
def test_one_of_five_cut_off_at_the_first_election_comes_back_after_three_new_disks(
    seed: int,
) -> None:
    """It met the others before there was anything to lose, so no later life of theirs is in doubt;
    the cluster stood still for ever."""

    async def scenario() -> None:
        cluster = SimulatedCluster(5, seed=seed)
        away: list[Member] = []

        def note(source: str, target: str, message: say.Message) -> bool:
            if isinstance(message, say.VoteRequest) and not away:
                away.append(cluster.members[int(target) - 1])
                cluster.network.isolate(target)
            return True

        cluster.network.on_message = note
        await cluster.start()
        await cluster.until(lambda: bool(away))
        (fifth,) = away
        rest = cluster.others(fifth)
        await (await cluster.leader(rest)).engine.propose(b"first")
        await cluster.until(lambda: not any(member.is_unproven for member in rest))
        for member in rest[:3]:
            await member.lose_disk()
            await member.start()
            await (await cluster.leader(rest)).engine.propose(b"for " + member.member_id.encode())
            await cluster.until(lambda: not any(each.is_unproven for each in rest))

        cluster.network.heal()
        await fifth.kill()
        await fifth.start()

        await (await cluster.leader()).engine.propose(b"all are there")
        await cluster.equal()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        await cluster.stop()

    run(scenario())
