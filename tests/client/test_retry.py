"""Backoff: exponential, capped, jittered, repeatable."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.client import RetryPolicy
from coordinator.errors import BadArgumentsError


def test_delays_stay_below_a_ceiling_that_doubles_up_to_the_cap() -> None:
    """Each delay lies between zero and base times two to the tries, capped."""
    policy = RetryPolicy(base_ms=100, cap_ms=1_000)
    source = policy.source()

    for failures, ceiling in [(1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (50, 1_000)]:
        delays = [policy.delay_ms(failures, source) for _ in range(500)]

        assert 0 <= min(delays) <= max(delays) <= ceiling
        assert max(delays) > ceiling * 0.9


def test_a_thousand_clients_that_fail_together_come_back_spread_out() -> None:
    """Full jitter leaves no synchronized spike when all lose the leader at once."""
    policy = RetryPolicy(base_ms=500, cap_ms=2_000)
    delays = [
        RetryPolicy(base_ms=500, cap_ms=2_000, seed=client).delay_ms(
            1, RetryPolicy(seed=client).source()
        )
        for client in range(1_000)
    ]

    in_each_tenth = [sum(50 * n <= delay < 50 * (n + 1) for delay in delays) for n in range(10)]

    assert policy.jitter == 1.0
    assert max(in_each_tenth) < 160  # 100 on average; all 1 000 in one tenth without jitter


def test_a_seed_makes_the_delays_repeatable() -> None:
    """Two policies with one seed draw the same delays."""
    one, other = RetryPolicy(seed=7), RetryPolicy(seed=7)
    first, second = one.source(), other.source()

    assert [one.delay_ms(n, first) for n in range(1, 9)] == [
        other.delay_ms(n, second) for n in range(1, 9)
    ]


def test_jitter_can_be_turned_off_only_on_request() -> None:
    """The share of chance is honoured, and is the whole delay by default."""
    steady = RetryPolicy(base_ms=100, cap_ms=800, jitter=0.0)
    source = steady.source()

    assert [steady.delay_ms(n, source) for n in (1, 2, 3, 4, 5)] == [100, 200, 400, 800, 800]
    assert RetryPolicy().jitter > 0


@pytest.mark.parametrize(
    "wrong", [{"base_ms": 0}, {"base_ms": 10, "cap_ms": 5}, {"tries": 0}, {"jitter": 1.5}]
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    """A wrong number is named at once, not found out during an outage."""
    with pytest.raises(BadArgumentsError):
        RetryPolicy(**wrong)
