"""``python -m tests.simulation``: run many simulated worlds, or look at one.

    python -m tests.simulation --seeds 200               # seeds 0 to 199, on all cores
    python -m tests.simulation --seed 1234 --trace       # one world, with its whole trace
    python -m tests.simulation --seeds 5000 --ledger simulation.ledger

Every failure names its seed, the broken promise, the last events and the command that replays it.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.simulation.world import Settings, Verdict, simulate

LAST_LINES = 60
PROGRESS_EVERY_S = 5.0


def main() -> int:
    arguments = _arguments()
    logging.disable(logging.CRITICAL)
    settings = Settings(seconds=arguments.seconds, keep_lines=None if arguments.trace else 400)
    if arguments.seed is not None:
        return _show(simulate(arguments.seed, settings), is_whole=arguments.trace)
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    total = Total(len(seeds))
    for verdict in verdicts(seeds, settings, arguments.jobs):
        total.add(verdict)
        if not verdict.is_fine:
            print(file=sys.stderr)
            print(failure_text(verdict, settings))
        total.show_progress()
        if arguments.minutes is not None and total.seconds > 60 * arguments.minutes:
            break
    print(file=sys.stderr)
    line = total.line(seeds.start)
    print(line)
    if arguments.ledger is not None:
        with Path(arguments.ledger).open("a", encoding="utf-8") as file:
            file.write(line + "\n")
    return 1 if total.failed else 0


def verdicts(seeds: range, settings: Settings, jobs: int) -> Iterator[Verdict]:
    """Run every seed, on ``jobs`` processes; in the order of the seeds."""
    if jobs == 1:
        for seed in seeds:
            yield simulate(seed, settings)
        return
    # Each process is used for some worlds only: what they leave in memory goes with it.
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs, initializer=_quiet, maxtasksperchild=50) as pool:
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


def _quiet() -> None:
    logging.disable(logging.CRITICAL)


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


def _show(verdict: Verdict, *, is_whole: bool) -> int:
    if is_whole:
        for line in verdict.lines:
            print(line)
    tally = verdict.tally
    print(f"seed {verdict.seed}: trace {verdict.trace_digest}, {verdict.line_total} lines")
    print(f"{verdict.simulated_s:.1f} simulated seconds, {verdict.log_length} commands, {tally}")
    for violation in verdict.violations:
        print(violation)
    print("every promise was kept" if verdict.is_fine else "PROMISES WERE BROKEN")
    return 0 if verdict.is_fine else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many worlds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=30.0, help="how long things go wrong")
    parser.add_argument("--seed", type=int, help="run this one world only")
    parser.add_argument("--trace", action="store_true", help="print all of its trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--ledger", help="append one line about this run to a file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
