"""Rounds of each row, the systems taking turns; what was found is on disk after each row.

1. All clusters stand from the first row to the last, warmed up by writes before it. Special rows
   that kill or fill have clusters of their own.
2. The clients of one row are started together and wait. In each round each works once, while all
   others stand still; the order moves by one from round to round.
3. After each row ``results.json`` is whole. ``--resume`` goes on behind the rows that are in it.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers.figures import plain, summary
from bench.peers.load import system_of
from bench.peers.rows import Row
from bench.peers.systems import ROOT, SYSTEMS, TOOLS, System
from coordinator.node import build

LINE_S = 90.0
"""How long a process of clients may take to be ready, or for a round."""


class Progress:
    """A bar on a terminal, a line for each step elsewhere."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._began_s = time.monotonic()

    def step(self, what: str, count: int = 1) -> None:
        self._done += count
        filled = round(24 * min(self._done / max(self._total, 1), 1))
        took_s = time.monotonic() - self._began_s
        bar = "#" * filled + "." * (24 - filled)
        line = f"[{bar}] {self._done}/{self._total} {took_s:5.0f} s  {what}"
        end = "\r" if sys.stderr.isatty() else "\n"
        print(f"{line[:100]:<100}", end=end, file=sys.stderr, flush=True)


def answer_of(process: subprocess.Popen[str]) -> tuple[dict[str, Any] | None, str]:
    """Return the line of JSON that a process says next, or None and why there is none.

    One that says nothing for ``LINE_S`` is ended.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    watchdog = threading.Timer(LINE_S, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()
    finally:
        watchdog.cancel()
    if line:
        return json.loads(line), ""
    said = " ".join(process.stderr.read().split())
    return None, said[:200] or f"ended with {process.wait()}, or said nothing for {LINE_S:.0f} s"


class Loads:
    """The processes of one row, each ready for its rounds."""

    def __init__(self, row: Row, adapters: Sequence[str], systems: dict[str, System]) -> None:
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self.failed: dict[str, str] = {}
        for adapter in adapters:
            system = systems[system_of(adapter)]
            spec = {
                "adapter": adapter, "kind": row.kind, "workers": row.workers,
                "endpoints": system.endpoints, "leader": system.wait(), "pids": system.pids,
            }  # fmt: skip
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.peers.load", json.dumps(spec)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                cwd=ROOT,
            )  # fmt: skip
            self._processes[adapter] = process
        for adapter in adapters:
            self._answer(adapter)

    @property
    def adapters(self) -> list[str]:
        return list(self._processes)

    def round(self, adapter: str, seconds: float) -> dict[str, float] | None:
        """Let one of them work; None if it broke."""
        stdin = self._processes[adapter].stdin
        assert stdin is not None
        try:
            stdin.write(f"run {seconds}\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        return self._answer(adapter)

    def _answer(self, adapter: str) -> dict[str, Any] | None:
        process = self._processes[adapter]
        found, failure = answer_of(process)
        if found is None:
            self.failed[adapter] = failure
            del self._processes[adapter]
        return found

    def close(self) -> None:
        """Let all of them close what they hold and end."""
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Run:
    """One comparison: its systems and its results."""

    def __init__(self, names: Sequence[str], output: Path, *, seconds: float, rounds: int) -> None:
        TOOLS.mkdir(exist_ok=True)
        self._home = tempfile.TemporaryDirectory(prefix="data-", dir=TOOLS)
        self._names = list(names)
        self.seconds = seconds
        self.rounds = rounds
        self.output = output
        self.systems: dict[str, System] = {}
        self.results: dict[str, Any] = {"about": about(seconds, rounds), "rows": {}}

    @property
    def directory(self) -> Path:
        """Where clusters keep their data: on the disk of this checkout."""
        return Path(self._home.name)

    def resume(self) -> set[str]:
        """Take over what an earlier run found; return the names of its rows."""
        if self.output.exists():
            self.results = json.loads(self.output.read_text())
        return set(self.results["rows"])

    def start(self) -> None:
        """Start the clusters that stand through the whole run."""
        for name in self._names:
            self.systems[name] = SYSTEMS[name](self.directory)
            self.systems[name].start()

    def warm_up(self, row: Row, seconds: float) -> None:
        """Let every system work before it is measured; a JVM wants long."""
        adapters = [each for each in row.adapters if each in self._names]
        loads = Loads(row, adapters, self.systems)
        for adapter in loads.adapters:
            loads.round(adapter, seconds)
        loads.close()

    def measure(self, row: Row, progress: Progress) -> None:
        """Run the rounds of a load row and write down what they came to."""
        wanted = [each for each in row.adapters if system_of(each) in self._names]
        loads = Loads(row, wanted, self.systems)
        found: dict[str, list[dict[str, float]]] = {each: [] for each in wanted}
        for number in range(self.rounds):
            shift = number % max(len(wanted), 1)
            for adapter in [*wanted[shift:], *wanted[:shift]]:
                if adapter in loads.adapters:
                    said = loads.round(adapter, self.seconds)
                    if said is not None:
                        found[adapter].append(said)
                progress.step(f"{row.name}: {adapter}, round {number + 1}")
        loads.close()
        self.keep(row, {name: summary(each) for name, each in found.items() if each}, loads.failed)

    def keep(self, row: Row, found: dict[str, Any], failed: dict[str, str]) -> None:
        """Write down one row, and everything before it again."""
        self.results["rows"][row.name] = {
            "what": row.what, "kind": row.kind, "workers": row.workers,
            "load_average": round(os.getloadavg()[0], 2), "found": plain(found), "failed": failed,
        }  # fmt: skip
        self.output.parent.mkdir(parents=True, exist_ok=True)
        part = self.output.with_suffix(".part")
        part.write_text(json.dumps(self.results, indent=1) + "\n")
        part.replace(self.output)

    def stop(self) -> None:
        for each in self.systems.values():
            each.stop()
        self._home.cleanup()


def about(seconds: float, rounds: int) -> dict[str, Any]:
    """Say on what was measured."""
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        "revision": revision.stdout.strip(),
        "build": build.described(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": os.getloadavg()[0],
        "seconds": seconds,
        "rounds": rounds,
    }
