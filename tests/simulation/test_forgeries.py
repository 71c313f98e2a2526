"""Worlds in which one member lies: it costs time and no vote, and the judgement can fail."""

from __future__ import annotations

import pytest

from coordinator.raft import consensus
from coordinator.raft.rejoin import incarnations
from tests.simulation.forgeries import NAMES
from tests.simulation.plan import FORGERIES_EVERY
from tests.simulation.world import Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")


@pytest.mark.check
@pytest.mark.parametrize("seed", range(3))
def test_one_liar_breaks_no_promise(seed: int) -> None:
    """What it makes up, and what it repeats of what it was shown."""
    verdict = simulate(seed, Settings(seconds=10, only_faults=NAMES))

    assert not verdict.violations
    assert verdict.tally.faults["forge"] >= 3


@pytest.mark.check
@pytest.mark.parametrize(("where", "name"), [(consensus, "is_own"), (incarnations, "is_own_seal")])
def test_a_world_notices_that_a_liar_is_believed(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    """The judgement fails when a member takes any seal for its own."""
    monkeypatch.setattr(where, name, lambda *_: True)
    for seed in (7, 1, *range(12)):  # the first two notice it today, one of them each
        verdict = simulate(seed, Settings(seconds=10, only_faults=NAMES))
        if "one liar takes no vote" in {each.promise for each in verdict.violations}:
            return

    raise AssertionError("nobody noticed")


@pytest.mark.check
def test_some_seeds_have_a_liar_and_the_others_are_as_they_were() -> None:
    """It draws from a stream of its own, in seeds of its own."""
    honest = simulate(FORGERIES_EVERY - 5, Settings(seconds=4))
    assert not set(honest.tally.faults) & set(NAMES)

    lying = simulate(FORGERIES_EVERY - 4, Settings(seconds=8))
    assert set(lying.tally.faults) & set(NAMES)
