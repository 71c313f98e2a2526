"""The ledger of long runs: a CSV file with a row for each part, and the table of it in the docs.

python -m tests.docs.ledgers      renews the table in docs/evidence.md
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LEDGER = ROOT / "docs" / "simulation-ledger.csv"
PAGE = ROOT / "docs" / "evidence.md"
COLUMNS = (
    "ended_utc", "commit", "first_seed", "last_seed", "simulated_hours", "faults", "operations",
    "unknown", "commands", "grants", "changes", "expiries", "elections", "snapshots", "seconds",
    "failed_seeds",
)  # fmt: skip
_SUMS = ("faults", "operations", "unknown", "grants", "elections")
_HEADS = ("commit", "seeds", "hours", *_SUMS, "failed seeds")
_BEGIN = "<!-- ledger -->\n"
_END = "\n<!-- end -->"
_BETWEEN = re.compile(f"(?<={re.escape(_BEGIN)}).*?(?={re.escape(_END)})", re.DOTALL)

Row = dict[str, str]


def read(ledger: Path = LEDGER) -> list[Row]:
    """Return the rows of a ledger, oldest first."""
    with ledger.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_down(row: Row, ledger: Path) -> None:
    """Add a row to a ledger, which is begun if it is not there."""
    is_new = not ledger.exists()
    with ledger.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def table(rows: Iterable[Row]) -> str:
    """Return a Markdown table with the sums of each commit, and of all."""
    every = list(rows)
    lines = [" | ".join(each) for each in (_HEADS, ["---"] * len(_HEADS))]
    for commit in dict.fromkeys(row["commit"] for row in every):
        parts = [row for row in every if row["commit"] == commit]
        lines.append(" | ".join((f"`{commit}`", *_sums(parts))))
    lines.append(" | ".join(("all", *_sums(every)[:-1], "")))
    return "\n".join(f"| {line} |" for line in lines)


def shown(page: Path = PAGE) -> str:
    """Return the table that the page has now."""
    found = _BETWEEN.search(page.read_text(encoding="utf-8"))
    assert found, f"{page}: no table between {_BEGIN!r} and {_END!r}"
    return found[0]


def renew(page: Path = PAGE, ledger: Path = LEDGER) -> None:
    """Write the table of the ledger into the page."""
    text = page.read_text(encoding="utf-8")
    page.write_text(_BETWEEN.sub(lambda _: table(read(ledger)), text, count=1), encoding="utf-8")


def _sums(rows: list[Row]) -> list[str]:
    seeds = sum(int(row["last_seed"]) - int(row["first_seed"]) + 1 for row in rows)
    hours = math.fsum(float(row["simulated_hours"]) for row in rows)  # the same on each Python
    failed = " ".join(row["failed_seeds"] for row in rows if row["failed_seeds"])
    counts = [f"{sum(int(row[name]) for row in rows):,}" for name in _SUMS]
    return [f"{seeds:,}", f"{hours:.1f}", *counts, failed or "none"]

