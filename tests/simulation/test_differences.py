"""Members whose memory goes wrong are found in worlds, and what the worlds judge can fail."""

from __future__ import annotations

import pytest

from coordinator.raft.pysyncobj_engine import PySyncObjEngine
from coordinator.service.base.leadership import Leadership
from coordinator.service.comparing.divergence import Divergence
from tests.simulation.world import Settings, Verdict, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")


PROMISES = {
    "a member that differs is found", "a member that differs is silent", "stays up", "progress",
    "equal digests", "equal outcomes", "one log", "no task fails",
}  # fmt: skip
"""What a difference may not break; the others are judged where they are examined."""


def world_of(seed: int, stops_at_first: bool = False) -> Verdict:
    settings = Settings(
        seconds=20.0, only_faults=("plant_difference",), stops_at_first=stops_at_first
    )
    return simulate(seed, settings)


@pytest.mark.check
@pytest.mark.parametrize("seed", range(3))
def test_planted_differences_are_found_and_the_others_go_on(seed: int) -> None:
    """Several in each world, in leaders and followers, of each kind in some world."""
    verdict = world_of(seed)

    assert not [each for each in verdict.violations if each.promise in PROMISES]
    found = sum("is found to differ" in line for line in verdict.lines)
    assert sum(verdict.tally.faults.values()) >= 1
    assert found or len(verdict.lines) == 400, "or it is too long ago"


@pytest.mark.check
def test_a_world_without_comparison_notices_that_nobody_found_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judgement fails when members do not compare what they hold."""
    monkeypatch.setattr(Divergence, "look", lambda _self, _now_ms: None)

    broken = {each.promise for each in world_of(1, stops_at_first=True).violations}

    assert "a member that differs is found" in broken


def test_a_world_notices_a_member_that_goes_on_though_it_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The judgement fails when a member that was found answers all the same."""
    monkeypatch.setattr(PySyncObjEngine, "halt", lambda _self, _error, _note: None)
    monkeypatch.setattr(Leadership, "stop", lambda _self, _reason="": None)

    broken = {each.promise for each in world_of(1, stops_at_first=True).violations}

    assert "a member that differs is silent" in broken
