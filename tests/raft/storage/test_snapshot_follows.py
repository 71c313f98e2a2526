"""What matters only once a snapshot is installed: the log behind it, and who waits meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from coordinator.errors import NoLeaderError
from coordinator.node.config import RaftConfig
from coordinator.raft.entries import NO_OP
from coordinator.raft.network import messages as say
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.snapshot_exchange import TRIMMED_AT_ONCE
from coordinator.raft.storage.snapshot_store import SnapshotInfo
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run
from tests.raft.storage.exchanges import exchange_with
from tests.raft.storage.simulated_disk import SimulatedDisk


def compacting(**more: Any) -> SimulatedCluster:
    return SimulatedCluster(
        3,
        snapshot_every_entries=100,
        keep_entries_after_snapshot=20,
        snapshot_piece_bytes=1_000,
        **more,
    )


# --- the log


@pytest.mark.parametrize(
    ("index", "term", "kept"),
    [
        (5, 1, [(n, 1) for n in range(1, 11)]),
        (5, 2, [(5, 2)]),
        (10, 1, [(n, 1) for n in range(1, 11)]),
        (10, 3, [(10, 3)]),
        (11, 1, [(11, 1)]),
        (11, 2, [(11, 2)]),
        (1, 2, [(1, 2)]),
    ],
)
def test_a_log_is_kept_only_if_it_has_the_very_entry_of_the_snapshot(
    index: int, term: int, kept: list[tuple[int, int]]
) -> None:
    """An entry of another term at that place was overwritten elsewhere: so is all behind it."""
    disk = SimulatedDisk(1)
    disk.make_directory("data/log")
    log = Journal("data/log", disk, segment_bytes=4_096)
    log.setCurrentTerm(3, None)
    log.clear()
    for number in range(1, 11):
        log.add(NO_OP, number, 1)
    log.sync()
    exchange = exchange_with(log=log)
    exchange._follow_on(SnapshotInfo(index=index, term=term, size_bytes=0, sha256=b"", path=""))

    assert [(each[1], each[2]) for each in log[:]] == kept


def test_a_log_that_began_again_while_it_was_trimmed_keeps_what_it_has() -> None:
    """A snapshot of the leader overtakes the member's own, whose log is freed in steps."""

    async def scenario() -> None:
        log = Entries((NO_OP, number, 1) for number in range(1, 2 * TRIMMED_AT_ONCE + 3))
        exchange = exchange_with(log=log, raft=RaftConfig(keep_entries_after_snapshot=0))
        trimming = asyncio.ensure_future(exchange._trim(log[-1][1]))
        await asyncio.sleep(0)
        assert not trimming.done()

        entry = (NO_OP, 99_999, 2)
        exchange._follow_on(SnapshotInfo(index=99_999, term=2, size_bytes=0, sha256=b"", path=""))
        await trimming

        assert exchange._log == [entry]

    asyncio.run(scenario())


class Entries(list[Any]):
    """A log in memory."""

    def add(self, *entry: Any) -> None:
        self.append(entry)

    def deleteEntriesTo(self, count: int) -> None:
        del self[:count]


def test_what_a_deposed_leader_alone_had_is_gone_with_the_snapshot_that_overtook_it() -> None:
    """Its log reaches beyond the snapshot, with entries of its own term that nobody committed."""

    async def scenario() -> None:
        cluster = await compacting().start()
        old = await cluster.leader()
        await old.engine.propose(b"seen")
        await cluster.equal()
        others = cluster.others(old)
        for other in others:
            cluster.network.cut(old.member_id, other.member_id)
            cluster.network.cut(other.member_id, old.member_id)
        lost = []
        for number in range(260):
            lost.append(asyncio.ensure_future(old.engine.propose(b"lost %d" % number)))
            await asyncio.sleep(0.0005)
        reach = old.engine.status().last_index
        new = await cluster.leader(others)
        for number in range(170):
            await new.engine.propose(b"%d" % number)
        snapshot_index = new.engine.status().snapshot_index
        assert 0 < snapshot_index < reach, "the snapshot ends inside the old log"

        cluster.network.heal()
        commands = await cluster.equal(20_000)

        assert not [each for each in commands if each.startswith(b"lost")]
        assert old.replica.restored_total == 1
        assert len(commands) == 171
        for each in await asyncio.gather(*lost, return_exceptions=True):
            assert isinstance(each, Exception)
        await cluster.stop()

    run(scenario())


# --- who waits


async def lagging(cluster: SimulatedCluster) -> tuple[Member, Member]:
    """Return the leader and a member that is down and misses more than the log keeps."""
    await cluster.start()
    leader = await cluster.leader()
    member = cluster.others(leader)[0]
    await leader.engine.propose(b"seen")
    await cluster.equal()
    await member.stop()
    for number in range(100 + 20 * 5):
        await leader.engine.propose(b"%d" % number)
    return leader, member


@pytest.mark.parametrize("slow_ms", [0.0, 100.0])
def test_a_read_that_waits_while_a_snapshot_is_installed_is_answered_by_it(slow_ms: float) -> None:
    """The index it waits for comes with the snapshot, and with no entry after it."""

    async def scenario() -> None:
        cluster = compacting()
        leader, member = await lagging(cluster)
        while leader.engine.status().snapshot_index != leader.engine.status().last_index:
            await leader.engine.propose(b"more")
            await asyncio.sleep(0.05)
        cluster.sync_ms_max = slow_ms
        await member.start()
        target = leader.engine.status().commit_index
        read = asyncio.ensure_future(answered(member))
        waits = asyncio.ensure_future(member.engine.wait_applied(target))

        await cluster.until(lambda: member.replica.restored_total > 0, 20_000)
        applied = member.engine.status().applied_index
        assert applied == target, "nothing comes behind the snapshot"
        await asyncio.wait_for(waits, 0.2)
        assert await asyncio.wait_for(read, 0.5) >= target
        await cluster.stop()

    run(scenario())


async def answered(member: Member) -> int:
    """Read as the service does: again, while nobody leads."""
    while True:
        try:
            return await member.engine.read_barrier()
        except NoLeaderError:
            await asyncio.sleep(0.01)


def test_pieces_are_a_snapshot_of_that_leader() -> None:
    """The scenes above are about installed snapshots, not about logs that caught up."""

    async def scenario() -> None:
        cluster = compacting()
        _leader, member = await lagging(cluster)
        pieces: list[say.Message] = []

        def note(_source: str, _target: str, message: say.Message) -> bool:
            if isinstance(message, say.SnapshotPiece):
                pieces.append(message)
            return True

        cluster.network.on_message = note
        await member.start()
        await cluster.equal(20_000)

        assert pieces
        assert member.replica.restored_total == 1
        await cluster.stop()

    run(scenario())
