"""A backup in a cluster: of everything acknowledged before it, after one entry of the log."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from coordinator.errors import CoordinatorError
from coordinator.raft.backup import replay
from coordinator.raft.engine import BackupFacts
from coordinator.raft.storage.backup_file import BackupFile
from coordinator.raft.storage.disk import write_file
from tests.raft.simulated_cluster import ListReplica, Member, settled
from tests.raft.simulated_loop import run
from tests.raft.storage.simulated_disk import SimulatedDisk


def facts_of(member: Member) -> BackupFacts:
    """Say how many commands the state has, instead of a zxid."""
    count = len(member.replica.commands)
    return BackupFacts(backup_id="1", cluster="prod", release="1", level=1, time="", zxid=count)


async def backed_up(member: Member) -> tuple[int, list[bytes]]:
    """Return how many commands a backup says it has, and those that it has."""
    backup = await member.engine.open_backup(lambda: facts_of(member))
    data = b""
    while piece := backup.read(len(data), 700):
        data += piece
    backup.close()
    disk = SimulatedDisk(1)
    disk.make_directory("backups")
    write_file(disk, "backups/one", data)
    file = BackupFile(disk, "backups/one")
    file.check()
    replica = ListReplica()
    replay(file, replica)
    file.close()
    return file.header.zxid, replica.commands


@pytest.mark.parametrize("snapshot_every_entries", [4, 1_000_000])
def test_what_was_acknowledged_before_is_in_it(snapshot_every_entries: int) -> None:
    """On each member, also a follower that has not heard of the commit yet."""

    async def scenario() -> None:
        cluster, leader = await settled(3, snapshot_every_entries=snapshot_every_entries)
        for number in range(12):
            command = b"acknowledged %d" % number
            await leader.engine.propose(command)
            for member in (*cluster.others(leader), leader):
                _, commands = await backed_up(member)
                assert command in commands, member.member_id
        await cluster.stop()

    run(scenario())


def test_it_is_the_state_after_a_whole_entry() -> None:
    """A long entry is applied in parts; while one is, a backup waits for its end."""

    async def scenario() -> None:
        cluster, leader = await settled(3, append_batch_bytes=4_000)
        follower = cluster.others(leader)[0]
        found: list[tuple[int, int]] = []

        async def back_up() -> None:
            with suppress(CoordinatorError):
                said, commands = await backed_up(follower)
                found.append((said, len(commands)))

        for _ in range(3):
            many = [leader.engine.propose(b"of many %d" % each) for each in range(1_150)]
            backups: list[asyncio.Task[None]] = []

            def begin(command: bytes, backups: list[asyncio.Task[None]] = backups) -> None:
                if command.endswith(b"7") and len(backups) < 40:
                    backups.append(asyncio.create_task(back_up()))

            follower.replica.on_apply = begin
            await asyncio.gather(*many)
            await cluster.equal()
            await asyncio.gather(*backups)
        assert found
        assert [said for said, _ in found] == [count for _, count in found]
        await cluster.stop()

    run(scenario())
