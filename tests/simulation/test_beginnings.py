"""New clusters whose members come late and are cut from each other get a leader, and only one."""

from __future__ import annotations

import pytest

from coordinator.raft.elections import Elections
from tests.simulation.beginnings import NAMES
from tests.simulation.campaign import failure_text
from tests.simulation.plan import BEGINNINGS_EVERY
from tests.simulation.world import Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")

SETTINGS = Settings(seconds=0.5, only_faults=NAMES)
FOUND = (12, 21, 75, 97)
"""Worlds of five in which a candidate is proven by one vote, and stands in vain: no leader was
possible when it insisted that the lower id goes first."""


@pytest.mark.parametrize(
    "seed",
    [12, *(pytest.param(each, marks=pytest.mark.check) for each in (*FOUND[1:], *range(1, 10)))],
)
def test_a_new_cluster_gets_a_leader(seed: int) -> None:
    """Whoever was proven in vain, has died or was not heard meanwhile; and nothing is lost."""
    verdict = simulate(seed, SETTINGS)

    assert verdict.is_fine, failure_text(verdict, SETTINGS)
    assert verdict.tally.faults["begin_late"] == 1
    assert verdict.log_length > 10


def test_a_world_notices_that_a_new_cluster_gets_no_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement fails when nobody grants a vote."""
    monkeypatch.setattr(Elections, "on_vote_request", lambda *_: None)

    verdict = simulate(1, Settings(seconds=0.5, only_faults=NAMES, stops_at_first=True))

    assert verdict.violations[0].promise == "a new cluster gets a leader"


@pytest.mark.check
def test_some_seeds_begin_late_and_the_others_are_as_they_were() -> None:
    """They draw from a stream of their own, in seeds of their own."""
    drawn = simulate(BEGINNINGS_EVERY - 8, Settings(seconds=1))

    assert set(drawn.tally.faults) & set(NAMES)
    assert not set(simulate(0, Settings(seconds=1)).tally.faults) & set(NAMES)
