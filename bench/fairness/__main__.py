"""One client against another: what a client in full rage can take of a real cluster.

Three members with TLS and access rights. One client may write, watch and lock below its own names
alone. It rages in one way after the other: 1 MB values over 48 streams, ten thousand waits,
sessions without end, ends of sessions that are not there, writes without the right, lists, watches,
and what is no frame at all. The other client has a session of three seconds, and works on. Promised
is, for each rage: that session is kept; the client does two thirds of what it did before, and no
outcome is unknown; no leader changes; and no member takes more memory than three times its data and
150 MiB.

    python -m bench.fairness [--seconds 60] [--rages values,waits,...] [--kept 0.67]

Exits with 1 if a promise was broken. ``bench.fairness.throughput`` has more kinds of work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fairness.rages import RAGES
from bench.fairness.secured import SecuredCluster
from tests.patience import patient

MIB = 1024 * 1024
KEPT_AT_LEAST = 2 / 3
RESIDENT_FREE = 150 * MIB
RESIDENT_PER_DATA = 3
_NICE = 10
"""Of the raging client's process: what it costs itself is not what it takes of the members."""
_WARM_S = 1.0
_SETTLE_S = 4.0
"""After a rage: its sessions end, and what it left behind is tidied up."""


class Running:
    """A client in a process of its own, and what it said last."""

    def __init__(self, module: str, said: dict[str, Any], nice: int = 0) -> None:
        command = ["nice", "-n", str(nice), sys.executable, "-m", module, json.dumps(said)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.last: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = json.loads(line)

    def wait_begun(self) -> None:
        """Wait until it has said something."""
        end = time.monotonic() + patient(60)
        while not self.last:
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("a client has not begun; see above")
            time.sleep(0.02)

    def rate(self, seconds: float) -> float:
        """Return how many rounds a second it does from now on."""
        before, at = self.last, self.last["at"]
        time.sleep(seconds)
        after = self.last
        return float((after["done"] - before["done"]) / max(after["at"] - at, 0.1))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


@dataclass(slots=True)
class Row:
    """What came of one rage."""

    rage: str
    alone: float
    beside: float
    unknown: int
    is_lost: bool
    before: tuple[int, str | None]
    after: tuple[int, str | None]
    resident: int
    resident_max: int
    answers: dict[str, int] = field(default_factory=dict)

    def broken(self, kept: float) -> list[str]:
        """Return which promises were broken."""
        found = []
        if self.is_lost:
            found.append("the session was lost")
        if self.beside < kept * self.alone:
            found.append(f"it kept {self.beside / max(self.alone, 0.1):.0%} of its rate")
        if self.unknown:
            found.append(f"{self.unknown} outcomes are unknown")
        if self.before != self.after:
            found.append(f"the leader changed: {self.before} to {self.after}")
        if self.resident > self.resident_max:
            found.append(f"{self.resident // MIB} MiB resident")
        return found

    def line(self, kept: float) -> str:
        """Return it as a row of the table."""
        answers = ", ".join(f"{name}: {count}" for name, count in sorted(self.answers.items()))
        verdict = "; ".join(self.broken(kept)) or "kept"
        return (
            f"| {self.rage} | {self.alone:,.0f} | {self.beside:,.0f} | "
            f"{self.beside / max(self.alone, 0.1):.0%} | {self.unknown} | "
            f"{self.resident // MIB} of {self.resident_max // MIB} | {answers} | {verdict} |"
        )


def raged(cluster: SecuredCluster, rage: str, seconds: float) -> Row:
    """Measure another client alone, beside this rage, and alone again."""
    other = Running("bench.fairness.other", cluster.said("other"))
    try:
        other.wait_begun()
        time.sleep(_WARM_S)
        return _beside(cluster, other, rage, seconds)
    finally:
        other.stop()


def _beside(cluster: SecuredCluster, other: Running, rage: str, seconds: float) -> Row:
    before = cluster.led()
    alone_s = min(seconds, 10.0)
    alone = other.rate(alone_s)
    raging = Running("bench.fairness.raging", cluster.said("raging") | {"rage": rage}, _NICE)
    peak = _Peak(cluster)
    try:
        raging.wait_begun()
        time.sleep(_WARM_S)
        beside = other.rate(seconds)
        answers = dict(raging.last)
    finally:
        raging.stop()
        peak.stop()
    time.sleep(_SETTLE_S)
    alone = (alone + other.rate(alone_s)) / 2  # what else the machine does weighs on both
    return Row(
        rage, alone, beside, other.last["unknown"], other.last["lost"], before,
        cluster.led(), peak.bytes, RESIDENT_PER_DATA * cluster.data_bytes() + RESIDENT_FREE,
        answers,
    )  # fmt: skip


class _Peak:
    """The most memory that a member had meanwhile."""

    def __init__(self, cluster: SecuredCluster) -> None:
        self._cluster = cluster
        self.bytes = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._is_over.wait(0.1):
            self.bytes = max(self.bytes, *self._cluster.resident_bytes().values())

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()


def measure(directory: Path, rages: list[str], seconds: float, kept: float) -> list[Row]:
    """Try each rage; print a row for each, and return them."""
    print("| rage | alone /s | beside /s | kept | unknown | MiB | answers | verdict |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    cluster, rows = SecuredCluster(directory), []
    try:
        cluster.start()
        for rage in rages:
            rows.append(raged(cluster, rage, seconds))
            print(rows[-1].line(kept), flush=True)
    finally:
        cluster.members.stop()
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.fairness", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rages", default=",".join(RAGES))
    parser.add_argument("--kept", type=float, default=KEPT_AT_LEAST, help="of the other's rate")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coordinator-fairness-") as directory:
        rages = wanted.rages.split(",")
        rows = measure(Path(directory), rages, wanted.seconds, wanted.kept)
    broken = [each.rage for each in rows if each.broken(wanted.kept)]
    print(f"\nbroken beside: {', '.join(broken)}" if broken else "\nall promises were kept")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
