"""What was run is data: docs/evidence.md sums up the ledgers beside it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.docs.ledgers import DOCS, PAGE, add_faults, read, renewed, sums


def test_the_docs_sum_up_the_ledgers() -> None:
    """`python -m tests.docs.ledgers` renews it."""
    page = PAGE.read_text(encoding="utf-8")

    assert renewed(page) == page
    assert sums() in page


@pytest.mark.parametrize("name", sorted(path.name for path in DOCS.glob("*.csv")))
def test_each_row_of_a_ledger_says_when_or_at_which_commit(name: str) -> None:
    """A figure without either could not be compared with a later one."""
    for row in read(name):
        assert None not in row, f"{name}: more cells than columns: {row}"
        assert None not in row.values(), f"{name}: fewer cells than columns: {row}"
        assert row.get("day") or row["commit"], f"{name}: {row}"


def test_what_a_run_of_faults_wrote_is_added_to_the_ledger(tmp_path: Path) -> None:
    """A row of the matrix is a row of the ledger, with its marks; one that was skipped is none."""
    ledger = tmp_path / "faults.csv"
    ledger.write_bytes((DOCS / "fault-ledger.csv").read_bytes())
    ran = {
        "day": "2026-12-01", "commit": "abc1234", "seed": 7, "members": [3, 5], "row": 4,
        "title": "Power cuts of one, most, all.", "faults": 10, "operations": 5_000,
        "violations": [], "marks": ["kept: serving: 1.6 s"], "notes": ["all started"],
        "skipped": None,
    }  # fmt: skip

    add_faults(map(json.dumps, [ran, ran | {"skipped": "needs root"}]), ledger)

    with ledger.open(encoding="utf-8", newline="") as file:
        *before, added = csv.DictReader(file)
    assert before == read("fault-ledger.csv")
    assert (added["rows"], added["faults"], added["violations"]) == ("4", "10", "0")
    assert added["done"] == "Power cuts of one, most, all"
    assert added["remark"] == "kept: serving: 1.6 s; all started"


def test_every_ledger_is_named_on_the_page() -> None:
    """So that a reader finds the columns that the tables leave out."""
    page = PAGE.read_text(encoding="utf-8")

    assert [each.name for each in DOCS.glob("*.csv") if f"({each.name})" not in page] == []
