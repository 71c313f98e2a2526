"""What is found of a lock in its history: the rules, figures in, findings out."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.model.views import Spread
from coordinator.service.reporting.diagnosis import Acquisition, diagnosed, figures_of


def record(**changes: Any) -> Acquisition:
    """Return a grant that waited 10 ms and was held for 100 ms, but for the changes."""
    usual = Acquisition(entered_ms=1_000, granted_ms=1_010, ended_ms=1_110, how="released")
    return usual._replace(**changes)


def found(*records: Acquisition, **now: Any) -> list[str]:
    """Return the codes of what is found of a lock with this history."""
    return [each.code for each in diagnosed("daily", figures_of(records, **now)).findings]


def test_people_and_bounds_that_end_grants_are_named() -> None:
    """Forced, deleted and bounded ends are findings of their own."""
    three = [record(), record(how="forced"), record(how="deleted")]
    (forced,) = diagnosed("daily", figures_of(three)).findings

    assert forced.code == "forced-out"
    assert "2 of 3 grants ended by force (1 of them" in forced.why
    assert found(record(), record(how="max_hold")) == ["bounds-reached"]


def test_clocks_that_disagree_do_not_make_negative_times() -> None:
    """Wall times are labels: the worst they can do is to say 0."""
    figures = figures_of([record(granted_ms=500, ended_ms=400, entered_ms=900)])

    assert figures.waits == figures.holds == Spread(1, p50_ms=0, p95_ms=0, p99_ms=0, max_ms=0)
    assert figures.span_ms == 0


def test_nobody_waits_long_is_no_bottleneck() -> None:
    """A few milliseconds of waiting bother nobody, however short the holds are."""
    quick = record(entered_ms=1_000, granted_ms=1_040, ended_ms=1_041)

    assert found(quick, quick) == ["healthy"]


def in_turn(holds_ms: list[int], arrive_ms: list[int]) -> list[Acquisition]:
    """Return the grants of contenders that arrive then and hold it for so long, one by one."""
    records: list[Acquisition] = []
    free_ms = 0
    for arrived_ms, hold_ms in zip(arrive_ms, holds_ms, strict=True):
        granted_ms = max(arrived_ms, free_ms)
        free_ms = granted_ms + hold_ms
        records.append(record(entered_ms=arrived_ms, granted_ms=granted_ms, ended_ms=free_ms))
    return records


@pytest.mark.parametrize("long", [0, 5, 11])
def test_one_long_hold_does_not_hide_a_bottleneck(long: int) -> None:
    """Twelve at once, 60 ms each: a hiccup of 700 ms, whoever has it, changes nothing."""
    holds_ms = [60] * 12
    even = in_turn(holds_ms, [1_000] * 12)
    holds_ms[long] = 700
    uneven = in_turn(holds_ms, [1_000] * 12)

    assert found(*even) == found(*uneven) == ["wait-dominates"]
    assert figures_of(uneven).waiting_tenths == pytest.approx(55, abs=5)


def test_one_long_hold_does_not_make_a_bottleneck() -> None:
    """A lock wanted every 100 ms for 20 ms: who waits behind a holder that hung is no crowd."""
    holds_ms, arrive_ms = [20] * 20, [1_000 + 100 * number for number in range(20)]
    holds_ms[10] = 600
    records = in_turn(holds_ms, arrive_ms)
    waits = figures_of(records).waits

    assert waits is not None
    assert waits.p95_ms > 10 * 20
    assert found(*records) == ["healthy"]


def test_a_lock_with_a_queue_is_not_called_uncontended() -> None:
    """Somebody waits at this moment."""
    at_once = [record(is_at_once=True)] * 9

    assert found(*at_once) == ["never-contended"]
    assert found(*at_once, queue_length=1) == ["healthy"]


def test_the_worst_is_said_first() -> None:
    """A problem before a warning before a note."""
    lost = record(how="expired", silent_ms=9_000, ended_ms=99_000)
    now = {"lease_ms": 500, "refused_tries": 1, "lock_delay_ms": 60_000}

    assert found(record(), lost, **now) == [
        "lease-shorter-than-pauses", "closed-after-loss", "denied", "lease-shorter-than-holds",
    ]
