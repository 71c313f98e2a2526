"""Many runs are counted and written down so that nothing is lost when somebody stops them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.simulation.campaign import Total
from tests.simulation.ledger import COLUMNS, read, shown, table, write_down
from tests.simulation.record import Violation
from tests.simulation.world import Settings, simulate


def test_a_part_of_a_long_run_is_a_row_of_the_ledger(tmp_path: Path) -> None:
    """The row says which code, which seeds, how much happened, and which seeds failed."""
    total, ledger = Total(3), tmp_path / "ledger.csv"
    verdict = simulate(7, Settings(seconds=1.0))

    for seed, violations in ((7, []), (8, [Violation("once", "twice", 3.0)])):
        total.add(replace(verdict, seed=seed, violations=violations))
    write_down(total.row(7), ledger)
    write_down(total.row(7), ledger)

    row, again = read(ledger)
    assert row == again
    assert (row["first_seed"], row["last_seed"]) == ("7", "8")
    assert row["operations"] == str(2 * verdict.tally.operations)
    assert row["failed_seeds"] == "8"


def test_the_table_of_the_docs_is_that_of_the_ledger() -> None:
    """`python -m tests.docs.ledgers` renews it."""
    assert shown() == table(read())


def test_the_table_sums_up_each_commit() -> None:
    """And everything, with the seeds that failed."""
    part = dict.fromkeys(COLUMNS, "1000") | {"simulated_hours": "0.25", "failed_seeds": ""}
    rows = [
        part | {"commit": "a", "first_seed": "1", "last_seed": "10"},
        part | {"commit": "a", "first_seed": "11", "last_seed": "30", "failed_seeds": "12 13"},
        part | {"commit": "b", "first_seed": "1", "last_seed": "5"},
    ]

    *_, first, second, total = table(rows).splitlines()

    assert first == "| `a` | 30 | 0.5 | 2,000 | 2,000 | 2,000 | 2,000 | 2,000 | 12 13 |"
    assert second == "| `b` | 5 | 0.2 | 1,000 | 1,000 | 1,000 | 1,000 | 1,000 | none |"
    assert total == "| all | 35 | 0.8 | 3,000 | 3,000 | 3,000 | 3,000 | 3,000 |  |"
