"""Worlds in which a leader leaves its syncs, sends its entries, and dies in between."""

from __future__ import annotations

import pytest

from tests.simulation.left_syncs import LEFT_FROM
from tests.simulation.world import Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [
        (LEFT_FROM, 2),
        pytest.param(LEFT_FROM, 8, marks=pytest.mark.check),
        *(pytest.param(LEFT_FROM + number, 20, marks=pytest.mark.check) for number in (2, 8, 15)),
    ],
)
def test_what_is_acknowledged_while_a_sync_was_left_is_not_lost(seed: int, seconds: int) -> None:
    """Power cuts between append, sending and sync: a quorum of the others has it, or nobody."""
    verdict = simulate(seed, Settings(seconds=seconds))

    assert verdict.is_fine, verdict.violations
    verdict.tally.deeds.check(sync_left=200)


def test_the_worlds_before_leave_none() -> None:
    """They are as they were."""
    assert simulate(1, Settings(seconds=2, settle_s=0.2)).tally.deeds["sync_left"] == 0
