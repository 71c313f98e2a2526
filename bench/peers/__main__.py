"""What ``make bench-peers`` runs: ours beside etcd, ZooKeeper and Redis, in one run.

Three members each on loopback, everything synced, the same generator against all, peers warmed up,
interleaved rounds. A peer that is not installed is named with the command that installs it. The
whole takes about 20 minutes on two idle cores, ``--quick`` five without the long row.

    python -m bench.peers                       # all rows, into docs/benchmarks/
    python -m bench.peers --rows lock-64,kill   # these rows alone
    python -m bench.peers --resume              # go on after an interrupted run
    python -m bench.peers --report              # the table and the plots again, from the JSON
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from bench.peers import report, special
from bench.peers.rows import BY_NAME, ROWS, Row
from bench.peers.runner import Progress, Run
from bench.peers.systems import ROOT, SYSTEMS, missing

OUTPUT = ROOT / "docs" / "benchmarks" / "results.json"


def main() -> int:
    arguments = _arguments()
    if arguments.list:
        for row in ROWS:
            print(f"{row.name:<16} {row.what}")
        return 0
    if arguments.report:
        report.write(arguments.output)
        return 0
    absent = missing()
    for text in absent.values():
        print(text, file=sys.stderr)
    names = [each for each in arguments.systems if each not in absent]
    seconds, rounds = (0.5, 1) if arguments.quick else (arguments.seconds, arguments.rounds)
    run = Run(names, arguments.output, seconds=seconds, rounds=rounds)
    run.results["missing"] = absent
    rows = _chosen(arguments, run.resume() if arguments.resume else set())
    progress = Progress(sum(_steps(row, run) for row in rows))
    try:
        run.start()
        if any(not row.is_special for row in rows):
            warm_s = 3.0 if arguments.quick else arguments.warm
            progress.step("warming up", 0)
            run.warm_up(BY_NAME["write-64"], warm_s)
        for row in rows:
            if row.is_special:
                special.measure(row, run, progress)
            else:
                run.measure(row, progress)
    finally:
        run.stop()
    if rows:
        report.write(arguments.output)
    return 0


def _steps(row: Row, run: Run) -> int:
    return len(row.adapters) * (1 if row.is_special else run.rounds)


def _chosen(arguments: argparse.Namespace, done: set[str]) -> list[Row]:
    if arguments.rows:
        unknown = [each for each in arguments.rows if each not in BY_NAME]
        if unknown:
            raise SystemExit(f"no rows {', '.join(unknown)}; --list says which there are")
        return [BY_NAME[each] for each in arguments.rows if each not in done]
    left = [row for row in ROWS if row.name not in done]
    return [row for row in left if not (arguments.quick and row.is_long)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip

    def names(text: str) -> list[str]:
        return text.split(",")

    parser.add_argument("--rows", type=names, default=[], help="these alone; see --list")
    parser.add_argument("--systems", type=names, default=list(SYSTEMS))
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=float, default=15.0, help="seconds for each system, before")
    parser.add_argument("--quick", action="store_true", help="one short round, no long rows")
    parser.add_argument("--resume", action="store_true", help="leave out rows that are in the JSON")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--report", action="store_true", help="only write table and plots")
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
