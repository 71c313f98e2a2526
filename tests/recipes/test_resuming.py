"""A leadership that the next process of a program takes over, when the last one is dead."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from pathlib import Path

import pytest

from coordinator.client import AsyncClient
from coordinator.errors import BadArgumentsError, LockTimeoutError
from coordinator.recipes import Election
from coordinator.recipes.elections.resuming import LeadershipFile, Left, _boot_id, checked_file
from tests.client.memory_cluster import MemoryCluster, in_memory


def die(election: Election[AsyncClient]) -> None:
    """What the kernel does when a process ends."""
    assert election._queue.file is not None
    election._queue.file.close()


@in_memory
async def test_the_next_process_is_elected_at_once(world: MemoryCluster, tmp_path: Path) -> None:
    """Before others that wait, with a higher epoch; the old session has all its time left."""
    path, network = tmp_path / "leader", world.network()
    async with world.client(network) as old, world.client() as other, world.client() as new:
        before = Election(old, "service", resume=path)
        first = await before.campaign()
        assert not before.was_resumed
        assert path.stat().st_mode & 0o777 == 0o600
        waiting = asyncio.create_task(Election(other, "service").campaign())
        await asyncio.sleep(0.2)
        network.is_cut = True
        die(before)

        after = Election(new, "service", resume=path)
        second = await asyncio.wait_for(after.campaign(), 1)

        assert after.was_resumed
        assert second.epoch > first.epoch
        assert not waiting.done()
        history = [each async for each in new.grants("service", is_election=True)]
        assert [each.fencing_token for each in history if each.granted_zxid] == [
            first.epoch,
            second.epoch,
        ]
        assert history[0].ended_zxid == history[-1].granted_zxid
        network.is_cut = False
        await asyncio.sleep(5)
        assert first.is_lost  # its next heartbeat said so
        assert "deleted" in str(first.loss())
        assert await second.verify() > 0
        await after.resign()
        assert path.read_bytes() == b""
        assert (await waiting).epoch > second.epoch


@in_memory
async def test_nothing_is_taken_from_a_process_that_lives(
    world: MemoryCluster, tmp_path: Path
) -> None:
    """One that is paused keeps the kernel's lock; it is waited for as for anybody."""
    path, network = tmp_path / "leader", world.network()
    async with world.client(network, session_timeout=4) as old, world.client() as new:
        first = await Election(old, "service", resume=path).campaign()
        after = Election(new, "service", resume=path)
        with pytest.raises(LockTimeoutError):
            await after.campaign(timeout=2)
        assert await first.verify() > 0
        network.is_cut = True
        second = await after.campaign(timeout=10)
        assert first.is_lost
        assert second.epoch > first.epoch
        assert not after.was_resumed


@in_memory
async def test_one_that_takes_its_time_to_die_is_waited_for(
    world: MemoryCluster, tmp_path: Path
) -> None:
    """Its last process has to end, and then its lease is not waited for."""
    path, network = tmp_path / "leader", world.network()
    async with world.client(network, session_timeout=60) as old, world.client() as new:
        before = Election(old, "service", resume=path)
        first = await before.campaign()
        network.is_cut = True
        after = Election(new, "service", resume=path)
        campaign = asyncio.create_task(after.campaign())
        await asyncio.sleep(10)
        assert not campaign.done()
        die(before)
        assert (await asyncio.wait_for(campaign, 1)).epoch > first.epoch
        assert after.was_resumed


@in_memory
async def test_what_proves_nothing_is_passed_over(world: MemoryCluster, tmp_path: Path) -> None:
    """Another boot, another election, an epoch that is over, half a file, nonsense."""
    path = tmp_path / "leader"
    path.touch()
    found = path.stat()
    async with world.client() as old, world.client() as new:
        held = await Election(old, "service").campaign()
        good = {"election": "service", "epoch": held.epoch, "session_id": held.session_id}
        good |= {"boot_id": _boot_id(), "file": [found.st_dev, found.st_ino]}
        texts = [
            json.dumps({**good, "session_id": "of another cluster"}),
            json.dumps({**good, "file": [found.st_dev, found.st_ino + 1]}),
            json.dumps({key: good[key] for key in good if key != "file"}),
            json.dumps({**good, "boot_id": "another"}),
            json.dumps({**good, "election": "other"}),
            json.dumps({**good, "epoch": held.epoch - 1}),
            json.dumps(good)[:-5],
            "[]",
            '"x"',
            "\x00",
            json.dumps({**good, "epoch": "x"}),
        ]
        for text in texts:
            path.write_text(text)
            path.chmod(0o600)
            with pytest.raises(LockTimeoutError):
                await Election(new, "service", resume=path).campaign(timeout=1)
        assert await held.verify() > 0
        path.write_text(json.dumps(good))
        assert await Election(new, "service", resume=path).campaign(timeout=1)


@in_memory
async def test_a_copy_proves_nothing(world: MemoryCluster, tmp_path: Path) -> None:
    """Nobody keeps the lock of a copy; the one who leads keeps that of its own file."""
    path, copy = tmp_path / "leader", tmp_path / "copy"
    async with world.client() as old, world.client() as new:
        held = await Election(old, "service", resume=path).campaign()
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o600)
        with pytest.raises(LockTimeoutError):
            await Election(new, "service", resume=copy).campaign(timeout=1)
        assert await held.verify() > 0


@in_memory
async def test_one_that_is_cancelled_as_it_takes_over_leaves_nothing(
    world: MemoryCluster, tmp_path: Path
) -> None:
    """The grant is there, the answer to the take-over is not; then its caller goes."""
    path, network = tmp_path / "leader", world.network()
    async with world.client() as old, world.client(network) as new, world.client() as other:
        before = Election(old, "service", resume=path)
        first = await before.campaign()
        die(before)
        network.loses_reply_of = lambda request: "/v1/multi" in request.target
        campaign = asyncio.create_task(Election(new, "service", resume=path).campaign())
        observer = Election(other, "service")
        async with observer.observe() as seen:
            async for each in seen:
                if each.elected is not None and each.elected.epoch != first.epoch:
                    break
        await asyncio.sleep(0.05)
        assert not campaign.done()
        campaign.cancel()
        with pytest.raises(asyncio.CancelledError):
            await campaign
        assert await observer.campaign(timeout=2)


@in_memory
async def test_what_cannot_be_written_is_no_leadership(
    world: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: its caller has an error, and others are elected."""

    def full(*_arguments: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("coordinator.recipes.elections.resuming.os.pwrite", full)
    async with world.client() as client, world.client() as other:
        with pytest.raises(BadArgumentsError, match="No space"):
            await Election(client, "service", resume=tmp_path / "leader").campaign()
        assert await Election(other, "service").campaign(timeout=2)


def test_the_file_is_its_users_alone(tmp_path: Path) -> None:
    """One that others can read is refused, as is what is no file."""
    path = tmp_path / "leader"
    path.write_text("")
    path.chmod(0o644)
    with pytest.raises(BadArgumentsError, match="0644"):
        LeadershipFile(path).take()
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    for wrong in (link, tmp_path / "no" / "leader", Path(os.devnull)):
        with pytest.raises(BadArgumentsError, match="resume"):
            LeadershipFile(wrong).take()
    file = LeadershipFile(path)
    assert file.take() is None
    assert file.write(Left("service", epoch=7, session_id="s"))
    other = LeadershipFile(checked_file(str(path)))
    assert other.take() is None
    assert not other.write(Left("service", epoch=8, session_id="s"))
    file.close()
    assert other.take() == Left("service", epoch=7, session_id="s")
    assert other.write(Left("service", epoch=9, session_id="s"))
    other.give_up(8)  # known late: a later leadership is in it
    assert other.take() == Left("service", epoch=9, session_id="s")
    other.clear()
    assert other.take() is None
