"""Many runs: on several processes, counted, and with a line for the ledger."""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.simulation.world import Settings, Verdict, simulate

LAST_LINES = 60
PROGRESS_EVERY_S = 5.0


def verdicts(seeds: Sequence[int], settings: Settings, jobs: int) -> Iterator[Verdict]:
    """Run every seed, on ``jobs`` processes; in the order of the seeds."""
    if jobs == 1:
        for seed in seeds:
            yield simulate(seed, settings)
        return
    # Each process is used for some worlds only: what they leave in memory goes with it.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=quiet, maxtasksperchild=50) as pool:
        yield from pool.imap(_Run(settings), seeds)


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
        self._sums: Counter[str] = Counter()
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
        self._sums.update(
            operations=tally.operations,
            unknown=tally.unknown,
            commands=verdict.log_length,
            grants=tally.grants,
            changes=tally.events,
            expiries=tally.expiries,
            elections=tally.elections,
            snapshots=tally.snapshots_installed,
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

    def line(self, start: int) -> str:
        """Return what was run in one line, for a ledger."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        sums = " ".join(f"{name}={count}" for name, count in self._sums.items())
        failed = ",".join(map(str, self.failed)) or "none"
        return (
            f"{when} seeds={start}..{start + self.seeds - 1} failed={failed} "
            f"simulated_hours={self._simulated_s / 3600:.2f} wall_seconds={self.seconds:.0f} "
            f"faults={sum(self._faults.values())} {sums}"
        )


def failure_text(verdict: Verdict, settings: Settings) -> str:
    """Return what somebody needs who is to find out why."""
    lines = [f"seed {verdict.seed}: {len(verdict.violations)} promises were broken"]
    lines += [f"  {violation}" for violation in verdict.violations[:10]]
    lines += [f"  the last of {verdict.line_total} lines of the trace:"]
    lines += [f"    {line}" for line in verdict.lines[-LAST_LINES:]]
    lines += [f"  replay: {replay_command(verdict.seed, settings)}"]
    return "\n".join(lines)


def replay_command(seed: int, settings: Settings) -> str:
    return f"python -m tests.simulation --seed {seed} --seconds {settings.seconds:g} --trace"
