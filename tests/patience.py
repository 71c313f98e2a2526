"""How much longer a limit of time is on a machine that has other things to do.

Limits of the suite are those of an idle machine. Where the work itself can be counted, or the
processor's clock says enough, a test is bounded by that; where it has to wait for other processes
and timers, its limit grows as the machine is busier, so that no neighbour decides a test.
"""

from __future__ import annotations

import os

import pytest

from coordinator.client.calling import deadline
from coordinator.client.locks import attempt, lock_queue
from coordinator.recipes import tree_lock


def busy() -> float:
    """Return how many wait for each core, 1 at least."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def patient(seconds: float) -> float:
    """Return a limit of an idle machine as it is now, here."""
    return seconds * busy()


@pytest.fixture
def unhurried_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the members have ten seconds for a verb that tries once, instead of one.

    For what is about something else, on real members: a busy machine can miss one second.
    """
    for module in (deadline, attempt, lock_queue, tree_lock):
        monkeypatch.setattr(module, "TRY_MS", 10_000)
