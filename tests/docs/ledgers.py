"""Tables of docs/evidence.md that are made from the ledgers beside it, files of CSV.

    python -m tests.docs.ledgers                    renews them
    python -m tests.docs.ledgers --faults FILE      adds the lines that `make faults` wrote to FILE

Each stands below a comment with its name. That of simulated worlds, whose ledger their runs write
themselves, is made by tests/simulation/ledger.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.simulation import ledger as worlds

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "evidence.md"
_TABLE = re.compile(
    r"(?<=<!-- ledger: )(\w[\w ]*)( -->\n).*?(?=\n<!-- end -->)", re.S
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
    parser = argparse.ArgumentParser(prog="python -m tests.docs.ledgers", description=__doc__)
    parser.add_argument("--faults", type=Path, help="what `make faults` wrote to its --ledger")
    if (faults := parser.parse_args().faults) is not None:
        add_faults(faults.read_text(encoding="utf-8").splitlines(), DOCS / "fault-ledger.csv")
    worlds.renew()
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
