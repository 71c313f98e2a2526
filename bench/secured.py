"""What TLS and access rights cost: clusters of three members side by side, in turns.

*plain* talks in the clear and checks no rights; *secured* has TLS between members and to its
clients, and a client with a token whose role has just what the work needs; *tls* and *rights* have
one of the two. All run at the same time, and each round asks one after the other, in another order
each time, so that the machine's weather is the same for all. What counts is the ratio within a
round: the rate of a cluster in terms of the plain one's, and the processor time of its members and
of its client for one operation.

    python -m bench.secured [--systems secured,tls,rights] [--rounds 8] [--seconds 1]
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
from typing import NamedTuple

from coordinator.client import AsyncClient, Connector, connect
from coordinator.errors import CoordinatorError
from coordinator.recipes import Lock

PORTS = {"plain": 17_071, "secured": 17_271, "tls": 17_471, "rights": 17_671}
"""The first of the clients' ports; the members' own are a hundred above."""
READY_S = 60.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Turn(NamedTuple):
    """What came of one row in one round."""

    rate: float
    members_us: float
    """Processor time for each operation; and of the client."""
    client_us: float


@dataclass
class Cluster:
    """Three members on this machine, and how to reach them."""

    name: str
    directory: Path
    program: subprocess.Popen[bytes]
    turns: dict[str, list[Turn]] = field(default_factory=dict)

    @property
    def has_tls(self) -> bool:
        return self.name in ("secured", "tls")

    @property
    def has_rights(self) -> bool:
        return self.name in ("secured", "rights")

    @property
    def ca_file(self) -> str | None:
        return str(self.directory / "dev-3" / "certs" / "ca.pem") if self.has_tls else None

    @property
    def urls(self) -> list[str]:
        scheme = "https" if self.has_tls else "http"
        return [f"{scheme}://127.0.0.1:{PORTS[self.name] + each}" for each in range(3)]

    def connector(self, token_file: Path | None = None) -> Connector:
        """Return what connects to its members."""
        shown = None if token_file is None else str(token_file)
        return connect(",".join(self.urls), ca_file=self.ca_file, token_file=shown)

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
    port = PORTS[name]
    command = [
        sys.executable, "-m", "coordinator", "dev", "--members", "3", "--data", str(directory),
        "--client-port", str(port), "--member-port", str(port + 100),
    ]  # fmt: skip
    if name in ("secured", "tls"):
        command.append("--tls")
    log = (directory / "dev.log").open("wb")
    return Cluster(name, directory, subprocess.Popen(command, stdout=log, stderr=log))


def with_rights(cluster: Cluster) -> tuple[Path, Path]:
    """Turn rights on as an operator would; return the files of two tokens, his and a worker's."""
    admin, worker = cluster.directory / "admin.token", cluster.directory / "worker.token"
    environment = {**os.environ, "COORDINATOR_ENDPOINTS": cluster.urls[0]}
    if cluster.ca_file is not None:
        environment["COORDINATOR_CA_FILE"] = cluster.ca_file
    for arguments in (
        ["init", "--out", str(admin)],
        ["role", "put", "worker", "read,write:/work", "lock:/locks/own*"],
        ["identity", "put", "worker", "--role", "worker"],
        ["token", "add", "worker", "--out", str(worker)],
    ):
        command = [sys.executable, "-m", "coordinator", "access", *arguments]
        subprocess.run(command, check=True, env=environment, capture_output=True)
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
    if not cluster.has_rights:
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


async def measure(systems: list[str], rounds: int, seconds: float) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as top:
        clusters = []
        try:
            for name in ["plain", *systems]:
                directory = Path(top) / name
                directory.mkdir(mode=0o700)
                clusters.append(started(name, directory))
            clients = {each.name: await prepared(each) for each in clusters}
            for number in range(rounds + 1):  # the first one warms up
                for row, work, workers in ROWS:
                    for cluster in clusters if number % 2 else reversed(clusters):
                        turn = await taken(cluster, clients[cluster.name], work, workers, seconds)
                        if number:
                            cluster.turns.setdefault(row, []).append(turn)
            for client in clients.values():
                await client.close()
        finally:
            for cluster in clusters:
                cluster.program.send_signal(signal.SIGTERM)
            for cluster in clusters:
                cluster.program.wait(30)
    for other in clusters[1:]:
        print_table(clusters[0], other)


async def taken(
    cluster: Cluster, client: AsyncClient, work: Work, workers: int, seconds: float
) -> Turn:
    """Let a cluster work."""
    before, own_s, began_s = cluster.processor_s(), time.process_time(), time.monotonic()
    count = await work(client, workers, seconds)
    took_s, own_s = time.monotonic() - began_s, time.process_time() - own_s
    spent_s = cluster.processor_s() - before
    return Turn(count / took_s, spent_s / count * 1e6, own_s / count * 1e6)


def print_table(plain: Cluster, other: Cluster) -> None:
    """Print medians, and the median of what was kept in each round with the least and the most."""
    print(f"| work | plain, a second | {other.name} | kept | members, µs | client, µs |")
    print("|---|---|---|---|---|---|")
    for row, _, _ in ROWS:
        pairs = list(zip(plain.turns[row], other.turns[row], strict=True))
        kept = [ours.rate / theirs.rate for theirs, ours in pairs]
        cells = [f"{statistics.median(turn.rate for turn in each.turns[row]):,.0f}"
                 for each in (plain, other)]  # fmt: skip
        cells.append(f"{statistics.median(kept):.0%} ({min(kept):.0%} to {max(kept):.0%})")
        for which in ("members_us", "client_us"):
            was, now = (
                statistics.median([getattr(turn, which) for turn in each.turns[row]])
                for each in (plain, other)
            )
            ratio = statistics.median([getattr(b, which) / getattr(a, which) for a, b in pairs])
            cells.append(f"{was:,.0f} -> {now:,.0f}, x {ratio:.2f}")
        print(f"| {row} | {' | '.join(cells)} |")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.secured", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--systems", default="secured", help="beside the plain one")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each row in a round")
    wanted = parser.parse_args()
    systems = wanted.systems.split(",")
    if unknown := set(systems) - set(PORTS):
        parser.error(f"expected some of {', '.join(PORTS)}, found {', '.join(sorted(unknown))}")
    asyncio.run(measure(systems, wanted.rounds, wanted.seconds))


if __name__ == "__main__":
    main()
