"""Workers of one queue, each a process, killed with SIGKILL at any moment: what becomes of items.

    python -m tests.cluster.killed_workers [--kills 1000] [--at-once 16] [--seed 1] [--data DIR]

Three members, and workers that are forked from one process that has loaded everything. A worker
takes, works (a line in a file), acknowledges, and again, until it is killed. At the end the queue
is worked off in peace. No item may be lost, and work is done twice only where the worker of an
earlier delivery was killed after its work and before it knew of its acknowledgement.

Exit status: 0 nothing violated, 1 something was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coordinator import WorkQueue, connect
from coordinator.client import AsyncClient
from coordinator.errors import CoordinatorError
from tests.cluster.processes import ProcessCluster

ROOT = Path(__file__).resolve().parents[2]
QUEUE = "work"
SESSION_S = 2.0
LIVES_S_MAX = 0.2
"""From when it has its first item; one in ten is killed at another moment, mostly before."""
_FED_TO = 200
_ATTEMPTS_MAX = 10_000


@dataclass(frozen=True)
class Counts:
    """What came of a run."""

    killed: int
    killed_holding: int
    """Of these, with an item in their hands."""
    killed_after_work: int
    """Of these, after their work, and before they knew of its acknowledgement."""
    items: int
    deliveries: int
    worked_twice: int
    lost: int
    wrong: int
    """Items that were worked again although no worker was killed after its work on them."""


# --- a worker, in a process of its own


def work(endpoints: str, log: Path, seed: int, connected: int) -> None:
    """Take, work and acknowledge until killed; close ``connected`` with the first item."""
    source = random.Random(seed)
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, name: str, token: int) -> None:
        os.write(out, f"{what} {os.getpid()} {name} {token}\n".encode())

    with connect(endpoints, session_timeout=SESSION_S, timeout=20) as client:
        queue = WorkQueue(client, QUEUE, attempts_max=_ATTEMPTS_MAX)
        is_first = True
        while True:
            try:
                delivery = queue.take(timeout=1)
                if delivery is None:
                    continue
                token = delivery.fencing_token
                note("took", delivery.name, token)
                if is_first:
                    os.close(connected)
                    is_first = False
                time.sleep(source.random() * 0.05)
                note("worked", delivery.name, token)
                time.sleep(source.random() * 0.02)
                if delivery.ack():
                    note("acked", delivery.name, token)
            except CoordinatorError:
                continue


def fork_and_kill(endpoints: str, log: Path, kills: int, at_once: int, seed: int) -> None:
    """Fork workers and kill them at random, until so many were; say how many on stdout."""
    source = random.Random(seed)
    ends: dict[int, float] = {}
    connecting: dict[int, int] = {}
    killed = begun = 0
    while killed < kills or ends:
        while len(ends) < at_once and begun < kills:
            begun += 1
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    work(endpoints, log, seed + begun, writer)
                finally:
                    os._exit(1)
            os.close(writer)
            connecting[reader] = pid
            ends[pid] = time.monotonic() + (30.0 if source.random() < 0.9 else source.random())
        for reader in select.select(list(connecting), [], [], 0.005)[0]:
            os.close(reader)
            pid = connecting.pop(reader)
            if pid in ends:  # not killed before
                ends[pid] = min(ends[pid], time.monotonic() + source.random() * LIVES_S_MAX)
        for pid, at in list(ends.items()):
            if time.monotonic() >= at:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del ends[pid]
                killed += 1
    print(killed)


# --- the run


async def feed(client: AsyncClient, put: set[str], ended: asyncio.Event) -> None:
    """Keep some hundreds of items in the queue until the killing has ended."""
    queue = WorkQueue(client, QUEUE, attempts_max=_ATTEMPTS_MAX)
    while not ended.is_set():
        if (await queue.stats()).ready < _FED_TO:
            put.update(await queue.put(*[b"x" for _ in range(100)]))
        await asyncio.sleep(0.3)


async def drain(client: AsyncClient, log: Path) -> None:
    """Work off what is left, as eight workers that nobody kills."""
    queue = WorkQueue(client, QUEUE, attempts_max=_ATTEMPTS_MAX)

    async def work_off() -> None:
        quiet_since = time.monotonic()
        while time.monotonic() < quiet_since + 3 * SESSION_S:
            delivery = await queue.take(timeout=0.5)
            if delivery is None:
                continue
            for what in ("took", "worked"):
                print(what, 0, delivery.name, delivery.fencing_token, file=out)
            assert await delivery.ack()
            print("acked", 0, delivery.name, delivery.fencing_token, file=out)
            quiet_since = time.monotonic()

    with log.open("a") as out:
        await asyncio.gather(*(work_off() for _ in range(8)))


def judge(log: Path, put: set[str], killed: int) -> Counts:
    """Read what the workers wrote."""
    said: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    last: dict[int, str] = {}
    for line in log.read_text().splitlines():
        what, pid, name, token = line.split()
        said[name][int(token)].add(what)
        last[int(pid)] = what
    wrong = twice = 0
    for deliveries in said.values():
        worked = sorted(token for token, what in deliveries.items() if "worked" in what)
        twice += len(worked) > 1
        # All but the last were not known to be acknowledged; their worker died after its work.
        wrong += any("acked" in deliveries[token] for token in worked[:-1])
        wrong += sum("acked" in what for what in deliveries.values()) > 1
    done = {name for name, each in said.items() if any("worked" in what for what in each.values())}
    ends = [what for pid, what in last.items() if pid]
    return Counts(
        killed=killed,
        killed_holding=sum(what in ("took", "worked") for what in ends),
        killed_after_work=ends.count("worked"),
        items=len(put),
        deliveries=sum(map(len, said.values())),
        worked_twice=twice,
        lost=len(put - done),
        wrong=wrong,
    )


async def run(directory: Path, kills: int, at_once: int, seed: int) -> Counts:
    """Start members, let workers be killed, and work off the rest."""
    cluster, log, put = ProcessCluster(directory), directory / "workers.log", set[str]()
    cluster.start(*cluster.ids)
    try:
        await cluster.wait_ready_async(*cluster.ids)
        async with connect(cluster.endpoints, timeout=30) as client:
            ended = asyncio.Event()
            feeding = asyncio.create_task(feed(client, put, ended))
            zygote = [sys.executable, "-m", "tests.cluster.killed_workers", "--fork",
                      cluster.endpoints, str(log), str(kills), str(at_once), str(seed)]  # fmt: skip
            child = await asyncio.create_subprocess_exec(
                *zygote, cwd=ROOT, stdout=subprocess.PIPE
            )
            said, _ = await child.communicate()
            ended.set()
            await feeding
            await drain(client, log)
            stats = await WorkQueue(client, QUEUE).stats()
            assert (stats.ready, stats.in_flight, stats.dead) == (0, 0, 0), stats
        return judge(log, put, int(said))
    finally:
        cluster.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["--fork"]:
        endpoints, log, *numbers = given[1:]
        fork_and_kill(endpoints, Path(log), *map(int, numbers))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", type=Path)
    options = parser.parse_args(given)
    directory = options.data or Path(tempfile.mkdtemp(prefix="killed-workers-"))
    try:
        counts = asyncio.run(run(directory, options.kills, options.at_once, options.seed))
    finally:
        if options.data is None:
            shutil.rmtree(directory, ignore_errors=True)
    print(json.dumps(asdict(counts)))
    return 1 if counts.lost or counts.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
