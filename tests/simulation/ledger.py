"""The ledger of long runs: a CSV file with a row for each part."""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LEDGER = ROOT / "docs" / "simulation-ledger.csv"
COLUMNS = (
    "ended_utc", "commit", "first_seed", "last_seed", "simulated_hours", "faults", "operations",
    "unknown", "commands", "grants", "changes", "expiries", "elections", "snapshots", "seconds",
    "failed_seeds",
)  # fmt: skip
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
