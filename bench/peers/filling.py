"""Rows with many znodes: memory, restart of the whole cluster, and writes among a million."""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import time
from typing import Any

from bench.peers.attempts import attempt
from bench.peers.figures import memory_bytes
from bench.peers.rows import BY_NAME, Row
from bench.peers.runner import Loads
from bench.peers.systems import ROOT, System
from bench.peers.work import VALUE

AT_ONCE = 100
FOLDER = 1_000
"""How many znodes one parent has."""
RESTART_S = 60.0
LONG_S = 12.0


def znodes(row: Row, system: System, _run: Any) -> list[dict[str, float]]:
    """Fill, compare the leader's memory with that before, kill all and start all again."""
    leader = system.wait()
    attempt(system, leader, 5.0, is_first=True)
    before = memory_bytes(system.processes[leader].pid)
    began_s = time.monotonic()
    _fill(system, row.workers)
    filled_s = time.monotonic() - began_s
    time.sleep(1.0)
    grown = memory_bytes(system.processes[leader].pid) - before
    return [{"memory_mib": grown / 2**20, "fill_s": filled_s, "restart_s": _restart(system)}]


def million(row: Row, system: System, run: Any) -> list[dict[str, float]]:
    """Compare writes among a thousand znodes with those among a million, snapshots included."""
    attempt(system, system.wait(), 5.0, is_first=True)  # what is written after the restart
    _fill(system, 1_000)
    few = _writes(system, LONG_S / 2)
    _fill(system, row.workers)
    many = _writes(system, LONG_S)
    return [
        {
            "few_per_second": few.get("per_second", math.nan),
            "many_per_second": many.get("per_second", math.nan),
            "few_p99_ms": few.get("p99_ms", math.nan),
            "many_p99_ms": many.get("p99_ms", math.nan),
            "memory_mib": memory_bytes(system.processes[system.wait()].pid) / 2**20,
            "restart_s": _restart(system),
        }
    ]


def _writes(system: System, seconds: float) -> dict[str, float]:
    loads = Loads(BY_NAME["write-64"], ["ours"], {"ours": system})
    try:
        return loads.round("ours", seconds) or {}
    finally:
        loads.close()


def _restart(system: System) -> float:
    """Kill all members, start them, and return the seconds until a write is acknowledged."""
    system.kill()
    began_s = time.monotonic()
    for number in range(3):
        system.launch(number)
    while time.monotonic() - began_s < RESTART_S:
        for number in range(3):
            if attempt(system, number, 1.0):
                return time.monotonic() - began_s
        time.sleep(0.01)
    return math.nan


def _fill(system: System, count: int) -> None:
    """Create ``count`` znodes of 100 B, many in one request, in a process of its own."""
    words = [sys.executable, "-m", "bench.peers.filling", system.name, str(count)]
    done = subprocess.run(
        [*words, *system.endpoints], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])


def _groups(count: int) -> list[tuple[int, range]]:
    """Return the znodes by folder: (number of the folder, numbers of the znodes in it)."""
    return [
        (start // FOLDER, range(start, min(start + AT_ONCE, count)))
        for start in range(0, count, AT_ONCE)
    ]


async def _fill_ours(count: int, endpoints: list[str]) -> None:
    from coordinator import connect
    from coordinator.model.operations import Create

    async with connect(endpoints, timeout=60.0) as client:
        top = f"/f{time.time_ns()}"
        await client.create(top)
        for number in range(math.ceil(count / FOLDER)):
            await client.create(f"{top}/{number}")
        gate = asyncio.Semaphore(8)

        async def create(folder: int, numbers: range) -> None:
            async with gate:
                await client.multi([Create(f"{top}/{folder}/{each}", VALUE) for each in numbers])

        await asyncio.gather(*[create(*each) for each in _groups(count)])


async def _fill_etcd(count: int, endpoints: list[str]) -> None:
    import grpc

    from bench.peers.etcd_client import TXN, pb, unary

    async with grpc.aio.insecure_channel(endpoints[0]) as channel:
        gate = asyncio.Semaphore(8)

        async def put(folder: int, numbers: range) -> None:
            puts = [
                pb.RequestOp(request_put=pb.PutRequest(key=b"f/%d/%d" % (folder, at), value=VALUE))
                for at in numbers
            ]
            async with gate:
                await unary(channel, TXN)(pb.TxnRequest(success=puts))

        await asyncio.gather(*[put(*each) for each in _groups(count)])


async def _fill_zookeeper(count: int, endpoints: list[str]) -> None:
    from kazoo.client import KazooClient

    client = KazooClient(hosts=endpoints[0], timeout=30.0)
    client.start(timeout=30)
    for number in range(math.ceil(count / FOLDER)):
        client.ensure_path(f"/f/{number}")
    for folder, numbers in _groups(count):
        for each in [client.create_async(f"/f/{folder}/{at}", VALUE) for at in numbers]:
            each.get()
    client.stop()


def main() -> None:
    system, count, *endpoints = sys.argv[1:]
    fill = {"ours": _fill_ours, "etcd": _fill_etcd, "zookeeper": _fill_zookeeper}[system]
    asyncio.run(fill(int(count), endpoints))
    print(json.dumps({"filled": int(count)}))


if __name__ == "__main__":
    main()
