"""Members whose disks are full: who leads, who votes, what is read and written, snapshots."""

from __future__ import annotations

import asyncio
import errno

import pytest

from coordinator.errors import LeaderChangedError, NoSpaceError
from coordinator.raft.engine import Role
from coordinator.raft.network.messages import SnapshotPiece
from tests.raft.simulated_cluster import SimulatedCluster, with_full_follower
from tests.raft.simulated_loop import run


async def with_short_logs() -> SimulatedCluster:
    """Return a cluster in which who was away for long needs a snapshot."""
    return await SimulatedCluster(
        3, snapshot_every_entries=50, keep_entries_after_snapshot=5, snapshot_piece_bytes=512
    ).start()


def test_a_leader_with_a_full_disk_hands_over_and_comes_back() -> None:
    """It does not stop; another one leads at once; with room it catches up by itself."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        term = leader.term
        leader.disk.fill(10)

        with pytest.raises(LeaderChangedError):  # nobody knows: it may be on the others' disks
            await leader.engine.propose(b"x" * 1_000)

        second = await cluster.leader(cluster.others(leader), within_ms=100)
        assert second.term == term + 1
        await second.engine.propose(b"meanwhile")
        assert not leader.failures
        assert "full" in leader.engine.status().trouble
        assert leader.engine.metrics()["is_disk_full"] == 1.0
        leader.disk.capacity_bytes = None
        commands = await cluster.equal()
        assert commands[0] == b"before"
        assert commands[-1] == b"meanwhile"
        assert not leader.engine.status().trouble
        assert not leader.failures
        await cluster.stop()

    run(scenario())


def test_a_follower_with_a_full_disk_is_heard_and_acknowledges_nothing() -> None:
    """With the other one down nothing commits and the leader stays; with room it commits."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        full, away = cluster.others(leader)
        await leader.engine.propose(b"before")
        await away.kill()
        full.disk.fill()

        waiting = asyncio.ensure_future(leader.engine.propose(b"waits"))
        await asyncio.sleep(5)

        assert not waiting.done()
        assert leader.is_leading
        await leader.engine.read_barrier()
        await full.engine.read_barrier()  # what is committed is there too
        full.disk.capacity_bytes = None
        async with asyncio.timeout(2):
            await waiting
        assert await cluster.equal() == [b"before", b"waits"]
        await cluster.stop()

    run(scenario())


def test_a_follower_with_a_full_disk_that_fell_behind_catches_up() -> None:
    """Thousands of entries later, and over a change of leader."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3, append_batch_bytes=500).start()
        leader = await cluster.leader()
        full, other = cluster.others(leader)
        full.disk.fill()
        for number in range(500):
            await leader.engine.propose(b"%d" % number)
        assert "full" in full.engine.status().trouble
        assert not full.engine.status().is_ready
        with pytest.raises(NoSpaceError):  # at once: another member can answer
            async with asyncio.timeout(0.1):
                await full.engine.read_barrier()
        await leader.stop()
        await cluster.until(lambda: other.engine.status().role is Role.LEADER, 1_000)
        await leader.start()
        assert (await cluster.leader()) is other
        await other.engine.propose(b"last")

        full.disk.capacity_bytes = None

        assert len(await cluster.equal()) == 501
        await full.engine.read_barrier()
        assert full.engine.status().is_ready
        assert not full.failures
        await cluster.stop()

    run(scenario())


def test_where_all_disks_are_full_reads_go_on_and_writes_are_refused_definitely() -> None:
    """Nobody to hand over to; what was refused never happens, and with room all goes on."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        for member in cluster.members:
            member.disk.fill()

        unknown = asyncio.ensure_future(leader.engine.propose(b"unknown"))
        await asyncio.sleep(1)
        for _ in range(20):
            with pytest.raises(NoSpaceError):
                await leader.engine.propose(b"refused")
            for member in cluster.members:
                async with asyncio.timeout(1):
                    await member.engine.read_barrier()
            await asyncio.sleep(1)

        assert leader.is_leading
        assert not unknown.done()
        for member in cluster.members:
            member.disk.capacity_bytes = None
        async with asyncio.timeout(2):
            await unknown
        assert await cluster.equal() == [b"before", b"unknown"]
        await cluster.stop()

    run(scenario())


def test_a_leader_with_a_full_disk_stays_where_the_others_have_hardly_more_room() -> None:
    """Another one could take its place, and then not write the entry that must come before its
    first answer: reads go on instead."""

    async def scenario(left_bytes: int) -> None:
        cluster = await SimulatedCluster(3, left_bytes).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        await cluster.equal()
        term = leader.term
        leader.disk.fill()
        for member in cluster.others(leader):
            member.disk.fill(left_bytes)

        for _ in range(10):
            proposal = asyncio.ensure_future(leader.engine.propose(bytes(200)))
            await asyncio.sleep(0.5)
            await asyncio.wait({proposal}, timeout=0)
            proposal.cancel()

        assert (leader.is_leading, leader.term) == (True, term), left_bytes
        async with asyncio.timeout(1):
            await leader.engine.read_barrier()
        await cluster.stop()

    for left_bytes in range(0, 1_500, 100):
        run(scenario(left_bytes))


def test_a_member_alone_with_a_full_disk_reads_and_refuses_and_comes_back() -> None:
    """The same for a cluster of one, which takes its first proposal for unknown."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1).start()
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        leader.disk.fill()

        unknown = asyncio.ensure_future(leader.engine.propose(b"unknown"))
        await asyncio.sleep(1)
        with pytest.raises(NoSpaceError):
            await leader.engine.propose(b"refused")
        async with asyncio.timeout(1):
            await leader.engine.read_barrier()

        leader.disk.capacity_bytes = None
        async with asyncio.timeout(2):
            await unknown
        assert leader.replica.commands == [b"before", b"unknown"]
        await cluster.stop()

    run(scenario())


def test_a_member_with_a_full_disk_votes() -> None:
    """The leader dies, one has a full disk: with a term on its disk it still has a vote."""

    async def scenario() -> None:
        cluster, leader, full = await with_full_follower(2_000)
        (other,) = {*cluster.others(leader)} - {full}
        # A term fits, this entry does not.
        await leader.engine.propose(b"x" * 4_000)
        await leader.kill()

        await cluster.until(lambda: other.engine.status().role is Role.LEADER, 5_000)

        assert not full.failures
        full.disk.capacity_bytes = None
        await cluster.leader([other])
        await leader.start()
        assert len(await cluster.equal()) == 2
        await cluster.stop()

    run(scenario())


def test_a_snapshot_that_finds_no_room_is_left_out_and_made_later() -> None:
    """The log grows meanwhile; nothing half done is left."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(1, snapshot_every_entries=50).start()
        leader = await cluster.leader()
        leader.disk.fail("create", error=errno.ENOSPC, path_part="snapshots")
        for number in range(100):
            await leader.engine.propose(b"%d" % number)
        assert leader.engine.status().snapshot_index == 0

        await asyncio.sleep(61)
        await leader.engine.propose(b"last")
        await asyncio.sleep(1)

        assert leader.engine.status().snapshot_index > 50
        assert not leader.failures
        await cluster.stop()

    run(scenario())


def test_a_snapshot_that_cannot_be_received_for_lack_of_room_is_asked_for_again() -> None:
    """A follower that needs one goes on, and installs it when there is room."""

    async def scenario() -> None:
        cluster = await with_short_logs()
        leader = await cluster.leader()
        behind = cluster.others(leader)[0]
        await behind.kill()
        for number in range(200):
            await leader.engine.propose(b"%d" % number * 20)
        await behind.start()
        behind.disk.fill(1_500)
        await asyncio.sleep(20)
        assert behind.replica.restored_total == 0

        behind.disk.capacity_bytes = None

        assert len(await cluster.equal(within_ms=30_000)) == 200
        assert behind.replica.restored_total == 1
        assert not behind.failures
        await cluster.stop()

    run(scenario())


def test_a_member_that_lacks_room_for_a_snapshot_says_that_its_disk_is_full() -> None:
    """It was ready once, and is not while it is behind the log of the leader: its reads would wait
    in vain. Nothing is written to its log meanwhile, so that does not tell (row 12)."""

    async def scenario() -> None:
        cluster = await with_short_logs()
        leader = await cluster.leader()
        behind = cluster.others(leader)[0]
        await cluster.until(lambda: behind.engine.status().is_ready)
        cluster.network.isolate(behind.member_id)
        for number in range(200):
            await leader.engine.propose(b"%d" % number * 20)
        behind.disk.fill(1_500)
        cluster.network.heal()
        await asyncio.sleep(20)
        status = behind.engine.status()
        assert (status.trouble, status.is_ready) == ("its disk is full", False)
        assert behind.engine.metrics()["is_disk_full"] == 1.0

        behind.disk.capacity_bytes = None

        assert len(await cluster.equal(within_ms=30_000)) == 200
        status = behind.engine.status()
        assert (status.trouble, status.is_ready) == ("", True)
        assert behind.engine.metrics()["is_disk_full"] == 0.0
        assert not behind.failures
        await cluster.stop()

    run(scenario())


def test_a_snapshot_that_is_not_needed_any_more_keeps_nobody_from_being_ready() -> None:
    """Its leader died in the midst of sending it, and the next one has the entries."""

    async def scenario() -> None:
        cluster = await SimulatedCluster(3).start()
        leader = await cluster.leader()
        behind = cluster.others(leader)[0]
        await cluster.until(lambda: behind.engine.status().is_ready)
        snapshots, consensus = behind.engine._passes.snapshots, behind.engine._consensus
        assert snapshots is not None
        assert consensus is not None
        piece = SnapshotPiece(
            term=behind.term, snapshot_index=10_000, total_bytes=9_000, sha256=bytes(32),
            offset=0, data=b"x" * 500,
        )  # fmt: skip
        snapshots.receive(consensus, leader.member_id, piece)
        assert not behind.engine.status().is_ready

        await cluster.until(lambda: behind.engine.status().is_ready)
        await cluster.stop()

    run(scenario())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["create", "open"])
def test_a_member_without_descriptors_goes_on_and_makes_its_snapshots_later(
    number: int, operation: str
) -> None:
    """Neither a snapshot, nor one to send, nor the next segment of the log ends it."""

    async def scenario() -> None:
        cluster = SimulatedCluster(
            3, snapshot_every_entries=20, keep_entries_after_snapshot=2, segment_bytes=2_000
        )
        await cluster.start()
        leader = await cluster.leader()
        await cluster.until(lambda: not any(member.is_unproven for member in cluster.members))
        behind = cluster.others(leader)[0]
        await behind.kill()
        for part in ("snapshot", ".log"):
            leader.disk.fail(operation, error=number, count=10**6, path_part=part)
        for each in range(60):
            await leader.engine.propose(b"x" * 100 + b"%d" % each)
        await behind.start()
        await asyncio.sleep(2)
        assert leader.failures == []
        leader.disk.faults.clear()

        await asyncio.sleep(65)
        for each in range(60):
            await (await cluster.leader()).engine.propose(b"y" * 100 + b"%d" % each)

        assert len(await cluster.equal()) == 120
        assert leader.engine.status().snapshot_index > 20
        await cluster.stop()

    run(scenario())
