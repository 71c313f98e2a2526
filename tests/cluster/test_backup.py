"""A backup of a cluster under load, from a follower, and the new cluster that is made of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator import connect
from coordinator.client import AsyncClient
from coordinator.model.queue_order import sequence_of
from coordinator.model.znodes import Znode
from coordinator.raft.backup import replay
from coordinator.raft.storage.backup_file import BackupFile
from coordinator.raft.storage.disk import OsDisk
from coordinator.recipes import Lock
from coordinator.service.base.replica import MachineReplica
from coordinator.state.machine import StateMachine
from tests.cluster.conftest import MakeCluster
from tests.cluster.load import ROOT, Load
from tests.cluster.processes import ProcessCluster, member_environment
from tests.cluster.verdicts import judge, judge_end

pytestmark = pytest.mark.check

ARGUMENTS = ("--by", "ann", "--reason", "a flood")


async def coordinator(*arguments: str) -> str:
    """Run the command in a process of its own; return what it prints."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "coordinator", *arguments],
        capture_output=True, text=True, timeout=120, env=member_environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def state_in(path: Path) -> tuple[int, StateMachine]:
    """Return the zxid that the header of a backup says, and the state that it holds."""
    file = BackupFile(OsDisk(), str(path))
    machine = StateMachine()
    replay(file, MachineReplica(machine))
    file.close()
    return file.header.zxid, machine


async def whole(client: AsyncClient, top: str) -> list[Znode]:
    """Return all znodes at and below ``top``."""
    page = await client.subtree(top)
    found = [*page.znodes]
    while page.next is not None:
        page = await client.subtree(top, after=page.next)
        found += page.znodes
    return found


@pytest.mark.timeout(300)
async def test_a_backup_under_load_becomes_a_new_cluster(
    make_cluster: MakeCluster, tmp_path: Path
) -> None:
    """No call fails for it; it is the state at one zxid; no number comes again; and no member of
    the old cluster is heard in the new one."""
    old = make_cluster(raft={"snapshot_every_entries": 100})
    path = tmp_path / "backup"
    load = Load(old.urls, seed=30)
    await load.start()
    follower = next(each for each in old.ids if each != old.leader())
    async with connect(old.urls, session_timeout=10, timeout=15) as client:
        await client.create("/kept", b"as it was")
        for number in range(50):
            await client.create(f"/kept/{number}", bytes([number]) * 20_000)
        await client.create("/items")
        await client.create("/items/i-", mode="persistent_sequential")
        before = await Lock(client, "kept", timeout=20).acquire()
        await asyncio.sleep(1)

        await coordinator("backup", str(path), "--endpoints", old.url(follower))

        after = await client.create("/items/i-", mode="persistent_sequential")
        await before.release()
        later = await Lock(client, "kept", timeout=20).acquire()
        await asyncio.sleep(1)
        await load.stop()
        assert judge(load) + await judge_end(old, load) == []
        assert old.tracebacks() == []
        zxid, machine = state_in(path)
        assert machine.zxid == zxid > 0
        # Whatever the old cluster still has unchanged since that zxid is in it, as it is; and
        # nothing that was written afterwards.
        compared = 0
        for znode in (*await whole(client, ROOT), *await whole(client, "/kept")):
            found = machine.get(znode.path)
            if znode.stat.mzxid <= zxid:
                assert found == (znode.data, found[1] if found else None), znode.path
                compared += 1
            assert found is None or found[1].mzxid <= zxid
        assert compared > 50
    newest_zxid = (old.status(old.leader()) or {})["zxid"]

    new = ProcessCluster(tmp_path / "new", 3)
    try:
        config = str(new.directory / "member-1.toml")
        said = await coordinator("restore", str(path), "--config", config, *ARGUMENTS)
        assert "move the data directories of the other members (2, 3) away" in said
        new.start()
        await asyncio.to_thread(new.wait_ready, deadline_s=60)
        async with connect(new.urls, session_timeout=10, timeout=15) as client:
            for number in range(50):
                assert (await client.get(f"/kept/{number}")).data == bytes([number]) * 20_000
            kept = {each.path: each.data for each in await whole(client, ROOT)}
            assert kept == {
                path: found[0]
                for path in kept
                if (found := machine.get(path)) is not None
            }
            item = await client.create("/items/i-", mode="persistent_sequential")
            assert _number(item.path) > _number(after.path)
            grant = await Lock(client, "kept", timeout=20).acquire()
            assert grant.fencing_token > max(later.fencing_token, newest_zxid)
            await grant.release()
        await _an_old_member_is_refused(old, new)
    finally:
        new.stop()


def _number(path: str) -> int:
    number = sequence_of(path)
    assert number is not None
    return number


async def _an_old_member_is_refused(old: ProcessCluster, new: ProcessCluster) -> None:
    """Data of the old cluster in the place of a member of the new one: it is not heard."""
    old.stop()
    new.kill("3")
    new.wipe("3")
    old.data_dir("3").rename(new.data_dir("3"))
    new.start("3")

    for _ in range(400):
        found = " ".join(
            each["refusal"] for each in (new.status(new.leader()) or {"members": []})["members"]
        )
        if "cluster" in found:
            break
        await asyncio.sleep(0.05)
    else:
        pytest.fail(f"member 3 was not refused\n{new.logs()}")
    status = new.status("3")
    assert status is None or not status["is_ready"]
    assert (new.status("1") or {})["leader_id"] in ("1", "2")
