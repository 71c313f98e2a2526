"""Tables of docs/evidence.md that are made from the ledgers beside it, files of CSV.

python -m tests.docs.ledgers      renews them (`make ledger`)

Each stands below a comment with its name. The ledger of simulated worlds, which their runs write
themselves, has its own table (tests/simulation/ledger.py).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "evidence.md"
_TABLE = re.compile(
    r"(?<=<!-- made by `make ledger`: )(\w[\w ]*)( -->\n).*?(?=\n<!-- end -->)", re.S
)

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its head, and what it shows of a row."""

    head: str
    cell: Callable[[Row], str]


def _plain(head: str, name: str | None = None) -> Column:
    return Column(head, lambda row: row[name or head])


def _count(head: str, name: str | None = None) -> Column:
    return Column(head, lambda row: f"{int(row[name or head]):,}" if row[name or head] else "")


def killed_percent(row: Row) -> str:
    """Return how many of the mutants that are not harmless were killed."""
    harmful = int(row["tried"]) - int(row["harmless"])
    return f"{100 * int(row['killed']) / harmful:.1f}"


_COMMIT = Column("commit", lambda row: f"`{row['commit']}`" if row["commit"] else "")
_FIGURES = tuple(map(_plain, ("run", "figure", "value", "worst")))
TABLES: dict[str, tuple[str, tuple[Column, ...], Callable[[Row], bool]]] = {
    "faults": (
        "fault-ledger.csv",
        (
            *map(_plain, ("rows", "done")),
            _COMMIT,
            *map(_count, ("faults", "operations", "violations")),
        ),
        lambda row: True,
    ),
    "figures of faults": (
        "run-figures.csv",
        (_plain("row", "run"), _COMMIT, *map(_plain, ("figure", "value", "worst", "bound"))),
        lambda row: row["part"] == "faults",
    ),
    "mutation": (
        "mutation-ledger.csv",
        (
            Column("module", lambda row: f"`coordinator/{row['module']}`"),
            _COMMIT,
            _plain("one in", "every"),
            *map(_count, ("tried", "killed", "harmless")),
            Column("killed, %", killed_percent),
        ),
        lambda row: True,
    ),
    "bad input": (
        "bad-input-ledger.csv",
        (
            _plain("input"),
            *map(_count, ("fed", "accepted")),
            _plain("slowest"),
            _plain("memory, MiB", "memory_mib"),
        ),
        lambda row: True,
    ),
    **{
        part: ("run-figures.csv", _FIGURES, lambda row, part=part: row["part"] == part)
        for part in ("differences", "workers", "cancelled", "kinds", "kit")
    },
}  # fmt: skip


def read(name: str) -> list[Row]:
    """Return the rows of a ledger, oldest first."""
    with (DOCS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def table(name: str) -> str:
    """Return the Markdown table of this name, without its empty columns."""
    ledger, columns, belongs = TABLES[name]
    rows = [row for row in read(ledger) if belongs(row)]
    used = [column for column in columns if any(column.cell(row) for row in rows)]
    lines = [[column.head for column in used], ["---"] * len(used)]
    lines += [[column.cell(row) for column in used] for row in rows]
    return _joined(lines)


def _joined(lines: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def renewed(text: str) -> str:
    """Return a page with the tables of the ledgers as they are now."""
    return _TABLE.sub(lambda found: f"{found[1]}{found[2]}{table(found[1])}", text)


def shown(text: str) -> list[str]:
    """Return the names of the tables that a page has."""
    return [found[1] for found in _TABLE.finditer(text)]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
