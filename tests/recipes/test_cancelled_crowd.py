"""Many cancelled acquires leave nothing; the long run is in docs/evidence.md."""

from __future__ import annotations

import pytest

from tests.recipes.cancelled_crowd import against_real_members, in_memory


@pytest.mark.parametrize("count", [100, pytest.param(600, marks=pytest.mark.check)])
def test_hundreds_of_cancelled_acquires_leave_nothing(count: int) -> None:
    """No contender, no task, no withdrawal under way."""
    tally = in_memory(count)

    assert tally.left_overs() == {}
    assert tally.cancelled > count / 2


@pytest.mark.check
def test_hundreds_of_cancelled_acquires_leave_nothing_at_real_members() -> None:
    """The same with three members and sockets."""
    tally = against_real_members(400)

    assert tally.left_overs() == {}
    assert tally.cancelled > 200


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_a_hundred_thousand_cancelled_acquires_leave_nothing() -> None:
    """Nor does memory grow on and on: what is kept is bounded."""
    tally = in_memory(100_000)

    assert tally.left_overs() == {}
    assert tally.resident_kib[-1] - tally.resident_kib[4] < 32 * 1024


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_thousands_of_cancelled_acquires_leave_nothing_at_real_members() -> None:
    """The same with three members and sockets."""
    assert against_real_members(5_000).left_overs() == {}
