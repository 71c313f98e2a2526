"""Rows 19, 20 and 21: too few descriptors, too little memory, too little processor time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.faults.cgroups import limited
from tests.cluster.faults.process_rows import Row
from tests.cluster.faults.storage_rows import last_segment, starts
from tests.cluster.faults.world import SETTINGS, Plan, Skipped, Tally, World
from tests.cluster.processes import ProcessCluster
from tests.cluster.wire import Wire

_SPARE_BYTES = 24 << 20
_PULSE_S = 0.1
FILES_MAX = 512
_LARGE_WRITES = 1_000
"""Of 0.7 MB each: ten times ``proposals_bytes_max``."""
_GROWTH_MAX = 512 << 20
"""Half of what would wait without a bound, counted once."""


class FewFilesCluster(ProcessCluster):
    """Members that may open ``FILES_MAX`` files each."""

    def command(self, member_id: str) -> Sequence[str]:
        return ["prlimit", f"--nofile={FILES_MAX}", *super().command(member_id)]


def _few_files(directory: Path, members: int) -> ProcessCluster:
    if shutil.which("prlimit") is None:
        raise Skipped("needs prlimit: `tests/install faults` installs it on Debian")
    return FewFilesCluster(directory, members, SETTINGS)


async def row_19(plan: Plan, tally: Tally) -> None:
    """file limit, and more idle connections than that"""
    for members, numbers in plan.shares(2):
        async with World(plan, tally, members=members, make=_few_files) as world:
            for number in numbers:
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
        await world.pause(4.0, 6.0)
        refused = sum(_is_refused(each) for each in idle)
        world.expect(refused > 0, f"{len(idle)} idle clients, none refused")
        others = [each for each in world.cluster.ids if each != victim]
        blind = [each for each in others if not _reaches(world, each, victim)]
        world.expect(not blind, f"members {blind} do not reach member {victim} any more")
        idle_s = time.time() - last_segment(world, victim).stat().st_mtime
        world.expect(idle_s < 2.0, f"the log of member {victim} was not written for {idle_s:.1f} s")
        world.tally.notes.append(f"{refused} of {len(idle)} idle clients refused")
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


def _is_refused(idle: socket.socket) -> bool:
    """Whether it was told anything, or hung up on: it has asked for nothing."""
    try:
        idle.recv(1)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def _reaches(world: World, member_id: str, other: str) -> bool:
    status = world.cluster.status(member_id)
    found = {each["member_id"]: each["is_reachable"] for each in (status or {})["members"]}
    return bool(found[other])


async def row_20(plan: Plan, tally: Tally) -> None:
    """memory limit of the process, and of a control group that kills"""
    for members, numbers in plan.shares(2):
        async with World(plan, tally, members=members) as world:
            world.may_trace = True
            for number in numbers:
                await world.calm()
                victim = await world.leader() if number % 2 == 0 else await world.follower()
                await (_little_memory, _killed_for_memory)[number % 2](world, victim)
                tally.faults += 1
            await world.calm()
            await _too_much_waits(world)


async def _little_memory(world: World, victim: str) -> None:
    """Let the member have hardly more than it has, and send it large values."""
    process = world.cluster.processes[victim]
    limit = _memory_bytes(process.pid, "VmSize") + _SPARE_BYTES
    resource.prlimit(process.pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    await _send_large_values(world, victim, "an address space")
    if world.cluster.is_running(victim):
        # As after an OOM kill: what it was short of must not have left it half broken.
        world.cluster.kill(victim)
    await _comes_back(world, victim)


async def _killed_for_memory(world: World, victim: str) -> None:
    """Let the kernel kill it when it wants more than it has."""
    pid = world.cluster.processes[victim].pid
    limit = _memory_bytes(pid, "VmRSS") + (4 << 20)
    try:
        with limited("memory", pid, memory_limit_in_bytes=limit):
            await _send_large_values(world, victim, "a control group")
            if world.cluster.is_running(victim):
                world.cluster.kill(victim)
    except Skipped as reason:
        world.tally.notes.append(f"killed with -9, not for its memory: {reason}")
        world.cluster.kill(victim)
    await _comes_back(world, victim)


async def _send_large_values(world: World, victim: str, of_what: str) -> None:
    wire, codes = Wire(world.cluster.url(victim)), set()
    for number in range(40):
        if not world.cluster.is_running(victim):
            break
        body = {"data": world.random.randbytes(400_000).hex()}
        answer = await wire.request(
            "PUT", f"/v1/tree/load/large-{number % 4}?create", body, timeout_s=4
        )
        codes.add(answer.status)
    wire.close()
    code = world.cluster.processes[victim].poll()
    ended = "went on" if code is None else f"ended with {code}"
    world.tally.notes.append(f"{of_what} too small: member {victim} {ended}, answered {codes}")


async def _too_much_waits(world: World) -> None:
    """Large values from many at once, and no quorum: what may wait is kept, the rest refused."""
    leader, data = await world.leader(), world.random.randbytes(350_000).hex()
    wire, pid = Wire(world.cluster.url(leader)), world.cluster.processes[leader].pid
    others = [each for each in world.cluster.ids if each != leader]
    before = highest = _memory_bytes(pid, "VmRSS")
    for other in others:
        world.cluster.signal(other, signal.SIGSTOP)
    try:
        sending = asyncio.gather(
            *(
                wire.request("PUT", f"/v1/tree/load/much-{number % 4}?create", {"data": data})
                for number in range(_LARGE_WRITES)
            )
        )
        while not sending.done():
            highest = max(highest, _memory_bytes(pid, "VmRSS"))
            await asyncio.sleep(0.02)
    finally:
        for other in others:
            world.cluster.signal(other, signal.SIGCONT)
        wire.close()
    answers = await sending
    refused = sum(answer.code == "Throttled" for answer in answers)
    done, grown = sum(answer.status in (200, 201) for answer in answers), highest - before
    world.tally.notes.append(
        f"{_LARGE_WRITES} writes of 0.7 MB without a quorum: {refused} refused, {done} done; "
        f"member {leader} grew by {grown >> 20} MiB at most"
    )
    world.expect(refused > 0, f"{_LARGE_WRITES} large writes waited, none was refused")
    world.expect(grown < _GROWTH_MAX, f"member {leader} grew by {grown >> 20} MiB")
    world.tally.measured("writes after too much had waited", await world.flowing())


async def _comes_back(world: World, victim: str) -> None:
    world.expect(await starts(world, victim), f"member {victim} does not start again")
    await world.flowing()


def _memory_bytes(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split(f"{name}:")[1].split()[0]) * 1024


async def row_21(plan: Plan, tally: Tally) -> None:
    """CPU starvation: stalls of 100 ms by SIGSTOP, or a fifth of a processor for each member"""
    for members, numbers in plan.shares(2):
        # By turns a size begins with the one or the other, so that each of both is tried somewhere.
        for number in numbers:
            options = plan.load(per_second=plan.per_second if number % 2 == 0 else 30)
            async with World(plan, tally, members=members, options=options) as world:
                await world.calm()
                await (_stalls, _fifths)[number % 2](world)
                tally.faults += 1


async def _stalls(world: World) -> None:
    end = time.monotonic() + 12.0
    while time.monotonic() < end:
        victim = world.random.choice(world.cluster.ids)
        world.cluster.signal(victim, signal.SIGSTOP)
        try:
            await asyncio.sleep(_PULSE_S)
        finally:
            world.cluster.signal(victim, signal.SIGCONT)
        await asyncio.sleep(0.03)
    lost = world.load.sessions_lost
    world.expect(lost == 0, f"E {lost} sessions ended by stalls far below their timeout")


async def _fifths(world: World) -> None:
    """Whether sessions end is not judged: who gets too little to renew them is slow, not wrong."""
    at = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            for process in world.cluster.processes.values():
                limits = {"cpu_cfs_period_us": 100_000, "cpu_cfs_quota_us": 20_000}
                stack.enter_context(limited("cpu", process.pid, **limits))
            await asyncio.sleep(12.0)
            lost = world.load.sessions_lost
            written = sum(r.is_write and r.called_at > at for r in world.load.readings)
    except Skipped as reason:
        world.tally.notes.append(f"no fifth of a processor, stalls instead: {reason}")
        await _stalls(world)
        return
    world.tally.notes.append(f"a fifth of a processor each: {written} writes, {lost} sessions lost")


ROWS: dict[int, Row] = {19: row_19, 20: row_20, 21: row_21}
