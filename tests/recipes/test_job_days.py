"""A few days, or a year, of a daily job with everything that goes wrong; see ``job_days``."""

from __future__ import annotations

import pytest

from coordinator.recipes.jobs.ledger import Guarantee
from tests.recipes.job_days import years


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_each_day_is_done_once_in_some_days(guarantee: Guarantee) -> None:
    """Enough to see that the simulation runs."""
    years(1, 4, guarantee).check(days=4)


@pytest.mark.check
def test_each_day_is_done_once_in_a_season() -> None:
    """With deaths, lost answers, failures, changes of leader, and of the clocks of Berlin."""
    years(2, 100).check(days=100, killed=10, losing=20, failed=2, leaders=5, again=3)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
def test_each_day_is_done_once_in_years(guarantee: Guarantee) -> None:
    """Ten thousand days are `python -m tests.recipes.job_days`."""
    years(3, 1_000, guarantee).check(days=1_000, killed=100, losing=200, leaders=50)
