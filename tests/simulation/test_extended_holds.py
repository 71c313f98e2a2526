"""The judge of bounded holds: does it notice one that ends before its extended end?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.state.commands import EndHold, ExtendHold
from tests.simulation.test_lock_model import X0, enter, log_of, promises
from tests.state.values import changed


@pytest.mark.parametrize(
    ("extension", "at_s", "found"),
    [
        (ExtendHold(X0, czxid=3, by_ms=300, to_ms=0), 0.8, set()),
        (ExtendHold(X0, czxid=3, by_ms=300, to_ms=0), 0.7, {"bounded holds"}),
        (ExtendHold(X0, czxid=3, by_ms=0, to_ms=900), 0.95, set()),
        (ExtendHold(X0, czxid=3, by_ms=0, to_ms=900), 0.8, {"bounded holds"}),
        (ExtendHold(X0, czxid=3, by_ms=0, to_ms=100), 0.5, set()),
        (ExtendHold(X0, czxid=3, by_ms=0, to_ms=100), 0.3, {"bounded holds"}),
    ],
)
def test_a_hold_that_ends_before_its_extended_end_is_found(
    extension: ExtendHold, at_s: float, found: set[str]
) -> None:
    """By so much later, or not before so long from the extension; never nearer."""
    log = log_of(
        enter(max_hold_ms=500), 0.05, extension, at_s, EndHold(X0, czxid=3, term=1, extensions=1)
    )
    assert promises(log) == found


def test_an_end_that_knows_of_fewer_extensions_takes_nothing() -> None:
    """One that was ended by it all the same is found."""
    log = log_of(
        enter(max_hold_ms=500),
        ExtendHold(X0, czxid=3, by_ms=1, to_ms=0),
        0.6,
        EndHold(X0, czxid=3, term=1, extensions=1),
    )
    assert promises(log) == set()
    late = changed(log[-1].command, operation=EndHold(X0, czxid=3, term=1, extensions=0))
    assert "one's own grant" in promises([*log[:-1], replace(log[-1], command=late)])
