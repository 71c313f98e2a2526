"""Worlds in which settings, releases and lists differ: they happen, and nothing comes of it."""

from __future__ import annotations

import pytest

from tests.simulation.changed_settings import NAMES
from tests.simulation.plan import SETTINGS_EVERY
from tests.simulation.world import Settings, simulate

JUDGED = ("equal outcomes", "equal digests", "one log", "one release", "one leader", "stays up")
"""What other settings could break first; campaigns judge every promise in these worlds, too."""

QUICK = "change_release"
"""A world of these takes the least time."""
FEW_GRANTS = 28
"""A seed in which one command grants to one."""


@pytest.mark.parametrize(
    "name",
    [each if each == QUICK else pytest.param(each, marks=pytest.mark.check) for each in NAMES],
)
def test_what_members_differ_in_changes_no_outcome(name: str) -> None:
    """The limits of the state hold, and whoever would decide otherwise gets nowhere."""
    verdict = simulate(3, Settings(seconds=6, only_faults=(name,)))

    assert not [each for each in verdict.violations if each.promise in JUDGED]
    assert verdict.tally.faults[name] >= 1


@pytest.mark.check
def test_some_seeds_have_them_and_the_others_are_as_they_were() -> None:
    """They draw from a stream of their own, in seeds of their own."""
    with_changes = simulate(SETTINGS_EVERY - 2, Settings(seconds=3, only_faults=("crash_one",)))
    assert not set(with_changes.tally.faults) & set(NAMES)

    drawn = simulate(SETTINGS_EVERY - 2, Settings(seconds=8))
    assert set(drawn.tally.faults) & set(NAMES)


@pytest.mark.check
def test_some_grants_are_left_for_commands_that_follow() -> None:
    """Of worlds whose limits are small: who may hold waits for the next command, and no longer."""
    verdict = simulate(FEW_GRANTS, Settings(seconds=15))

    assert not verdict.violations
    assert verdict.tally.locks["left for later"] >= 1
    assert verdict.tally.locks["granted later"] >= 1
