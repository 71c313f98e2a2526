"""One member's schedule on a real directory: what it keeps, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from coordinator.clock import ManualClock
from coordinator.errors import CompactedError, UnavailableError
from coordinator.model.access import NOBODY
from coordinator.node.backup_schedule import BackupSchedule
from coordinator.node.backups import checked
from coordinator.node.config import BackupConfig, ClusterConfig, Config, MemberAddress
from coordinator.raft.backup import HeldBackup
from coordinator.raft.engine import Backup, BackupFacts
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.comparing.divergence import Difference
from coordinator.service.member import Member
from tests.patience import patient


class Engine(LoopbackEngine):
    """Gives out backups of an empty state."""

    async def open_backup(self, facts: Callable[[], BackupFacts]) -> Backup:
        backup = HeldBackup(None, (), facts(), "1", "00" * 16)
        for _ in backup.prepare():
            pass
        return backup


@asynccontextmanager
async def member(
    directory: Path, command: str | None = None, keep: int = 3
) -> AsyncIterator[tuple[Member, BackupSchedule]]:
    """Run a member that is the cluster; its schedule is not begun."""
    clock = ManualClock()
    alone = MemberAddress("1", client_url="http://127.0.0.1:1", member_host="", member_port=0)
    config = Config(
        cluster=ClusterConfig(members=(alone,)),
        backup=BackupConfig(str(directory), every_ms=1_000, keep=keep, command=command),
    )
    running = Member(config, Engine("1"), clock)
    await running.start()
    try:
        yield running, BackupSchedule(running, config, clock)
    finally:
        await running.stop()


async def until(is_so: Callable[[], object]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(patient(20)):
        while not is_so():  # noqa: ASYNC110 # most of it is about files
            await asyncio.sleep(0.01)


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


async def test_those_of_a_clock_that_was_ahead_are_deleted_first(tmp_path: Path) -> None:
    """What was just made stays, however many are named after a time that has not come."""
    ahead = [f"coordinator-2040010{day}T000000Z-2.backup" for day in (1, 2, 3)]
    before = "coordinator-20200101T000000Z-2.backup"
    for name in (*ahead, before):
        (tmp_path / name).touch()
    async with member(tmp_path) as (running, schedule):
        schedule.begin()
        await until(lambda: len(names(tmp_path)) == 3)
        assert running.backups.scheduled is not None
        made_ms = running.backups.scheduled.succeeded_ms
        await schedule.end()

    assert made_ms == ManualClock().wall_ms()
    assert names(tmp_path) == [before, "coordinator-20231114T221320Z-1.backup", ahead[2]]
    checked(str(tmp_path / "coordinator-20231114T221320Z-1.backup"))


@pytest.mark.parametrize("does", ["rm", "true"])
async def test_it_ends_while_a_command_runs(tmp_path: Path, does: str) -> None:
    """Also one that has moved the backup away: what it left behind is not looked for."""
    directory, command, begun = (tmp_path / each for each in ("backups", "after", "begun"))
    command.write_text(f'#!/bin/sh\n{does} "$1"\n: > "{begun}"\nexec sleep 600\n')
    command.chmod(0o755)
    async with member(directory, str(command)) as (running, schedule):
        schedule.begin()
        await until(begun.exists)
        task = schedule._task
        assert task is not None

        await schedule.end()

        assert task.cancelled()
        assert names(directory) == []
        assert running.backups.scheduled is not None
        assert running.backups.scheduled.succeeded_ms is None


async def test_one_of_data_that_are_wrong_does_not_count(tmp_path: Path) -> None:
    """It pushes out no older one; those that clients read end, and none is begun."""
    directory, command, begun = (tmp_path / each for each in ("backups", "after", "begun"))
    directory.mkdir()
    before = "coordinator-20200101T000000Z-2.backup"
    (directory / before).touch()
    command.write_text(f'#!/bin/sh\n: > "{begun}"\nwhile [ -e "{begun}" ]; do sleep 0.01; done\n')
    command.chmod(0o755)
    async with member(directory, str(command), keep=1) as (running, schedule):
        piece = await running.backups.begin(NOBODY, 5_000)
        schedule.begin()
        await until(begun.exists)
        made = [each for each in names(directory) if each != before]

        running._on_difference(Difference(is_own=True, sentence="member 1 differs"))
        begun.unlink()
        await until(lambda: running.backups.scheduled and running.backups.scheduled.failure)

        with pytest.raises(CompactedError):
            await running.backups.read(piece.backup_id, 0, NOBODY)
        with pytest.raises(UnavailableError):
            await running.backups.begin(NOBODY, 5_000)
        await schedule.end()
        scheduled = running.backups.scheduled

    assert len(made) == 1
    assert names(directory) == [before]
    assert scheduled is not None
    assert (scheduled.succeeded_ms, scheduled.failure) == (None, "member 1 differs")
