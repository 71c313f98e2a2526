"""What one round of the log costs: processor time, system calls, wake-ups and Python frames.

Each revision named by ``--at`` gets a cluster of its own; they run side by side and are measured in
turns, so that their ratios mean something on a machine that does other work, too. Medians of the
turns. A count of system calls (``--calls``) or frames (``--frames``) slows the members down and
moves their batches, so each is a measurement of its own.

    python -m bench.rounds [--at . --at ../other] [--clients 0,1,64] [--turns 5] [--seconds 3]

``--clients 0`` is the idle cluster; its figures are for each second, the others for each write.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.__main__ import Worker, numbers, open_workers
from tests.cluster.processes import ProcessCluster

PROFILED = "bench.profiled_member"
CALLS_SHOWN = 12
FRAMES_SHOWN = 40


class Revision(ProcessCluster):
    """Three members that run the source under ``root``."""

    def __init__(self, directory: Path, root: Path, is_profiled: bool) -> None:
        super().__init__(directory)
        self.root = root
        self._program = PROFILED if is_profiled else "coordinator"
        here = Path(__file__).resolve().parents[1]
        path = os.pathsep.join([str(root), str(here)])
        self.start(env={"PYTHONPATH": path, "PYTHONSAFEPATH": "1"})

    def command(self, member_id: str) -> Sequence[str]:
        config = str(self.directory / f"member-{member_id}.toml")
        return [sys.executable, "-m", self._program, "serve", "--config", config]

    def in_order(self) -> list[str]:
        """Return the members, the leader first."""
        leader = self.leader()
        return [leader, *(each for each in self.ids if each != leader)]

    async def open_workers(self, count: int) -> list[Worker]:
        """Connect clients to the members in turns, the first one to the leader."""
        order = await asyncio.to_thread(self.in_order)
        return await open_workers(self, count, [self.url(each) for each in order])

    def switches(self) -> Counter[str]:
        """Return how often a thread of each member was woken after it had waited."""
        found: Counter[str] = Counter()
        for member_id, process in self.processes.items():
            for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
                for line in status.read_text().splitlines():
                    if line.startswith("voluntary_ctxt_switches:"):
                        found[member_id] += int(line.split()[1])
        return found

    def trace(self, member_id: str) -> subprocess.Popen[bytes]:
        """Begin to count the system calls of a member."""
        command = ["strace", "-f", "-c", "-o", f"{self.directory}/calls-{member_id}"]
        command += ["-p", str(self.processes[member_id].pid)]
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def traced(self, member_id: str, trace: subprocess.Popen[bytes]) -> Counter[str]:
        """End ``trace``; return the system calls by name."""
        trace.send_signal(signal.SIGINT)
        trace.wait()
        return calls_of(Path(f"{self.directory}/calls-{member_id}").read_text())

    def cpu_seconds(self) -> float:
        """Return the processor time of all members; finer than the ticks of ``/proc/PID/stat``."""
        return sum(self.processor_s(member_id) for member_id in self.ids)

    def processor_s(self, member_id: str) -> float:
        """Return the processor time of one member."""
        paths = Path(f"/proc/{self.processes[member_id].pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in paths) / 1e9

    def frames(self) -> dict[str, Counter[str]]:
        """Return the calls of Python functions of each member since it was last asked."""
        found = {}
        for member_id in self.ids:
            path = Path(f"{self.directory}/frames-{self.processes[member_id].pid}.json")
            path.unlink(missing_ok=True)
            self.signal(member_id, signal.SIGUSR2)
            while not path.exists():
                time.sleep(0.05)
            found[member_id] = Counter(json.loads(path.read_text()))
        return found


async def load(workers: list[Worker], seconds: float) -> int:
    """Let each worker write one after the other; return how many writes that came to."""
    end, count = time.perf_counter() + seconds, 0

    async def repeat(worker: Worker) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await worker.write()
            count += 1

    if not workers:
        await asyncio.sleep(seconds)
    await asyncio.gather(*(repeat(worker) for worker in workers))
    return count


async def one_turn(revision: Revision, workers: list[Worker], seconds: float) -> list[float]:
    """Return members' processor µs and wake-ups of each write, the leader's, writes per second."""
    leader = revision.in_order()[0]
    cpu, leader_cpu = revision.cpu_seconds(), revision.processor_s(leader)
    before, began = revision.switches(), time.perf_counter()
    count = await load(workers, seconds)
    took = time.perf_counter() - began
    units = count if workers else took
    cpu, leader_cpu = revision.cpu_seconds() - cpu, revision.processor_s(leader) - leader_cpu
    woken = revision.switches() - before
    return [
        cpu / units * 1e6, woken.total() / units, leader_cpu / units * 1e6, woken[leader] / units,
        count / took,
    ]  # fmt: skip


async def count_calls(revision: Revision, workers: list[Worker], seconds: float) -> None:
    """Print the system calls of each write: of the leader, and of one follower."""
    order = revision.in_order()[:2]
    traces = [revision.trace(member_id) for member_id in order]
    await asyncio.sleep(1)
    began = time.perf_counter()
    count = await load(workers, seconds)
    units = count if workers else time.perf_counter() - began
    for role, member_id, trace in zip(("leader", "follower"), order, traces, strict=True):
        found = revision.traced(member_id, trace)
        total = sum(found.values()) / units
        shown = ", ".join(
            f"{name} {calls / units:.2f}" for name, calls in found.most_common(CALLS_SHOWN)
        )
        print(f"{revision.root.name} {role}: {total:.1f} calls: {shown}", flush=True)


def calls_of(table: str) -> Counter[str]:
    """Return the calls by name of what ``strace -c`` printed."""
    found: Counter[str] = Counter()
    for line in table.splitlines():
        parts = line.split()
        if len(parts) >= 5 and parts[3].isdigit() and parts[-1] != "total":
            found[parts[-1]] += int(parts[3])
    return found


async def count_frames(revision: Revision, workers: list[Worker], seconds: float) -> None:
    """Print the Python frames of each write: of the leader, and of one follower."""
    revision.frames()
    count = await load(workers, seconds) or seconds
    found = revision.frames()
    for role, member_id in zip(("leader", "follower"), revision.in_order()[:2], strict=True):
        frames = found[member_id]
        rooms: Counter[str] = Counter()
        for name, calls in frames.items():
            rooms[name.split(":")[0]] += calls
        print(f"{revision.root.name} {role}: {frames.total() / count:.0f} frames")
        for room, calls in rooms.most_common(14):
            print(f"  {calls / count:8.2f}  {room}")
        for name, calls in frames.most_common(FRAMES_SHOWN):
            print(f"  {calls / count:8.2f}      {name}")


async def measure(arguments: argparse.Namespace, directory: Path) -> None:
    revisions = []
    try:
        for number, root in enumerate(arguments.at):
            revisions.append(Revision(directory / str(number), root, arguments.frames))
        for revision in revisions:
            await asyncio.to_thread(revision.wait_ready)
        for clients in arguments.clients:
            workers = [await each.open_workers(clients) for each in revisions]
            await compare(arguments, revisions, workers)
            for each in (worker for some in workers for worker in some):
                each.close()
    finally:
        for revision in revisions:
            revision.stop()


async def compare(
    arguments: argparse.Namespace, revisions: list[Revision], workers: list[list[Worker]]
) -> None:
    clients = len(workers[0])
    pairs = list(zip(revisions, workers, strict=True))
    print(f"{clients} clients" if clients else "idle", flush=True)
    for _, some in pairs:
        await load(some, 1)
    if arguments.calls or arguments.frames:
        count = count_calls if arguments.calls else count_frames
        for revision, some in pairs:
            await count(revision, some, arguments.seconds)
        return
    turns: list[list[list[float]]] = [[] for _ in pairs]
    for _ in range(arguments.turns):
        for (revision, some), found in zip(pairs, turns, strict=True):
            found.append(await one_turn(revision, some, arguments.seconds))
    for (revision, _), found in zip(pairs, turns, strict=True):
        cpu, woken, of_leader, woken_leader, rate = (
            statistics.median(column) for column in zip(*found, strict=True)
        )
        spread = " to ".join(f"{bound(row[0] for row in found):.0f}" for bound in (min, max))
        print(
            f"  {revision.root.name:12} processor {cpu:8.0f} µs ({spread}), "
            f"wake-ups {woken:7.2f}, of the leader {of_leader:6.0f} µs, {woken_leader:6.2f}, "
            f"{rate:7.0f}/s", flush=True,
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rounds", description=__doc__)
    parser.add_argument("--at", action="append", help="a checked-out revision; again for another")
    parser.add_argument("--clients", type=numbers, default=[0, 1, 64])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--calls", action="store_true", help="count system calls (needs strace)")
    parser.add_argument("--frames", action="store_true", help="count calls of Python functions")
    with tempfile.TemporaryDirectory(prefix="coordinator-bench-") as directory:
        arguments = parser.parse_args()
        arguments.at = [Path(root).resolve() for root in arguments.at or ["."]]
        asyncio.run(measure(arguments, Path(directory)))


if __name__ == "__main__":
    main()
