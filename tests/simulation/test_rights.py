"""Worlds in which access rights change while requests are under way, on members that lag."""

from __future__ import annotations

import pytest

from coordinator.node.build import is_compiled
from coordinator.service.watches.hub import WatchHub
from coordinator.state.access.guard import CommandGuard
from coordinator.state.access.table import AccessTable
from coordinator.state.locks.rights import LockRights
from tests.simulation.world import Settings, Verdict, simulate

FAULTS = ("rights", "kill_one", "crash_one", "cut_off", "cut_off_with_clients", "pause", "one_way")
TELLING = 4
"""A seed with many revocations."""


def world(seed: int, seconds: float = 12) -> Verdict:
    return simulate(seed, Settings(seconds=seconds, only_faults=FAULTS))


@pytest.mark.check
@pytest.mark.parametrize("seed", [TELLING, 9, 19])
def test_nothing_comes_of_a_right_that_is_gone(seed: int) -> None:
    """No read, write, grant or event after the zxid of its revocation, and no other promise broken;
    a definite refusal tells the truth."""
    verdict = world(seed)

    assert not verdict.violations
    deeds = verdict.tally.deeds
    for each in ("turned on", "revoked", "write", "read", "lock", "event told"):
        assert deeds[f"rights: {each}"] >= 1, each


PLANTED = {
    "a credential that is gone counts": (AccessTable, "is_current", lambda *_: True),
    "apply asks nobody": (CommandGuard, "check", lambda *_: None),
    "what waits is granted": (LockRights, "are_lost", lambda *_: False),
    "reads are shown to all": (AccessTable, "sees", lambda *_: True),
    "events are told to all": (AccessTable, "allows", lambda *_: True),
}
ALSO = {
    "events are told to all": ((WatchHub, "check"), (WatchHub, "check_stream")),
}
"""What else looks at the same, and would hide what is planted."""


@pytest.mark.check
@pytest.mark.skipif(is_compiled(), reason="compiled methods call each other, not what is planted")
@pytest.mark.parametrize("what", PLANTED)
def test_a_world_notices(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights that are not looked at in one place are found by what comes of it."""
    kind, name, wrong = PLANTED[what]
    monkeypatch.setattr(kind, name, wrong)
    for other, method in ALSO.get(what, ()):
        monkeypatch.setattr(other, method, lambda *_: None)

    # Two that show most, and others, should a change make other worlds of these.
    seeds = (TELLING, 9, *range(30))
    found = (each.promise for seed in seeds for each in world(seed).violations)

    assert "rights hold" in found
