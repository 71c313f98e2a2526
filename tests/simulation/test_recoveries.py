"""Clusters that an operator begins again go on, and the judgement of that can fail."""

from __future__ import annotations

from functools import cache

import pytest

from coordinator.raft.elections import Elections
from coordinator.raft.rejoin import refounding
from coordinator.raft.rejoin.recovering import Recovering
from tests.simulation import recoveries
from tests.simulation.campaign import failure_text
from tests.simulation.members import SimulatedMember
from tests.simulation.network import MemberNetwork
from tests.simulation.recoveries import NAMES
from tests.simulation.world import Settings, Verdict, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")

SETTINGS = Settings(seconds=4.0, only_faults=NAMES)


def broken(seed: int) -> str:
    settings = Settings(seconds=2.0, only_faults=NAMES, stops_at_first=True)
    violations = simulate(seed, settings).violations
    return violations[0].promise if violations else ""


@cache
def world_of(seed: int) -> Verdict:
    verdict = simulate(seed, SETTINGS)
    assert verdict.is_fine, failure_text(verdict, SETTINGS)
    assert verdict.tally.faults["begin_again"] == 1
    return verdict


@pytest.mark.check
@pytest.mark.parametrize("seed", range(1, 10))
def test_a_cluster_that_is_begun_again_goes_on(seed: int) -> None:
    """From whatever data, with members that come late and die again: one history, or two."""
    world_of(seed)


@pytest.mark.check
def test_something_is_lost_in_some_worlds_and_somebody_forgotten_in_some() -> None:
    """Otherwise the others would show little."""
    verdicts = [world_of(seed) for seed in range(4)]

    assert 0 < sum(verdict.tally.lost > 0 for verdict in verdicts) < len(verdicts)
    assert any("forget_a_member" in verdict.tally.faults for verdict in verdicts)


@pytest.mark.check
def test_a_world_notices_a_lead_without_votes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement fails when who has no vote votes and stands all the same."""
    boot = recoveries.Recovery._boot

    async def boot_with_votes(self: recoveries.Recovery, members: list[SimulatedMember]) -> None:
        for name, value in (("is_proven", True), ("may_campaign", True), ("is_new", False)):
            monkeypatch.setattr(Recovering, name, value)
        await boot(self, members)

    monkeypatch.setattr(recoveries.Recovery, "_boot", boot_with_votes)

    assert broken(1) in ("one leader", "members say what is missing")


@pytest.mark.check
def test_a_world_notices_that_the_former_life_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement fails when nobody compares the ids of clusters."""
    monkeypatch.setattr(MemberNetwork, "disagreement", lambda *_: "")

    assert "the former life is refused" in (broken(seed) for seed in range(6))


@pytest.mark.check
def test_a_world_notices_that_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement fails when nobody grants a vote any more."""
    found = recoveries.Recovery._found

    def found_and_refuse(self: recoveries.Recovery, *rest: object) -> None:
        found(self, *rest)  # type: ignore[arg-type]
        monkeypatch.setattr(Elections, "on_vote_request", lambda *_: None)

    monkeypatch.setattr(recoveries.Recovery, "_found", found_and_refuse)

    assert broken(1) == "a cluster begins again"


@pytest.mark.check
def test_a_world_notices_that_the_best_data_are_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judgement fails when what was acknowledged is lost though no disk is."""
    replay = refounding.HeldData.replay

    def forgetful(self: refounding.HeldData, replica: recoveries.Held) -> refounding.Position:
        self._log.deleteEntriesFrom(max(1, len(self._log) - 3))
        return replay(self, replica)

    monkeypatch.setattr(refounding.HeldData, "replay", forgetful)

    assert "acknowledged writes stay" in (broken(seed) for seed in range(4))
