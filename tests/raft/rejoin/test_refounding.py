"""A cluster that can have no leader any more begins again from what one member holds."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace

import pytest

from coordinator.errors import CoordinatorError, StorageError
from coordinator.raft.network.messages import INTEGER_MAX, Message, VoteGrant
from coordinator.raft.rejoin import recovering
from coordinator.raft.rejoin.refounding import HeldData, read_note, write
from coordinator.raft.storage import hard_state as term
from coordinator.raft.storage import ownership
from coordinator.raft.storage.ownership import Owner
from coordinator.raft.term_bounds import TERM_JUMP_MAX
from tests.amount import drawn
from tests.raft.simulated_cluster import ListReplica, Member, SimulatedCluster, settled
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedDisk

NEW_ID = b"\x07" * 16


def found_again(member: Member) -> None:
    """Do offline to a member that does not run what ``coordinator recover`` does."""
    held = HeldData(member.disk, "data")
    replica = ListReplica()
    at = held.replay(replica)
    held.close()
    disk = SimulatedDisk(member.cluster.random.randrange(1 << 30))
    owner = Owner("coordinator", member_id=member.member_id, cluster_id=NEW_ID)
    write(disk, "data", owner, at, replica.snapshot(), {"by": "a test"})
    disk.crash()
    member.disk = disk
    member.failures.clear()


async def without_votes(count: int = 3, **limits: int) -> SimulatedCluster:
    """Return a cluster that has a history, whole disks, and no votes; none of it runs."""
    cluster, _ = await settled(count, **limits)
    await cluster.kill()
    for member in cluster.members:
        recovering.replace_file(member.disk, "data", recovering.NAME, b"joining")
    return cluster


async def begin_again(cluster: SimulatedCluster) -> Member:
    """Start a cluster that does not run from what its first member holds; return that one."""
    founder, *others = cluster.members
    found_again(founder)
    for member in others:
        await member.lose_disk()
    await cluster.start()
    return founder


async def kill_with_terms(cluster: SimulatedCluster, number: int) -> None:
    """Kill all members, and leave the term ``number`` on their disks."""
    await cluster.kill()
    for member in cluster.members:
        state = term.load(member.disk, "data/log")
        assert state is not None
        state = replace(state, term=number, voted_for=None)
        term.save(member.disk, "data/log", state)


@pytest.mark.parametrize("count", [3, 5])
def test_a_cluster_without_votes_says_so_and_begins_again(count: int) -> None:
    """Nothing of the one that founds is lost; the others take it over; all have votes again."""

    async def scenario() -> None:
        cluster = await without_votes(count)
        for member in cluster.members:
            await member.start()
        await asyncio.sleep(5)
        assert not cluster.leaders()
        for member in cluster.members:
            assert "have no vote" in member.engine.status().obstacle
            await member.kill()

        founder = await begin_again(cluster)

        assert await cluster.leader() is founder
        await founder.engine.propose(b"again")
        assert await cluster.equal() == [b"0", b"1", b"2", b"3", b"4", b"again"]
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        owners = [ownership.load(member.disk, "data") for member in cluster.members]
        assert {owner.cluster_id for owner in owners if owner} == {NEW_ID}
        assert "a test" in read_note(founder.disk, "data")
        await cluster.stop()

    run(scenario())


def test_terms_that_were_driven_to_their_end_begin_again() -> None:
    """With the largest term there is nobody can stand any more."""

    async def scenario() -> None:
        cluster, _ = await settled()
        await kill_with_terms(cluster, INTEGER_MAX)
        await begin_again(cluster)

        leader = await cluster.leader()
        assert leader.term < 100
        assert len(await cluster.equal()) == 5
        await cluster.stop()

    run(scenario())


def test_terms_that_an_emptied_member_would_not_believe_begin_again() -> None:
    """The others begin at term 0, and take a term that is far above for a lie."""

    async def scenario() -> None:
        cluster, _ = await settled()
        await kill_with_terms(cluster, TERM_JUMP_MAX + 5)
        await cluster.start()
        await (await cluster.leader()).engine.propose(b"in a far term")
        await cluster.equal()
        await cluster.kill()
        await begin_again(cluster)

        leader = await cluster.leader()
        assert leader.term < 100
        assert len(await cluster.equal()) == 6
        await cluster.stop()

    run(scenario())


def test_the_one_that_founds_waits_for_all_and_says_for_whom() -> None:
    """Two empty members and the one that founds would be enough to begin two histories."""

    async def scenario() -> None:
        cluster = await without_votes()
        founder, second, third = cluster.members
        found_again(founder)
        await second.lose_disk()
        await third.lose_disk()
        await founder.start()
        await second.start()
        await asyncio.sleep(5)

        assert not cluster.leaders()
        for member in (founder, second):
            assert "not reachable: 3: start it" in member.engine.status().obstacle
        await third.start()
        assert await cluster.leader() is founder
        await cluster.stop()

    run(scenario())


def test_who_was_not_emptied_is_refused_and_takes_no_part() -> None:
    """Its data are of the cluster of before."""

    async def scenario() -> None:
        cluster = await without_votes()
        founder, second, third = cluster.members
        found_again(founder)
        await second.lose_disk()
        for member in cluster.members:
            await member.start()
        await asyncio.sleep(5)

        assert not cluster.leaders()
        assert "the cluster's id" in third.engine.status().refused["1"]
        await third.lose_disk()
        await third.start()
        assert await cluster.leader() is founder
        assert len(await cluster.equal()) == 5
        await cluster.stop()

    run(scenario())


@pytest.mark.histories
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("seed", range(drawn(6)))
def test_deaths_while_it_begins_again_lose_nothing(seed: int, count: int) -> None:
    """Whoever dies at whatever moment, with or without its power: in the end all are proven, and
    hold what the one that founds held, and all that was acknowledged since."""

    async def scenario() -> None:
        cluster = await without_votes(
            count, snapshot_every_entries=8, keep_entries_after_snapshot=2
        )
        chance = random.Random(seed)
        await begin_again(cluster)
        acknowledged = [b"%d" % number for number in range(5)]
        for number in range(12):
            await asyncio.sleep(chance.choice((0.05, 0.2, 0.5, 1.5)))
            victims = chance.sample(cluster.members, chance.randint(1, count))
            for member in victims:
                if member.is_up:
                    await member.kill(is_power_cut=chance.random() < 0.5)
            await asyncio.sleep(chance.choice((0.0, 0.3)))
            for member in victims:
                await member.start()
            leaders = cluster.leaders()
            if leaders:
                command = b"during %d" % number
                with contextlib.suppress(CoordinatorError, TimeoutError):  # nobody knows
                    async with asyncio.timeout(0.3):
                        await leaders[0].engine.propose(command)
                    acknowledged.append(command)

        await cluster.leader(within_ms=30_000)
        await cluster.until(
            lambda: not any(member.is_unproven for member in cluster.members), within_ms=30_000
        )
        found = await cluster.equal()
        assert [each for each in found if each in acknowledged] == acknowledged
        await cluster.stop()

    run(scenario())


def test_who_voted_for_the_one_that_founds_leads_nobody_without_its_data() -> None:
    """The voters are a majority, with empty logs: their votes have not proven them."""

    async def scenario() -> None:
        cluster = await without_votes()
        founder, *others = cluster.members
        found_again(founder)
        for member in others:
            await member.lose_disk()
        voters: set[str] = set()

        def note(source: str, _target: str, message: Message) -> bool:
            if isinstance(message, VoteGrant):
                voters.add(source)
            return not isinstance(message, VoteGrant)

        cluster.network.on_message = note
        for member in cluster.members:
            await member.start()
        await cluster.until(lambda: len(voters) == 2)
        cluster.network.on_message = None
        await founder.kill()
        await asyncio.sleep(10)
        assert not cluster.leaders()

        await founder.start()

        await cluster.leader()
        assert len(await cluster.equal()) == 5
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        await cluster.stop()

    run(scenario())


def test_data_that_are_not_there_are_not_begun_with() -> None:
    """An empty directory holds nothing to begin with."""
    disk = SimulatedDisk()
    disk.make_directory("data")

    with pytest.raises(StorageError, match="expected the data of a member, found none"):
        HeldData(disk, "data")
