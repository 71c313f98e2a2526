"""``python -m tests.simulation``: run many simulated worlds, or look at one.

    python -m tests.simulation --seeds 200               # seeds 0 to 199, on all cores
    python -m tests.simulation --seed 1234 --trace       # one world, with its whole trace
    python -m tests.simulation --seeds 5000 --ledger docs/simulation-ledger.csv

Every failure names its seed, the broken promise, the last events and the command that replays it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.simulation.campaign import Total, failure_text, quiet, verdicts
from tests.simulation.ledger import write_down
from tests.simulation.world import Settings, Verdict, simulate


def main() -> int:
    arguments = _arguments()
    quiet()
    settings = Settings(
        seconds=arguments.seconds,
        only_faults=tuple(filter(None, arguments.faults.split(","))),
        keep_lines=None if arguments.trace else 400,
    )
    if arguments.seed is not None:
        return _show(simulate(arguments.seed, settings), is_whole=arguments.trace)
    seeds = range(arguments.start, arguments.start + arguments.seeds)
    total = Total(len(seeds))
    try:
        for verdict in verdicts(seeds, settings, arguments.jobs):
            total.add(verdict)
            if not verdict.is_fine:
                print(file=sys.stderr)
                print(failure_text(verdict, settings), flush=True)
            total.show_progress()
            if arguments.minutes is not None and total.seconds > 60 * arguments.minutes:
                break
    except KeyboardInterrupt:
        pass  # what was run counts
    print(file=sys.stderr)
    if total.seeds:
        row = total.row(seeds.start)
        print(", ".join(f"{name} {value or 'none'}" for name, value in row.items()))
        if arguments.ledger is not None:
            write_down(row, arguments.ledger)
    return 1 if total.failed else 0


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
    parser.add_argument("--faults", default="", help="only these, each as often: crash_all,storm")
    parser.add_argument("--minutes", type=float, help="stop after so long")
    parser.add_argument("--ledger", type=Path, help="add one row about this run to a file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
