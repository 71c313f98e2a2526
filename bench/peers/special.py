"""Rows that are more than a load: crowds, failures, many znodes, compiled clients.

Each returns its figures by name. What kills or fills has a cluster of its own, in the run's folder.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bench.peers import ceiling, filling
from bench.peers import crowd as crowds
from bench.peers.attempts import attempt
from bench.peers.figures import cpu_seconds, summary
from bench.peers.rows import Row
from bench.peers.runner import Progress, Run, answer_of
from bench.peers.systems import ROOT, SYSTEMS, System

IDLE_S = 10.0
SETTLED_S = 5.0
CROWD_S = 8.0
ENDED_S = crowds.SESSION_MS / 1000 + SETTLED_S
"""How long the sessions of a crowd that is gone take to expire. Thousands at once are work for the
members; without a wait, the systems of the next row are measured beside it."""
FAILURES = 3
FAILURE_S = 15.0
PAUSE_S = {"zookeeper": 0.1}
"""Between two attempts at one member, 5 ms for the others. For ZooKeeper each is a new session, and
some hundred of them a second keep its members from electing a leader."""


def idle(_row: Row, system: System, _run: Run) -> list[dict[str, float]]:
    """Return what three members use of a core, some seconds after they elected a leader."""
    time.sleep(SETTLED_S)
    return [{"servers_percent": _percent(system, IDLE_S)}]


def _percent(system: System, seconds: float) -> float:
    before_s, began_s = cpu_seconds(system.pids), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_seconds(system.pids) - before_s) / (time.monotonic() - began_s)


def crowd(row: Row, system: System, _run: Run) -> list[dict[str, float]]:
    """Return what a crowd of sessions costs, or how soon a crowd of watchers sees a write."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "bench.peers.crowd", row.kind, system.name, str(row.workers),
            str(CROWD_S + 1), *system.endpoints,
        ],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _answer(process)
        if row.kind == "sessions":
            return [{"servers_percent": _percent(system, CROWD_S)}]
        before_s = cpu_seconds(system.pids)
        found = _answer(process)
        return [found | {"servers_ms": (cpu_seconds(system.pids) - before_s) * 1e3}]
    finally:
        process.kill()
        process.wait()
        if row.kind == "sessions":
            time.sleep(ENDED_S)


def _answer(process: subprocess.Popen[str]) -> dict[str, float]:
    found, failure = answer_of(process)
    if found is None:
        raise RuntimeError(failure)
    return found


def failover(row: Row, system: System, _run: Run) -> list[dict[str, float]]:
    """End or stop the leader; return how long it took to the first write at a survivor."""
    found: list[dict[str, float]] = []
    attempt(system, 0, FAILURE_S, is_first=True)
    for _ in range(FAILURES):
        leader = system.wait()
        began_s = time.monotonic()
        system.signal(leader, signal.SIGKILL if row.kind == "kill" else signal.SIGSTOP)
        took_s = _first_write(system, [each for each in range(3) if each != leader], began_s)
        found.append({"seconds": took_s})
        if row.kind == "kill":
            system.processes[leader].wait()
            system.launch(leader)
        else:
            system.signal(leader, signal.SIGCONT)
        time.sleep(3.0)
        system.wait()
    return found


def _first_write(system: System, numbers: list[int], began_s: float) -> float:
    """Return how long after ``began_s`` one of these members acknowledged a write."""
    took: list[float] = []
    is_over = threading.Event()

    def write(number: int) -> None:
        while not is_over.is_set() and time.monotonic() - began_s < FAILURE_S:
            if attempt(system, number, 0.5):
                took.append(time.monotonic() - began_s)
                is_over.set()
            time.sleep(PAUSE_S.get(system.name, 0.005))

    threads = [threading.Thread(target=write, args=(each,)) for each in numbers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return min(took, default=float("nan"))


KINDS: dict[str, Callable[[Row, System, Run], list[dict[str, float]]]] = {
    "idle": idle,
    "sessions": crowd,
    "watchers": crowd,
    "kill": failover,
    "silent": failover,
    "znodes": filling.znodes,
    "million": filling.million,
}
OWN_CLUSTER = {"idle", "kill", "silent", "znodes", "million"}
"""What earlier rows left behind, or what this one leaves, is not to be measured."""


def measure(row: Row, run: Run, progress: Progress) -> None:
    """Measure a row of each system in turn and write it down."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in row.adapters:
        if name in run.systems:
            try:
                if row.kind == "ceiling":
                    for client, said in ceiling.each(run.systems[name], run):
                        if isinstance(said, str):
                            failed[client] = said
                        else:
                            found[client] = summary(said)
                else:
                    found[name] = summary(_measured(row, name, run))
            except Exception as error:
                failed[name] = f"{type(error).__name__}: {error}"
        progress.step(f"{row.name}: {name}")
    run.keep(row, found, failed)


def _measured(row: Row, name: str, run: Run) -> list[dict[str, float]]:
    if row.kind not in OWN_CLUSTER:
        return KINDS[row.kind](row, run.systems[name], run)
    system = SYSTEMS[name](run.directory / row.name)
    try:
        system.start()
        return KINDS[row.kind](row, system, run)
    finally:
        system.stop()
