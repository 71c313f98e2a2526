"""Worlds in which quotas change while programs fill them, on members that lag and restore."""

from __future__ import annotations

import pytest

from tests.simulation.campaign import failure_text
from tests.simulation.world import Settings, Verdict, simulate

FAULTS = (
    "quotas", "kill_one", "crash_one", "cut_off", "cut_off_with_clients", "pause",
    "begin_from_snapshot", "lose_disk",
)  # fmt: skip
SETTINGS = Settings(seconds=10, only_faults=FAULTS)


def world(seed: int) -> Verdict:
    verdict = simulate(seed, SETTINGS)
    assert verdict.is_fine, failure_text(verdict, SETTINGS)
    return verdict


@pytest.mark.check
@pytest.mark.parametrize("seed", [4, 20, 24])
def test_no_member_ever_lets_anybody_have_more_than_its_quota(seed: int) -> None:
    """At every application; counts are those of a recount, and a refusal changes none."""
    deeds = world(seed).tally.deeds
    for each in ("turned on", "changed", "looked", "refused znodes", "refused bytes"):
        assert deeds[f"quotas: {each}"] >= 1, each


@pytest.mark.check
def test_every_quota_refuses_something_and_snapshots_are_installed() -> None:
    """Otherwise the others would show little."""
    deeds = world(20).tally.deeds
    for each in ("sessions", "znodes", "bytes", "waiters"):
        assert deeds[f"quotas: refused {each}"] >= 1, each
    assert deeds["quotas: restored"] >= 1
