"""A slow disk (row 15 of the faults): the loop does not stand still, and another member leads."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from coordinator.errors import LeaderChangedError
from coordinator.raft.blocking import WorkerThread, run_in_thread
from coordinator.raft.network import messages as say
from coordinator.raft.network.messages import Message
from coordinator.raft.storage.disk import DiskFile, OsDisk, OsFile
from coordinator.raft.storage.journal import Journal
from coordinator.raft.storage.sync import LogSync
from tests.patience import patient
from tests.raft.simulated_cluster import Member, SimulatedCluster
from tests.raft.simulated_loop import run


class StuckFile(OsFile):
    """A file whose syncs wait for ``gate``."""

    gate: threading.Event
    descriptor = None

    def sync(self) -> None:
        assert self.gate.wait(10)
        super().sync()


class StuckDisk(OsDisk):
    """A disk that takes as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def create(self, path: str) -> DiskFile:
        return self._stuck(super().create(path))

    def open_append(self, path: str) -> DiskFile:
        return self._stuck(super().open_append(path))

    def _stuck(self, file: DiskFile) -> DiskFile:
        assert isinstance(file, OsFile)
        file.__class__ = StuckFile
        assert isinstance(file, StuckFile)
        file.gate = self.gate
        return file

    def sync_directory(self, path: str) -> None:
        assert self.gate.wait(10)
        super().sync_directory(path)


@pytest.mark.parametrize("what", ["entry", "term"])
def test_the_loop_never_waits_long_for_a_sync(what: str, tmp_path: Path) -> None:
    """Neither for the log nor for the term; what rests on it leaves when it is done, not before."""

    async def scenario() -> None:
        disk = StuckDisk()
        log = Journal(str(tmp_path / "log"), disk)
        sent: list[Message] = []
        failures: list[BaseException] = []
        is_durable = asyncio.Event()
        log_sync = LogSync(
            log,
            send=lambda _member_id, message: sent.append(message) is None,
            start_blocking=WorkerThread("sync"),
            run_blocking=run_in_thread,
            run_reserving=run_in_thread,
            in_place_seconds_max=0.005,
            slow_seconds=0.2,
            on_durable=is_durable.set,
            on_failure=failures.append,
        )
        disk.gate.clear()
        if what == "term":
            log.setCurrentTerm(1, "2")
        else:
            log.add(b"a", 1, 0)
        log_sync.hold("2", say.VoteGrant(1))

        began = time.monotonic()
        log_sync.sync()
        waited = time.monotonic() - began
        await asyncio.sleep(0.3)
        log_sync.sync()

        assert waited < patient(0.1)
        assert log_sync.is_slow
        assert not sent
        disk.gate.set()
        async with asyncio.timeout(5):
            await is_durable.wait()
        log_sync.sync()
        assert sent == [say.VoteGrant(1)]
        assert log_sync.is_slow, "it is remembered for a while"
        assert not failures
        await log_sync.stop()
        log._destroy()

    asyncio.run(scenario())


def test_what_is_held_never_leaves_after_a_failure_and_the_file_stays_open(tmp_path: Path) -> None:
    """A sync under way when the member fails is waited for by its stop; it releases nothing."""

    async def scenario() -> None:
        disk = StuckDisk()
        log = Journal(str(tmp_path / "log"), disk)
        sent: list[Message] = []
        log_sync = LogSync(
            log,
            send=lambda _member_id, message: sent.append(message) is None,
            start_blocking=WorkerThread("sync"),
            run_blocking=run_in_thread,
            run_reserving=run_in_thread,
            in_place_seconds_max=0.005,
            slow_seconds=0.2,
            on_durable=lambda: None,
            on_failure=lambda _error: None,
        )
        disk.gate.clear()
        log.add(b"a", 1, 0)
        log_sync.hold("2", say.Appended(term=1, epoch=0, next_index=2, is_success=True))
        log_sync.sync()

        log_sync.drop()
        asyncio.get_running_loop().call_later(0.2, disk.gate.set)
        await log_sync.stop()
        log._destroy()

        assert disk.gate.is_set()
        assert not sent

    asyncio.run(scenario())


async def _write(leader: Member, number: int) -> None:
    while leader.is_leading:
        try:
            await leader.engine.propose(b"%d" % number)
            await asyncio.sleep(0.01)  # a hundred in a second will do
        except Exception:
            return


async def _a_cluster(count: int = 3) -> SimulatedCluster:
    cluster = SimulatedCluster(count)
    cluster.sync_ms_max = 1.0  # elsewhere than on the loop
    return await cluster.start()


@pytest.mark.parametrize("sync_ms", [3_000.0, 10_000.0])
@pytest.mark.parametrize("count", [3, 5])
def test_a_leader_whose_disk_becomes_slow_hands_over(count: int, sync_ms: float) -> None:
    """To one whose disk has what this one's keeps waiting, within about a second."""

    async def scenario() -> None:
        cluster = await _a_cluster(count)
        leader = await cluster.leader()
        await leader.engine.propose(b"before")
        term = leader.term
        leader.sync_ms = sync_ms

        with pytest.raises(LeaderChangedError):
            await leader.engine.propose(b"unknown")

        second = await cluster.leader(cluster.others(leader), within_ms=1_000)
        assert second.term == term + 1
        assert leader.engine.metrics()["is_disk_slow"] == 1.0
        async with asyncio.timeout(1):
            await second.engine.propose(b"after")
        leader.sync_ms = None
        assert await cluster.equal(within_ms=60_000) == [b"before", b"unknown", b"after"]
        await cluster.stop()

    run(scenario())


@pytest.mark.check
def test_a_member_with_a_slow_disk_does_not_take_the_leadership_back() -> None:
    """The leader stops and offers it, another one dies and leaves it: a better one leads."""

    async def scenario() -> None:
        cluster = await _a_cluster(5)
        slow = await cluster.leader()
        slow.sync_ms = 2_000.0
        with pytest.raises(LeaderChangedError):
            await slow.engine.propose(b"unknown")

        for kind in ("stops", "dies"):
            leader = await cluster.leader(cluster.others(slow))
            writing = asyncio.ensure_future(_write(leader, 1))
            await asyncio.sleep(5)
            if kind == "stops":
                await leader.stop()
            else:
                await leader.kill()
            await writing
            await asyncio.sleep(1)
            assert not slow.is_leading
            assert (await cluster.leader()) is not slow
            await leader.start()

        assert {term for role, term in slow.roles if role.value == "leader"} == {1}
        slow.sync_ms = None
        await cluster.equal(within_ms=60_000)
        await cluster.stop()

    run(scenario())


def test_where_all_disks_are_slow_the_leader_stays() -> None:
    """Moving would heal nothing: no follower has anything that the leader has not."""

    async def scenario() -> None:
        cluster = await _a_cluster()
        leader = await cluster.leader()
        for member in cluster.members:
            member.sync_ms = 2_000.0

        for number in range(10):
            await leader.engine.propose(b"%d" % number)

        assert leader.is_leading
        assert leader.term == 1
        await cluster.stop()

    run(scenario())


def test_a_slow_follower_holds_nothing_up() -> None:
    """A quorum without it is as quick as ever."""

    async def scenario() -> None:
        cluster = await _a_cluster()
        leader = await cluster.leader()
        cluster.others(leader)[0].sync_ms = 10_000.0
        began = asyncio.get_running_loop().time()

        for number in range(100):
            await leader.engine.propose(b"%d" % number)

        assert asyncio.get_running_loop().time() - began < 1.0
        assert leader.is_leading
        await cluster.stop()

    run(scenario())
