"""Many runs are counted and written down so that nothing is lost when somebody stops them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.simulation.campaign import Total
from tests.simulation.ledger import read, write_down
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
