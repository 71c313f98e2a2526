"""Where the time of members goes: shares by room, of a leader and a follower under load.

A member is interrupted after every millisecond of processor time, and the line that runs then is
noted (SIGPROF, so nothing is dearer than it is). A line counts for the room that its file is in;
one that calls the operating system or a library counts for that: sending, syncing, msgpack. What
the garbage collector took is measured apart, and is part of the others.

    python -m bench.profile [--loads put,lock] [--workers 64] [--seconds 6] [--lines 0]
                            [--thresholds 5000,5,2]
"""

from __future__ import annotations

import argparse
import gc
import json
import linecache
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from tests.cluster.processes import ProcessCluster

EVERY_S = 0.001
THRESHOLDS = "BENCH_THRESHOLDS"
"""Of the environment: what the members' collector runs at, instead of their own."""
ROOMS = (
    "coordinator/state", "coordinator/model", "coordinator/service", "coordinator/raft/storage",
    "coordinator/raft/network", "coordinator/raft", "coordinator/wire/stream",
    "coordinator/wire/http", "coordinator/wire", "coordinator", "pysyncobj", "aiohttp", "msgspec",
    "prometheus_client", "asyncio",
)  # fmt: skip
"""The first that is in the path of a file is its room."""
CALLS = {
    ".send(": "socket send", ".sendmsg(": "socket send", ".recv(": "socket receive",
    ".recv_into(": "socket receive", "datasync(": "sync of the disk", ".poll(": "poll",
    "unpackb(": "msgpack", "packb(": "msgpack",
    "pwritev(": "write to the disk", "eventfd_write(": "waking a thread",
    "self._context.run": "asyncio",
}  # fmt: skip
"""What a line counts for that calls one of these, before its file is looked at."""


def room_of(path: str, line: str) -> str:
    """Return what a line counts for."""
    for call, room in CALLS.items():
        if call in line:
            return room
    if path == "<string>":
        return "named tuples"
    for room in ROOMS:
        if f"/{room}/" in path or f"/{room}." in path:
            return room.removeprefix("coordinator/")
    return "other libraries"


def shares(samples: Mapping[str, int]) -> dict[str, float]:
    """Return the share of each room in per cent; a sample is ``FILE:LINE`` and how often."""
    spent: Counter[str] = Counter()
    for place, count in samples.items():
        path, _, number = place.rpartition(":")
        spent[room_of(path, linecache.getline(path, int(number)))] += count
    whole = sum(spent.values()) or 1
    return {room: 100 * count / whole for room, count in spent.most_common()}


class Sampler:
    """Notes which line runs, by processor time; SIGUSR1 begins it, the next one writes it down."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._samples: Counter[str] = Counter()
        self._collected_s = 0.0
        self._began_s: float | None = None
        self._gc_s = 0.0
        self._longest_s = 0.0

    def turn(self, _signal: int, _frame: FrameType | None) -> None:
        if self._began_s is None:
            self._began_s = time.process_time()
            gc.callbacks.append(self._on_collection)
            signal.signal(signal.SIGPROF, self._sample)
            signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        spent_s = time.process_time() - self._began_s
        found = {"samples": self._samples, "cpu_s": spent_s, "gc_s": self._collected_s,
                 "gc_longest_s": self._longest_s}  # fmt: skip
        part = Path(self._path + ".part")
        part.write_text(json.dumps(found))
        part.replace(self._path)

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        if frame is not None:
            self._samples[f"{frame.f_code.co_filename}:{frame.f_lineno or 0}"] += 1

    def _on_collection(self, phase: str, _facts: Mapping[str, int]) -> None:
        if phase == "start":
            self._gc_s = time.thread_time()
        else:
            took_s = time.thread_time() - self._gc_s
            self._collected_s += took_s
            self._longest_s = max(self._longest_s, took_s)


class ProfiledCluster(ProcessCluster):
    """Members that are ready to be sampled."""

    def command(self, member_id: str) -> Sequence[str]:
        path, config = self.found_path(member_id), self.directory / f"member-{member_id}.toml"
        return [sys.executable, "-m", "bench.profile", "--serve", str(path), str(config)]

    def found_path(self, member_id: str) -> Path:
        return self.directory / f"{member_id}.json"


def profiled(load: str, workers: int, seconds: float) -> list[dict[str, Any]]:
    """Run one load; return what was noted of the leader and of a follower."""
    from bench.peers.rows import BY_NAME
    from bench.peers.runner import Loads
    from bench.peers.systems import Ours

    row = replace(BY_NAME[{"put": "write-64", "lock": "lock-64"}[load]], workers=workers)
    with tempfile.TemporaryDirectory(prefix="coordinator-profile-") as name:
        system = Ours(Path(name))
        system.cluster = ProfiledCluster(system.directory / "profiled", 3)
        system.endpoints = system.cluster.urls
        system.start()
        leader = system.wait()
        numbers = (leader, (leader + 1) % 3)
        loads = Loads(row, ["ours"], {"ours": system})
        for number in numbers:
            system.signal(number, signal.SIGUSR1)
        said = loads.round("ours", seconds) or {}
        for number in numbers:
            system.signal(number, signal.SIGUSR1)
        loads.close()
        paths = [system.cluster.found_path(system.cluster.ids[number]) for number in numbers]
        end = time.monotonic() + 10
        while not all(path.exists() for path in paths) and time.monotonic() < end:
            time.sleep(0.05)
        found = [json.loads(path.read_text()) for path in paths]
        system.stop()
    return [each | {"operations": said.get("operations", 0.0)} for each in found]


def _thresholds(text: str) -> tuple[int, int, int]:
    young, middle, old = (int(each) for each in text.split(","))
    return young, middle, old


def serve(path: str, config: str) -> None:
    """Be a member that can be sampled."""
    from coordinator.cli.main import cli
    from coordinator.node import garbage

    if said := os.environ.get(THRESHOLDS):
        garbage._THRESHOLDS = _thresholds(said)
    signal.signal(signal.SIGUSR1, Sampler(path).turn)
    cli(["serve", "--config", config], prog_name="coordinator")


def _print_lines(samples: Mapping[str, int], count: int) -> None:
    whole = sum(samples.values()) or 1
    for place, number in Counter(samples).most_common(count):
        path, _, line = place.rpartition(":")
        text = linecache.getline(path, int(line)).strip()
        short = os.path.relpath(path).rpartition("site-packages/")[2]
        print(f"  {100 * number / whole:4.1f} %  {short}:{line}  {text[:70]}")


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(prog="python -m bench.profile", description=__doc__)
    parser.add_argument("--loads", default="put,lock")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--lines", type=int, default=0, help="the costliest lines, too")
    parser.add_argument("--thresholds", help="of garbage collection, instead of the members'")
    arguments = parser.parse_args()
    if arguments.thresholds:
        _thresholds(arguments.thresholds)
        os.environ[THRESHOLDS] = arguments.thresholds
    columns: dict[str, dict[str, float]] = {}
    for load in arguments.loads.split(","):
        found = profiled(load, arguments.workers, arguments.seconds)
        for who, each in zip(("leader", "follower"), found, strict=True):
            name = f"{who}, {load} {arguments.workers}"
            columns[name] = shares(each["samples"])
            columns[name]["(garbage collection)"] = 100 * each["gc_s"] / each["cpu_s"]
            print(f"{name}: {sum(each['samples'].values())} samples, {each['cpu_s']:.1f} s, "
                  f"{each['cpu_s'] / each['operations'] * 1e6:,.0f} µs an operation; collection "
                  f"{100 * each['gc_s'] / each['cpu_s']:.1f} %, at most "
                  f"{each['gc_longest_s'] * 1e3:.1f} ms")  # fmt: skip
            _print_lines(each["samples"], arguments.lines)
    rooms = sorted(
        {room for each in columns.values() for room in each},
        key=lambda room: -sum(each.get(room, 0.0) for each in columns.values()),
    )
    print(f"\n| share of the work, % | {' | '.join(columns)} |\n|---{'|---' * len(columns)}|")
    for room in rooms:
        cells = [f"{each.get(room, 0.0):.0f}" for each in columns.values()]
        if any(cell != "0" for cell in cells):
            print(f"| {room} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
