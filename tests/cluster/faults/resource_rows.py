"""Rows 19, 20 and 21: too few descriptors, too little memory, too little processor time."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.faults.process_rows import Row, shares
from tests.cluster.faults.storage_rows import starts
from tests.cluster.faults.world import SETTINGS, Plan, Skipped, Tally, World
from tests.cluster.processes import ProcessCluster
from tests.cluster.wire import Wire

_SPARE_BYTES = 24 << 20
_PULSE_S = 0.1
FILES_MAX = 512


class FewFilesCluster(ProcessCluster):
    """Members that may open ``FILES_MAX`` files each."""

    def command(self, member_id: str) -> Sequence[str]:
        return ["prlimit", f"--nofile={FILES_MAX}", *super().command(member_id)]


def _few_files(directory: Path, members: int) -> ProcessCluster:
    if shutil.which("prlimit") is None:
        raise Skipped("needs prlimit: `make faults-tools` installs it on Debian")
    return FewFilesCluster(directory, members, SETTINGS)


async def row_19(plan: Plan, tally: Tally) -> None:
    """file limit, and more idle connections than that"""
    for members, count in shares(plan, 2):
        async with World(plan, tally, members=members, make=_few_files) as world:
            for number in range(count):
                await world.calm()
                victim = await world.leader() if number % 2 == 0 else await world.follower()
                await _few_descriptors(world, victim)
                tally.faults += 1


async def _few_descriptors(world: World, victim: str) -> None:
    """Idle clients take all they can get: they are refused, the log and the members are not."""
    process, port = world.cluster.processes[victim], world.cluster.client_ports[victim]
    idle: list[socket.socket] = []
    at = time.monotonic()
    try:
        for _ in range(2 * FILES_MAX):
            idle.append(socket.create_connection(("127.0.0.1", port), timeout=2))
            idle[-1].setblocking(False)
        await world.calm(4.0, 6.0)
        used = len(os.listdir(f"/proc/{process.pid}/fd")) if process.poll() is None else 0
        world.tally.notes.append(f"{used} of {FILES_MAX} files open, {len(idle)} connections tried")
        world.expect(world.cluster.is_running(victim), f"member {victim} ended: out of files")
        world.tally.measured("writes with one member out of files", await world.flowing(at))
    finally:
        for each in idle:
            each.close()
    if not world.cluster.is_running(victim):
        world.expect(await starts(world, victim), f"member {victim} does not start again")
    await world.ready(victim)


async def row_20(plan: Plan, tally: Tally) -> None:
    """memory limit"""
    for members, count in shares(plan, 2):
        async with World(plan, tally, members=members) as world:
            world.may_trace = True
            for number in range(count):
                await world.calm()
                victim = await world.leader() if number % 2 == 0 else await world.follower()
                await _little_memory(world, victim)
                tally.faults += 1


async def _little_memory(world: World, victim: str) -> None:
    """Let the member have hardly more than it has, and send it large values."""
    process = world.cluster.processes[victim]
    limit = _memory_bytes(process.pid) + _SPARE_BYTES
    resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    wire, codes = Wire(world.cluster.url(victim)), []
    for number in range(40):
        if not world.cluster.is_running(victim):
            break
        body = {"data": world.random.randbytes(400_000).hex()}
        answer = await wire.request(
            "PUT", f"/v1/tree/load/large-{number % 4}?create", body, timeout_s=4
        )
        codes.append(answer.status)
    wire.close()
    ended = "ended" if not world.cluster.is_running(victim) else "went on"
    world.tally.notes.append(f"short of memory: member {victim} {ended}, answered {set(codes)}")
    if world.cluster.is_running(victim):
        # As after an OOM kill: what it was short of must not have left it half broken.
        world.cluster.kill(victim)
    world.expect(await starts(world, victim), f"member {victim} does not start again")
    await world.flowing()


def _memory_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmSize:")[1].split()[0]) * 1024


async def row_21(plan: Plan, tally: Tally) -> None:
    """CPU starvation: stalls of 100 ms by SIGSTOP"""
    for members, count in shares(plan, 2):
        async with World(plan, tally, members=members) as world:
            for _ in range(count):
                end = time.monotonic() + 12.0
                while time.monotonic() < end:
                    victim = world.random.choice(world.cluster.ids)
                    world.cluster.signal(victim, signal.SIGSTOP)
                    try:
                        await asyncio.sleep(_PULSE_S)
                    finally:
                        world.cluster.signal(victim, signal.SIGCONT)
                    await asyncio.sleep(0.03)
                tally.faults += 1
            lost = world.load.sessions_lost
            world.expect(lost == 0, f"E {lost} sessions ended by stalls far below their timeout")


ROWS: dict[int, Row] = {19: row_19, 20: row_20, 21: row_21}
