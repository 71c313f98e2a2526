"""Rows 4 and 12: power cuts and full disks, on file systems of the test's own."""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import subprocess
import time
from pathlib import Path

from tests.cluster.faults.network import require_namespaces
from tests.cluster.faults.process_rows import Row, shares
from tests.cluster.faults.storage_rows import starts
from tests.cluster.faults.world import SETTINGS, Plan, Skipped, Tally, World
from tests.cluster.processes import ProcessCluster

_EXT4_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32)."""
_WITHOUT_FLUSHING_THE_LOG = 2
_IMAGE_BYTES = 96 << 20
_SMALL_BYTES = 24 << 20


class DiskCluster(ProcessCluster):
    """Each member on an ext4 of its own in a loop mount; gone with our mount namespace."""

    def __init__(self, directory: Path, members: int) -> None:
        require_namespaces("mkfs.ext4", "mount", "umount")
        directory.mkdir(parents=True, exist_ok=True)
        self._root = directory
        self._mounted: set[str] = set()
        super().__init__(directory, members, SETTINGS)
        try:
            for each in self.ids:
                image = self._image(each)
                with image.open("wb") as file:
                    file.truncate(_IMAGE_BYTES)
                _run("mkfs.ext4", "-q", "-F", str(image))
                self.disk(each).mkdir()
                self.mount(each)
        except BaseException:
            self.stop()
            raise

    def disk(self, member_id: str) -> Path:
        return self._root / f"disk-{member_id}"

    def data_dir(self, member_id: str) -> Path:
        return self.disk(member_id) / "data"

    def mount(self, member_id: str) -> None:
        _run("mount", "-o", "loop", str(self._image(member_id)), str(self.disk(member_id)))
        self._mounted.add(member_id)

    def unmount(self, member_id: str) -> None:
        _run("umount", str(self.disk(member_id)))
        self._mounted.discard(member_id)

    def cut_power(self, *member_ids: str) -> None:
        """Lose at once whatever was not synced, then the processes; the disks come back mounted."""
        for each in member_ids:
            descriptor = os.open(self.disk(each), os.O_RDONLY)
            try:
                fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
            except OSError as error:
                raise Skipped(f"the ext4 shutdown ioctl does not work here: {error}") from error
            finally:
                os.close(descriptor)
        self.kill(*member_ids)
        for each in member_ids:
            self.unmount(each)
            self.mount(each)

    def stop(self) -> None:
        super().stop()
        for each in tuple(self._mounted):
            self.unmount(each)

    def _image(self, member_id: str) -> Path:
        return self._root / f"image-{member_id}"


class SmallDiskCluster(ProcessCluster):
    """Each member on a small tmpfs of its own."""

    def __init__(self, directory: Path, members: int) -> None:
        require_namespaces("mount", "umount")
        self._root = directory
        self._mounted: set[str] = set()
        super().__init__(directory, members, SETTINGS)
        for each in self.ids:
            self.disk(each).mkdir()
            _run("mount", "-t", "tmpfs", "-o", f"size={_SMALL_BYTES}", "tmpfs",
                 str(self.disk(each)))  # fmt: skip
            self._mounted.add(each)

    def disk(self, member_id: str) -> Path:
        return self._root / f"disk-{member_id}"

    def data_dir(self, member_id: str) -> Path:
        return self.disk(member_id) / "data"

    def stop(self) -> None:
        super().stop()
        for each in tuple(self._mounted):
            _run("umount", str(self.disk(each)))
            self._mounted.discard(each)


async def row_4(plan: Plan, tally: Tally) -> None:
    """power cut of one, a majority, all"""
    for members, count in shares(plan, 10):
        async with World(plan, tally, members=members, make=DiskCluster) as world:
            cluster = world.cluster
            assert isinstance(cluster, DiskCluster)
            # A disk that is gone is an error to the member that still runs for a moment.
            world.may_trace = True
            for number in range(count):
                await world.calm()
                size = (1, members // 2 + 1, members)[number % 3]
                victims = world.random.sample(cluster.ids, size)
                at = time.monotonic()
                await asyncio.to_thread(cluster.cut_power, *victims)
                for victim in victims:
                    cluster.start(victim)
                await world.ready(*victims)
                tally.measured("serving again", await world.flowing(at))
                tally.faults += 1


async def row_12(plan: Plan, tally: Tally) -> None:
    """disk full, then room"""
    for members, count in shares(plan, 3):
        async with World(plan, tally, members=members, make=SmallDiskCluster) as world:
            for number in range(count):
                await world.calm()
                victim = await world.leader() if number % 2 == 0 else await world.follower()
                await _fill(world, victim)
                tally.faults += 1


async def _fill(world: World, victim: str) -> None:
    cluster = world.cluster
    assert isinstance(cluster, SmallDiskCluster)
    ballast, at = cluster.disk(victim) / "ballast", time.monotonic()
    with ballast.open("wb") as file:
        try:
            while True:
                file.write(bytes(65_536))
                file.flush()
        except OSError:
            pass
    await world.calm(3.0, 5.0)
    is_running = cluster.is_running(victim)
    status, _ = await asyncio.to_thread(cluster.get, victim, "/v1/tree/load?stale")
    await world.flowing(at)
    ballast.unlink()
    if is_running:
        world.tally.notes.append(f"full: member {victim} runs on, stale reads answer {status}")
        await world.ready(victim)
        return
    log = cluster.log_path(victim).read_text(errors="replace")
    world.expect("No space left" in log, "a full disk is not named in the log")
    world.may_trace = world.may_trace or "Traceback" in log
    world.tally.notes.append(f"full: member {victim} stopped with a clear error, the others go on")
    world.expect(await starts(world, victim), "D a disk that was full is refused when it has room")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skipped(f"`{' '.join(command)}` does not work here: {done.stderr.strip()}")


ROWS: dict[int, Row] = {4: row_4, 12: row_12}
