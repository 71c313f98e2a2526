"""Many runs: on several processes, counted, and summed up for the ledger."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.met import Met
from tests.simulation.world import Settings, Verdict, simulate

LAST_LINES = 60
NICE = 10
"""Worlds only work, and have no deadline: they take what tests leave that wait and have one."""
PROGRESS_EVERY_S = 5.0

COUNTED = (
    "operations",
    "unknown",
    "commands",
    "grants",
    "changes",
    "expiries",
    "elections",
    "snapshots",
)
"""What a row of the ledger counts besides faults."""


def verdicts(seeds: Sequence[int], settings: Settings, jobs: int) -> Iterator[Verdict]:
    """Run every seed, on ``jobs`` processes; in the order of the seeds."""
    if jobs == 1:
        for seed in seeds:
            yield simulate(seed, settings)
        return
    # A process for each world: what one leaves in memory, some 100 MB full of cycles, goes with it
    # and need not be collected. Forked, since this process has run nothing and holds all imports.
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, initializer=_begin_process, maxtasksperchild=1) as pool:
        yield from pool.imap(_Run(settings), seeds)


def _begin_process() -> None:
    quiet()
    gc.disable()
    if hasattr(os, "nice"):
        os.nice(NICE)


class _Run:
    """What a process is sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, seed: int) -> Verdict:
        try:
            return simulate(seed, self._settings)
        except Exception as error:
            raise RuntimeError(f"the simulator failed at seed {seed}: {error!r}") from error


def quiet() -> None:
    """Leave out what the members log, and what ends with the simulated process."""
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)


class Total:
    """What has been run so far."""

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._began = self._shown = time.monotonic()
        self._faults: Counter[str] = Counter()
        self.locks: Counter[str] = Counter()
        """What happened to locks of which kind."""
        self.deeds = Met()
        self.sums: Counter[str] = Counter()
        self._simulated_s = 0.0
        self.seeds = 0
        self.failed: list[int] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def add(self, verdict: Verdict) -> None:
        tally = verdict.tally
        self.seeds += 1
        self._simulated_s += verdict.simulated_s
        self._faults.update(tally.faults)
        self.locks.update(tally.locks)
        self.deeds.update(tally.deeds)
        self.sums.update(
            operations=tally.operations,
            unknown=tally.unknown,
            commands=verdict.log_length,
            grants=tally.grants,
            changes=tally.events,
            expiries=tally.expiries,
            elections=tally.elections,
            snapshots=tally.snapshots_installed,
            reached=tally.reached,
        )
        if not verdict.is_fine:
            self.failed.append(verdict.seed)

    def show_progress(self) -> None:
        now = time.monotonic()
        if now - self._shown < PROGRESS_EVERY_S and self.seeds < self._planned:
            return
        self._shown = now
        left_s = self.seconds / self.seeds * (self._planned - self.seeds)
        print(
            f"\r{self.seeds}/{self._planned} seeds, {len(self.failed)} failed, "
            f"{self._simulated_s / 3600:.2f} simulated hours, {left_s:.0f} s to go   ",
            end="",
            file=sys.stderr,
            flush=True,
        )

    def row(self, start: int) -> dict[str, str]:
        """Return what was run as one row of the ledger."""
        counts = {"faults": sum(self._faults.values())}
        counts |= {name: self.sums[name] for name in COUNTED}
        return {
            "ended_utc": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "commit": commit_id(),
            "first_seed": str(start),
            "last_seed": str(start + self.seeds - 1),
            "simulated_hours": f"{self._simulated_s / 3600:.2f}",
            **{name: str(count) for name, count in counts.items()},
            "seconds": f"{self.seconds:.0f}",
            "failed_seeds": " ".join(map(str, self.failed)),
        }


def commit_id() -> str:
    """Return which code runs here; a + says that it is not quite that of the commit."""
    root, git = Path(__file__).resolve().parent, shutil.which("git")
    if git is None:
        return "unknown"

    def said(*words: str) -> str | None:
        done = subprocess.run([git, *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    changed = said("status", "--porcelain", "--untracked-files=no")
    return (said("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


def failure_text(verdict: Verdict, settings: Settings) -> str:
    """Return what somebody needs who is to find out why."""
    lines = [f"seed {verdict.seed}: {len(verdict.violations)} promises were broken"]
    lines += [f"  {violation}" for violation in verdict.violations[:10]]
    lines += [f"  the last of {verdict.line_total} lines of the trace:"]
    lines += [f"    {line}" for line in verdict.lines[-LAST_LINES:]]
    lines += [f"  replay: {replay_command(verdict.seed, settings)}"]
    return "\n".join(lines)


def replay_command(seed: int, settings: Settings) -> str:
    only = f" --faults {','.join(settings.only_faults)}" if settings.only_faults else ""
    return f"python -m tests.simulation --seed {seed} --seconds {settings.seconds:g}{only} --trace"
