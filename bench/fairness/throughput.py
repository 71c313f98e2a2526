"""How much of its throughput a modest client keeps while another one rages: three real members.

The modest client has one connection to the member that leads, and a few requests under way. The
other has many connections to each member, hundreds of requests under way on each, and sends the
next at once, whatever it is answered. Each comes from an address of its own of this machine, so
they are two clients. Rounds without and with the rage take turns, so what else the machine does
weighs on both; what counts is how many of the modest client's operations were done.

    python -m bench.fairness.throughput [--seconds 2] [--rounds 3]
                             [--modest write,lock,read,list]
                             [--rage write,read,list,lock,mix] [--depth 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.processes import ProcessCluster
from tests.members.closed_loop import KINDS as ALL_KINDS
from tests.members.closed_loop import LISTED, Connected, repeated

MODEST, RAGING = "127.0.0.2", "127.0.0.3"
KINDS = ",".join(ALL_KINDS)
RAGES = "write,read,list,lock,mix"
_SETTLE_S = 0.3


async def work(said: dict[str, Any]) -> None:
    """Repeat what ``said`` says on some connections; print the counts every tenth of a second."""
    counts: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    kinds = said["kinds"]
    for number in range(said["connections"]):
        parts = urlsplit(said["urls"][number % len(said["urls"])])
        name = f"{said['name']}-{number}-{time.monotonic_ns()}"
        programs = [
            repeated(kinds[(number + each) % len(kinds)], f"{name}-{each}", counts)
            for each in range(said["depth"])
        ]
        await loop.create_connection(
            lambda name=name, programs=programs: Connected(name, programs),  # type: ignore[misc]
            parts.hostname, parts.port, local_addr=(said["address"], 0),
        )  # fmt: skip
    while True:
        print(json.dumps({"at": time.monotonic(), **counts}), flush=True)
        await asyncio.sleep(0.1)


class Worker:
    """A client in a process of its own."""

    def __init__(self, **said: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.fairness.throughput", "--work", json.dumps(said)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def counted(self, seconds: float) -> Counter[str]:
        """Return what it has done a second, within about as many seconds from now."""
        began = self._next()
        until = time.monotonic()
        while began["at"] < until:  # what waits in the pipe is old
            began = self._next()
        ended = began
        while ended["at"] < began["at"] + seconds:
            ended = self._next()
        took = ended.pop("at") - began.pop("at")
        return Counter({k: round((ended[k] - began.get(k, 0)) / took) for k in ended})

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a client has ended; see above")
        said: dict[str, Any] = json.loads(line)
        return said

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass(slots=True)
class Round:
    """What was done a second without and with the rage."""

    alone: Counter[str]
    beside: Counter[str]
    raging: Counter[str]


def measured(cluster: ProcessCluster, kind: str, rage: str, wanted: argparse.Namespace) -> Round:
    """Let the modest client work alone, then beside the raging one."""
    leader = cluster.url(cluster.leader())
    modest = Worker(name="modest", kinds=[kind], urls=[leader], connections=1,
                    depth=wanted.depth, address=MODEST)  # fmt: skip
    raging = None
    try:
        modest.counted(_SETTLE_S)
        alone = modest.counted(wanted.seconds)
        kinds = KINDS.split(",") if rage == "mix" else [rage]
        raging = Worker(name="rage", kinds=kinds, urls=cluster.urls, depth=wanted.rage_depth,
                        connections=wanted.connections, address=RAGING)  # fmt: skip
        raging.counted(6 * _SETTLE_S)
        beside = modest.counted(wanted.seconds)
        return Round(alone, beside, raging.counted(0.3))
    finally:
        modest.stop()
        if raging is not None:
            raging.stop()
            time.sleep(3 * _SETTLE_S)  # what it left behind is tidied up


def fill(cluster: ProcessCluster) -> None:
    """Make what is read and listed."""
    base = cluster.url(cluster.leader())
    for target in ("fair", "fair/listed", *(f"fair/listed/c{n}" for n in range(LISTED))):
        command = ["curl", "-sf", "-X", "POST", f"{base}/v1/tree/{target}",
                   "-H", "Content-Type: application/json", "-d", '{"data": "x"}']  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(wanted: argparse.Namespace) -> None:
    print("| modest | rage | alone /s | beside /s | kept | not done /s | rage /s | refused /s |")
    print("|---|---|---|---|---|---|---|---|")
    settings = json.loads(wanted.settings)
    with tempfile.TemporaryDirectory(
        prefix="coordinator-fairness-", dir=wanted.directory
    ) as directory:
        cluster = ProcessCluster(Path(directory), 3, settings)
        try:
            cluster.start()
            cluster.wait_ready()
            fill(cluster)
            for kind in wanted.modest.split(","):
                for rage in wanted.rage.split(","):
                    rounds = [measured(cluster, kind, rage, wanted) for _ in range(wanted.rounds)]
                    print(row(kind, rage, rounds), flush=True)
        finally:
            cluster.stop()


def row(kind: str, rage: str, rounds: list[Round]) -> str:
    count = len(rounds)
    alone = sum(each.alone["done"] for each in rounds) / count
    beside = sum(each.beside["done"] for each in rounds) / count
    missed = sum(each.beside.total() - each.beside["done"] for each in rounds) / count
    other = sum(each.raging["done"] for each in rounds) / count
    refused = sum(each.raging.total() - each.raging["done"] for each in rounds) / count
    return (f"| {kind} | {rage} | {alone:,.0f} | {beside:,.0f} | {beside / max(alone, 1):.0%} "
            f"| {missed:,.0f} | {other:,.0f} | {refused:,.0f} |")  # fmt: skip


def main() -> None:
    name = "python -m bench.fairness.throughput"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modest", default=KINDS)
    parser.add_argument("--rage", default=RAGES)
    parser.add_argument("--depth", type=int, default=4, help="requests of the modest client")
    parser.add_argument("--rage-depth", type=int, default=256, help="on each connection")
    parser.add_argument("--connections", type=int, default=24, help="of the raging client")
    parser.add_argument("--settings", default="{}", help="of the members, as JSON")
    parser.add_argument("--directory", help="of the members' data; /dev/shm takes the disk away")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.work:
        asyncio.run(work(json.loads(wanted.work)))
    else:
        measure(wanted)


if __name__ == "__main__":
    main()
