"""What TLS and access rights cost: two clusters of three members side by side, in turns.

One talks in the clear and checks no rights; the other has TLS between members and to its clients,
and a client with a token whose role has just what the work needs. Both run at the same time, and
each round asks one after the other, so that the machine's weather is the same for both. What counts
is the ratio: the rate and the members' processor time of the secured cluster in terms of the plain.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.client import AsyncClient, Connector, connect
from coordinator.errors import CoordinatorError
from recipes import Lock

PORTS = {"plain": (17_071, 17_171), "secured": (18_071, 18_171)}
READY_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass
class Cluster:
    """Three members on this machine, and how to reach them."""

    name: str
    directory: Path
    program: subprocess.Popen[bytes]
    rates: dict[str, list[float]] = field(default_factory=dict)
    costs: dict[str, list[float]] = field(default_factory=dict)

    @property
    def is_secured(self) -> bool:
        return self.name == "secured"

    @property
    def ca_file(self) -> str | None:
        return str(self.directory / "dev-3" / "certs" / "ca.pem") if self.is_secured else None

    def connector(self, token_file: Path | None = None) -> Connector:
        """Return what connects to its members."""
        scheme = "https" if self.is_secured else "http"
        port = PORTS[self.name][0]
        urls = [f"{scheme}://127.0.0.1:{port + each}" for each in range(3)]
        shown = None if token_file is None else str(token_file)
        return connect(",".join(urls), ca_file=self.ca_file, token_file=shown)

    def processor_s(self) -> float:
        """Return the processor time of the members so far."""
        return sum(_processor_s(pid) for pid in _below(self.program.pid))


def _below(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(each) for each in listed]


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def started(name: str, directory: Path) -> Cluster:
    """Start one of the two."""
    client_port, member_port = PORTS[name]
    command = [
        sys.executable, "-m", "coordinator", "dev", "--members", "3", "--data", str(directory),
        "--client-port", str(client_port), "--member-port", str(member_port),
    ]  # fmt: skip
    if name == "secured":
        command.append("--tls")
    log = (directory / "dev.log").open("wb")
    return Cluster(name, directory, subprocess.Popen(command, stdout=log, stderr=log))


def with_rights(cluster: Cluster) -> tuple[Path, Path]:
    """Turn rights on as an operator would; return the files of two tokens, his and a worker's."""
    admin, worker = cluster.directory / "admin.token", cluster.directory / "worker.token"
    environment = {
        **os.environ,
        "COORDINATOR_ENDPOINTS": f"https://127.0.0.1:{PORTS[cluster.name][0]}",
        "COORDINATOR_CA_FILE": str(cluster.ca_file),
    }
    for arguments in (
        ["init", "--out", str(admin)],
        ["role", "put", "worker", "read,write:/work", "lock:/locks/own*"],
        ["identity", "put", "worker", "--role", "worker"],
        ["token", "add", "worker", "--out", str(worker)],
    ):
        command = [sys.executable, "-m", "coordinator", "access", *arguments]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        environment["COORDINATOR_TOKEN_FILE"] = str(admin)
    return admin, worker


async def prepared(cluster: Cluster) -> AsyncClient:
    """Wait until it serves; with rights, return the client of a worker with its own role."""
    give_up = time.monotonic() + READY_S
    while True:
        try:
            async with cluster.connector() as client:
                await client.exists("/")
            break
        except (CoordinatorError, OSError):
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.2)
    if not cluster.is_secured:
        client = await cluster.connector()
        await client.create("/work")
        return client
    admin, worker = await asyncio.to_thread(with_rights, cluster)
    async with cluster.connector(admin) as operator:
        await operator.create("/work")
    return await cluster.connector(worker)


async def writes(client: AsyncClient, workers: int, seconds: float) -> int:
    """Set the data of one znode each, as often as it goes."""

    async def work(number: int) -> None:
        path = f"/work/w{number}"
        if await client.exists(path) is None:
            await client.create(path)
        while time.monotonic() < end:
            await client.set(path, b"x" * 100)
            done[number] += 1

    done, end = [0] * workers, time.monotonic() + seconds
    await asyncio.gather(*[work(number) for number in range(workers)])
    return sum(done)


async def locks(client: AsyncClient, workers: int, seconds: float) -> int:
    """Take a lock of one's own and release it."""

    async def work(number: int) -> None:
        while time.monotonic() < end:
            async with Lock(client, f"own-{number}"):
                done[number] += 1

    done, end = [0] * workers, time.monotonic() + seconds
    await asyncio.gather(*[work(number) for number in range(workers)])
    return sum(done)


Work = Callable[[AsyncClient, int, float], Awaitable[int]]
ROWS: tuple[tuple[str, Work, int], ...] = (
    ("writes of 100 B, 1", writes, 1), ("writes of 100 B, 64", writes, 64),
    ("lock cycles, 1", locks, 1), ("lock cycles, 64", locks, 64),
)  # fmt: skip


async def measure(rounds: int, seconds: float) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as top:
        clusters = []
        try:
            for name in PORTS:
                directory = Path(top) / name
                directory.mkdir(mode=0o700)
                clusters.append(started(name, directory))
            clients = [await prepared(each) for each in clusters]
            for number in range(rounds + 1):  # the first one warms up
                for row, work, workers in ROWS:
                    for cluster, client in zip(clusters, clients, strict=True):
                        before, began = cluster.processor_s(), time.monotonic()
                        count = await work(client, workers, seconds)
                        took, spent = time.monotonic() - began, cluster.processor_s() - before
                        if number:
                            cluster.rates.setdefault(row, []).append(count / took)
                            cluster.costs.setdefault(row, []).append(spent / count)
            for client in clients:
                await client.close()
        finally:
            for cluster in clusters:
                cluster.program.send_signal(signal.SIGTERM)
            for cluster in clusters:
                cluster.program.wait(30)
    plain, secured = clusters
    print("| work | plain, a second | TLS and rights | kept | members' time |")
    print("|---|---|---|---|---|")
    for row, _, _ in ROWS:
        rate, other = (statistics.median(each.rates[row]) for each in (plain, secured))
        cost, dear = (statistics.median(each.costs[row]) for each in (plain, secured))
        print(f"| {row} | {rate:,.0f} | {other:,.0f} | {other / rate:.0%} | {dear / cost:.2f} |")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.secured", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each row in a round")
    wanted = parser.parse_args()
    asyncio.run(measure(wanted.rounds, wanted.seconds))


if __name__ == "__main__":
    main()
