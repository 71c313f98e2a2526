"""What ``make bench`` runs: locks of every kind, writes and reads against members on loopback.

For each kind of load and each number of clients it prints operations per second, latency
percentiles, and the processor time that all members together spent per operation. The load
generator and the members share the machine, so figures are for comparison within one run.

    python -m bench [--members 1,3,5] [--clients 1,16,64,256] [--seconds 5] [--kinds lock,read]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.wire import Connection
from tests.cluster.processes import ProcessCluster

VALUE = "x" * 100
SLOTS = 1_000
KINDS = "lock,shared,slot,two,write,read"
Operation = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Figures:
    """What one load came to; latencies in ms, processor time in µs per operation."""

    members: int
    kind: str
    clients: int
    operations: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    proposals: float
    syncs: float

    def row(self) -> str:
        return (
            f"| {self.members} | {self.kind} | {self.clients} | {self.per_second:,.0f} "
            f"| {self.p50_ms:.2f} | {self.p99_ms:.2f} | {self.cpu_us:,.0f} "
            f"| {self.proposals:.2f} | {self.syncs:.3f} |"
        )


HEAD = (
    "| members | load | clients | ops/s | p50 ms | p99 ms | members' CPU µs/op "
    "| proposals/op | leader syncs/op |\n|---|---|---|---|---|---|---|---|---|"
)


def cpu_seconds(cluster: ProcessCluster) -> float:
    """Return the processor time all members have used (user and system)."""
    total = 0
    for process in cluster.processes.values():
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


async def engine_counters(url: str) -> dict[str, float]:
    """Return the numbers of /metrics without labels, by name."""
    connection = await Connection.open(url)
    try:
        _, body = await connection.request("GET", "/metrics")
    finally:
        connection.close()
    values: dict[str, float] = {}
    for line in body.decode().splitlines():
        if line and not line.startswith("#") and "{" not in line:
            name, _, value = line.partition(" ")
            values[name] = float(value)
    return values


async def expect(reply: Awaitable[tuple[int, bytes]], *statuses: int) -> bytes:
    status, body = await reply
    if status not in statuses:
        raise RuntimeError(f"expected {statuses}, found {status}: {body[:300]!r}")
    return body


class Worker:
    """One client: a connection, a session, a request number."""

    def __init__(self, number: int, connection: Connection, session_id: str) -> None:
        self._connection = connection
        self._session_id = session_id
        self._client_id = f"bench-{os.getpid()}-{number}-{time.monotonic_ns()}"
        self._requests = 0
        self._name = f"bench-{number}"

    def _headers(self) -> bytes:
        self._requests += 1
        return (
            f"Coordinator-Client-Id: {self._client_id}\r\n"
            f"Coordinator-Request-Number: {self._requests}\r\n"
        ).encode()

    async def prepare(self) -> None:
        path = f"/v1/tree/bench/{self._name}"
        body = {"data": VALUE, "parents": "persistent"}
        await expect(self._connection.request("POST", path, body), 201, 409)

    async def lock(self) -> None:
        """One acquire and one release of this client's own lock: no contention."""
        await self._hold(f"/v1/locks/{self._name}", {})

    async def shared(self) -> None:
        """The same of one lock that all clients share."""
        await self._hold("/v1/locks/bench-shared", {"kind": "shared"})

    async def slot(self) -> None:
        """The same of one semaphore with room for all clients."""
        await self._hold("/v1/locks/bench-slots", {"kind": "slot", "size": SLOTS})

    async def two(self) -> None:
        """The same of two locks of this client's own, taken and released as one."""
        await self._hold("/v1/locks", {"names": [f"{self._name}-a", f"{self._name}-b"]})

    async def _hold(self, path: str, wish: dict[str, Any]) -> None:
        body = {"session_id": self._session_id, "timeout_ms": 10_000, "on_disconnect": "stay"}
        taken = self._connection.request("POST", path, body | wish, self._headers())
        grant = json.loads(await expect(taken, 200))["grant"]
        path = f"/v1/locks/{grant['lock']}/grants/{grant['grant_id']}"
        await expect(self._connection.request("DELETE", path, None, self._headers()), 200)

    async def write(self) -> None:
        path = f"/v1/tree/bench/{self._name}"
        await expect(self._connection.request("PUT", path, {"data": VALUE}, self._headers()), 200)

    async def read(self) -> None:
        await expect(self._connection.request("GET", f"/v1/tree/bench/{self._name}"), 200)

    def close(self) -> None:
        self._connection.close()


async def open_workers(
    cluster: ProcessCluster, count: int, urls: Sequence[str] = ()
) -> list[Worker]:
    """Connect workers to the members in turns, or to those at ``urls``."""
    workers, urls = [], urls or cluster.urls
    for number in range(count):
        url = urls[number % len(urls)]
        connection = await Connection.open(url)
        body = {"timeout_ms": 600_000, "label": f"bench-{number}"}
        reply = await expect(connection.request("POST", "/v1/sessions", body), 201)
        worker = Worker(number, connection, json.loads(reply)["session_id"])
        await worker.prepare()
        workers.append(worker)
    return workers


async def run_load(
    cluster: ProcessCluster, kind: str, workers: list[Worker], seconds: float
) -> Figures:
    """Let every worker repeat its operation for ``seconds``; return what it came to."""
    latencies: list[float] = []
    leader_url = cluster.url(await asyncio.to_thread(cluster.leader))

    async def repeat(operation: Operation, end: float) -> None:
        while True:
            began = time.perf_counter()
            if began >= end:
                return
            await operation()
            latencies.append(time.perf_counter() - began)

    operations: list[Operation] = [getattr(worker, kind) for worker in workers]
    await asyncio.gather(*(repeat(one, time.perf_counter() + 0.5) for one in operations))
    latencies.clear()
    before = await engine_counters(leader_url)
    cpu_before, began = cpu_seconds(cluster), time.perf_counter()
    await asyncio.gather(*(repeat(one, began + seconds) for one in operations))
    elapsed, cpu = time.perf_counter() - began, cpu_seconds(cluster) - cpu_before
    after = await engine_counters(leader_url)
    latencies.sort()
    count = len(latencies)

    def grown(name: str) -> float:
        for full in (f"coordinator_engine_{name}", f"coordinator_engine_{name}_total"):
            if full in after:
                return (after[full] - before.get(full, 0.0)) / count
        return float("nan")

    return Figures(
        members=len(cluster.ids),
        kind=kind,
        clients=len(workers),
        operations=count,
        per_second=count / elapsed,
        p50_ms=latencies[count // 2] * 1000,
        p99_ms=latencies[min(count - 1, count * 99 // 100)] * 1000,
        cpu_us=cpu / count * 1e6,
        proposals=grown("commands_total"),
        syncs=grown("syncs_total"),
    )


async def measure(arguments: argparse.Namespace) -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {arguments.seconds} s each")
    print(HEAD)
    for members in arguments.members:
        with tempfile.TemporaryDirectory(prefix="coordinator-bench-") as directory:
            cluster = ProcessCluster(Path(directory), members)
            try:
                cluster.start()
                cluster.wait_ready()
                for clients in arguments.clients:
                    workers = await open_workers(cluster, clients)
                    for kind in arguments.kinds:
                        figures = await run_load(cluster, kind, workers, arguments.seconds)
                        print(figures.row(), flush=True)
                    for worker in workers:
                        worker.close()
            finally:
                cluster.stop()


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--members", type=numbers, default=[1, 3, 5])
    parser.add_argument("--clients", type=numbers, default=[1, 16, 64, 256])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=KINDS)
    arguments = parser.parse_args()
    if isinstance(arguments.kinds, str):
        arguments.kinds = arguments.kinds.split(",")
    asyncio.run(measure(arguments))


if __name__ == "__main__":
    main()
