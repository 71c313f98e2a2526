"""The conformance kit: tries any guard, yours too, and says in plain words what is wrong with it.

You write a factory that opens a handle on a named value behind your guard (``subject``)::

    class Report:
        def __init__(self, name): ...
        def write(self, token, value): ...     # StaleTokenError if a higher token has been seen
        def read(self): ...                    # None before the first write
        def raise_to(self, token): ...
        def write_numbered(self, token, number, value): ...     # if your guard knows write numbers

From a test::

    from coordinator.guards.conformance import TRIALS, try_guard

    @pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
    def test_my_guard(trial):
        assert try_guard(Report, trial) is None

(and the same with ``NUMBER_TRIALS``, if it knows write numbers).

From the shell::

    python -m coordinator.guards.conformance my_package.reports:Report

A clean run proves what was tried: on this machine, against this store as it is set up now. It does
not try power loss, failover or a store that ignores its own conditions under load.
"""

from coordinator.guards.conformance.examination import (
    NUMBER_TRIALS,
    TRIALS,
    Finding,
    examine,
    try_guard,
)
from coordinator.guards.conformance.subject import GuardedValue
from coordinator.guards.conformance.trials import Trial

__all__ = ["examine", "try_guard", "TRIALS", "NUMBER_TRIALS", "Trial", "Finding", "GuardedValue"]
