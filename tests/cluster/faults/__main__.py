"""``make faults``: do to real clusters what the rows of the matrix of faults say, and judge.

    python -m tests.cluster.faults [--rows 1,2,16-18] [--scale 1.0] [--members 3,5] [--seed N]
    python -m tests.cluster.faults --rows 4 --until 500 --minutes 9 --ledger FILE

Each row runs its "short" number of faults times ``--scale``. A row that this machine can not do is
skipped with its reason. At the end there is a table, and a line of JSON for each row that goes into
``--ledger`` too, as soon as the row is done. With ``--until N`` the rows are run again and again,
each time with another seed, until the ledger counts N faults of each, over all runs that wrote to
it: a long count can be taken in pieces. After ``--minutes`` nothing more is begun.

Exit status: 0 nothing violated and no pass mark missed, 1 something was, 2 wrong usage. A pass mark
of time that this machine is too busy for is not judged, and says so (``tests/cluster/marks.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cluster.faults import rows
from tests.cluster.faults.network import INSIDE
from tests.cluster.faults.world import Plan, Skipped, Tally
from tests.cluster.marks import Judged

_ROW_S_MAX = 1_500.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rows; return the exit status."""
    options = _options(arguments)
    _maybe_go_inside()
    plan = Plan(options.seed, options.scale, options.members, options.per_second, options.watchers)
    chosen = options.rows or list(rows.ORDER)
    print(f"seed {plan.seed}, scale {plan.scale}, members {plan.members}", flush=True)
    ledger = []
    end = time.monotonic() + 60 * options.minutes
    for number, seed in _turns(chosen, plan.seed, options):
        if time.monotonic() > end:
            print(f"{options.minutes:g} minutes are over", flush=True)
            break
        ledger.append(_run(number, replace(plan, seed=seed)))
        if options.ledger is not None:
            with options.ledger.open("a") as file:
                file.write(json.dumps(ledger[-1]) + "\n")
    _show(ledger)
    if options.until:
        for number in chosen:
            print(f"row {number}: {_counted_faults(options.ledger, number)} faults in all")
    for entry in ledger:
        print(json.dumps(entry))
    return 1 if any(entry["violations"] or entry["missed"] for entry in ledger) else 0


def _turns(
    chosen: Sequence[int], seed: int, options: argparse.Namespace
) -> Iterator[tuple[int, int]]:
    """Yield (row, seed): each row once, or until the ledger counts enough of its faults."""
    if not options.until:
        yield from ((number, seed) for number in chosen)
        return
    tries, is_short = 0, True
    while is_short and tries < options.until:
        short = [each for each in chosen if _counted_faults(options.ledger, each) < options.until]
        is_short = bool(short)
        yield from ((number, seed + tries) for number in short)
        tries += 1


def _counted_faults(ledger: Path, number: int) -> int:
    """Return how many faults of a row are in the ledger."""
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    return sum(entry["faults"] for entry in entries if entry["row"] == number)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.faults",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=_numbers, help="for example 1,2,16-18; default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of faults")
    parser.add_argument("--members", type=_sizes, default=(3, 5))
    parser.add_argument("--per-second", type=int, default=500, help="requests to register znodes")
    parser.add_argument("--watchers", type=int, default=20, help="of the whole tree")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--ledger", type=Path, help="a file that gets a line for each row")
    parser.add_argument("--until", type=int, default=0, help="faults of each row in the ledger")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which nothing is begun")
    options = parser.parse_args(arguments)
    if options.until and options.ledger is None:
        parser.error("--until counts what is in --ledger FILE")
    if options.until:
        options.ledger.touch()
    unknown = [n for n in options.rows or () if n not in rows.ROWS]
    if unknown:
        parser.error(f"no such rows: {unknown}; there are {sorted(rows.ROWS)}")
    return options


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _maybe_go_inside() -> None:
    """Run on in network and mount namespaces of our own, which end with us whatever happens.

    There nothing that rows do to networks and disks is seen by the rest of the machine. Without
    root, or where namespaces can not be made, we stay; the rows that need them are skipped.
    """
    if os.environ.get(INSIDE) or os.geteuid() != 0 or shutil.which("unshare") is None:
        return
    prefix = ["unshare", "--net", "--mount", "--propagation", "private", "--"]
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode != 0:
        return
    os.environ[INSIDE] = "1"
    script = 'ip link set lo up && exec "$@"'
    command = [*prefix, "sh", "-c", script, "sh", sys.executable, "-m", "tests.cluster.faults"]
    os.execvp("unshare", [*command, *sys.argv[1:]])  # noqa: S606


def _run(number: int, plan: Plan) -> dict[str, Any]:
    row, tally = rows.ROWS[number], Tally()
    title = (row.__doc__ or "").strip().splitlines()[0]
    skipped, began = None, time.monotonic()
    print(f"row {number}: {title}", flush=True)
    try:
        asyncio.run(asyncio.wait_for(row(plan, tally), _ROW_S_MAX))
    except Skipped as reason:
        skipped = str(reason)
        print(f"  skipped: {skipped}", flush=True)
    except Exception as error:
        traceback.print_exc()
        tally.violations.append(f"the row broke off: {error!r}")
    for line in tally.summary():
        print(f"  {line}", flush=True)
    for line in tally.violations:
        print(f"  VIOLATION {line}", flush=True)
    if tally.missed:
        print(f"  {len(tally.missed)} pass marks MISSED", flush=True)
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "row": number, "title": title, "seed": plan.seed, "members": list(plan.members),
        "faults": tally.faults, "kinds": dict(tally.kinds),
        "operations": tally.operations, "violations": tally.violations,
        "missed": tally.missed, "marks": [str(mark) for mark in tally.marks], "commit": _commit(),
        "notes": tally.summary(), "skipped": skipped,
        "seconds": round(time.monotonic() - began, 1), "machine": machine,
        "python": platform.python_version(),
    }  # fmt: skip


def _commit() -> str:
    """Return what git calls this source, with a + when it was changed since; "" without git."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _show(ledger: Sequence[dict[str, Any]]) -> None:
    titles = (
        "row | fault | count | operations | violations | marks kept/missed/not judged | seconds"
    )
    print(f"\n| {titles} |")
    print("|---|---|---|---|---|---|---|")
    for entry in ledger:
        count = f"skipped: {entry['skipped']}" if entry["skipped"] else entry["faults"]
        print(f"| {entry['row']} | {entry['title']} | {count} | {entry['operations']:,} "
              f"| {len(entry['violations'])} | {_counted(entry['marks'])} "
              f"| {entry['seconds']} |")  # fmt: skip
    print()


def _counted(found: Sequence[str]) -> str:
    counts = [sum(mark.startswith(f"{judged}:") for mark in found) for judged in Judged]
    return "/".join(map(str, counts))


if __name__ == "__main__":
    sys.exit(main())
