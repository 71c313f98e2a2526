"""A short part of ``make faults`` in the fast suite: one of each kind that needs no root."""

from __future__ import annotations

import random

import pytest

from tests.cluster.faults.rows import ORDER, ROWS
from tests.cluster.faults.world import Plan, Skipped, Tally

pytestmark = pytest.mark.check


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [11, 13, 17, 19])
async def test_a_fault_of_each_kind(number: int) -> None:
    """Lying wall clocks, a failed sync, damaged files, no files left: nothing promised breaks."""
    seed, tally = random.randrange(10**6), Tally()
    try:
        await ROWS[number](Plan(seed, scale=0.1, members=(3,), per_second=80, watchers=3), tally)
    except Skipped as reason:
        pytest.skip(str(reason))

    print("\n".join([f"seed {seed}", *tally.summary()]))
    assert not tally.violations, "\n".join([f"seed {seed}", *tally.violations])
    assert tally.faults > 0


def test_every_row_is_run_and_says_what_it_does() -> None:
    """The order names each row once: 1 to 22 and 25 to 29."""
    assert sorted(ORDER) == sorted(ROWS) == [*range(1, 23), *range(25, 30)]
    assert all(row.__doc__ for row in ROWS.values())
