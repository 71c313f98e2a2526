"""The list in docs/evidence.md that sums up the ledgers beside it, files of CSV.

python -m tests.docs.ledgers                    renews it
python -m tests.docs.ledgers --faults FILE      adds the lines that `make faults` wrote to FILE
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "evidence.md"
_SUMS = re.compile(r"(?<=<!-- ledgers -->\n).*?(?=\n<!-- end -->)", re.S)

Row = dict[str, str]


def of_faults(line: str) -> Row:
    """Return a line of ``make faults --ledger`` as a row of the ledger of faults."""
    done = json.loads(line)
    return {
        "day": done["day"],
        "commit": done["commit"],
        "seed": str(done["seed"]),
        "members": " ".join(map(str, done["members"])),
        "rows": str(done["row"]),
        "done": done["title"].rstrip("."),
        "faults": str(done["faults"]),
        "operations": str(done["operations"]),
        "violations": str(len(done["violations"])),
        "remark": "; ".join([*done["marks"], *done["notes"]]),
    }


def add_faults(lines: Iterable[str], ledger: Path) -> None:
    """Add what ran to the ledger of faults; skipped rows are left out."""
    ran = [line for line in lines if json.loads(line)["skipped"] is None]
    with ledger.open(encoding="utf-8", newline="") as file:
        columns = next(csv.reader(file))
    with ledger.open("a", encoding="utf-8", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writerows(map(of_faults, ran))


def read(name: str) -> list[Row]:
    """Return the rows of a ledger, oldest first."""
    with (DOCS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _sum(rows: Iterable[Row], column: str) -> int:
    return sum(int(row[column] or 0) for row in rows)


def sums() -> str:
    """Return a Markdown list of what all runs together did and found."""
    worlds, faults = read("simulation-ledger.csv"), read("fault-ledger.csv")
    mutants, inputs = read("mutation-ledger.csv"), read("bad-input-ledger.csv")
    seeds = sum(int(row["last_seed"]) - int(row["first_seed"]) + 1 for row in worlds)
    hours = math.fsum(float(row["simulated_hours"]) for row in worlds)
    failed = " ".join(row["failed_seeds"] for row in worlds if row["failed_seeds"])
    harmful = _sum(mutants, "tried") - _sum(mutants, "harmless")
    lines = (
        f"**[Simulated worlds](simulation-ledger.csv)**: {seeds:,} seeds, {hours:.1f} h, "
        f"{_sum(worlds, 'faults'):,} faults, {_sum(worlds, 'operations'):,} operations, "
        f"{_sum(worlds, 'grants'):,} grants. Failed seeds: {failed}.",
        f"**[Faults of real processes](fault-ledger.csv)**, with [figures](run-figures.csv): "
        f"{_sum(faults, 'faults'):,} faults, {_sum(faults, 'operations'):,} operations, "
        f"{_sum(faults, 'violations')} violations.",
        f"**[Mutants by machine](mutation-ledger.csv)**: {_sum(mutants, 'tried'):,} in "
        f"{len(mutants)} modules; {_sum(mutants, 'killed'):,} of the {harmful:,} that are not "
        "harmless were killed.",
        f"**[Bad input](bad-input-ledger.csv)**: {_sum(inputs, 'fed'):,} inputs of {len(inputs)} "
        f"kinds, of which {_sum(inputs, 'accepted'):,} were valid.",
    )
    filled = [fill(line, 100, initial_indent="- ", subsequent_indent="  ") for line in lines]
    return "\n".join(filled)


def renewed(text: str) -> str:
    """Return a page with the sums of the ledgers as they are now."""
    return _SUMS.sub(lambda _: sums(), text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.docs.ledgers", description=__doc__)
    parser.add_argument("--faults", type=Path, help="what `make faults` wrote to its --ledger")
    if (faults := parser.parse_args().faults) is not None:
        add_faults(faults.read_text(encoding="utf-8").splitlines(), DOCS / "fault-ledger.csv")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
