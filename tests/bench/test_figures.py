"""The arithmetic of the benches: what is said of a measurement is what was measured."""

from __future__ import annotations

import math
import os
import time

import pytest

from bench.peers.figures import (
    Spread,
    best,
    cpu_of_stat,
    cpu_seconds,
    memory_bytes,
    percentile,
    plain,
    round_figures,
    summary,
)


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 1), (1, 1), (50, 50), (50.1, 51), (99, 99), (99.9, 100), (100, 100)],
)
def test_a_percentile_is_one_of_the_values(percent: float, expected: int) -> None:
    """The least that so many of a hundred do not exceed."""
    assert percentile(range(1, 101), percent) == expected


def test_of_nothing_there_is_no_percentile_and_no_spread() -> None:
    """No operation finished: that is said, and not taken for zero."""
    assert math.isnan(percentile([], 50))
    assert math.isnan(Spread.of([]).median)
    assert math.isnan(round_figures([], 1.0, 0.5, 0.5)["servers_us"])
    assert plain(Spread.of([])) == {"median": None, "least": None, "greatest": None}


def test_rounds_become_a_median_with_both_ends() -> None:
    """One round that was disturbed does not move the figure."""
    rounds = [{"per_second": each} for each in (100.0, 5.0, 102.0)]

    assert summary(rounds) == {"per_second": Spread(100.0, 5.0, 102.0)}
    assert Spread.of([1.0, 3.0, math.nan]) == Spread(2.0, 1.0, 3.0)


def test_a_round_is_rates_latencies_and_processor_time_of_each_operation() -> None:
    """Of 200 operations in 2 s, of which servers used 0.5 s and the client 0.1 s."""
    found = round_figures([0.001] * 198 + [0.02, 0.03], 2.0, 0.5, 0.1)

    assert found == pytest.approx(
        {
            "operations": 200, "per_second": 100, "p50_ms": 1, "p99_ms": 1, "p999_ms": 30,
            "servers_us": 2500, "client_us": 500,
        }
    )  # fmt: skip


def test_processor_time_is_read_behind_any_name() -> None:
    """A process may call itself ``a) b (c``."""
    fields = ["S", *(str(each) for each in range(1, 11)), "100", "50", "7", "3", "20"]
    text = f"12 (a) b (c) {' '.join(fields)}"

    assert cpu_of_stat(text) == pytest.approx(160 / os.sysconf("SC_CLK_TCK"))


def test_processor_time_of_this_process_grows_with_work() -> None:
    """Within the grain of the operating system's clock; a process that has ended counts nothing."""
    before = cpu_seconds([os.getpid(), 2**22 + 1])
    began = time.process_time()
    while time.process_time() - began < 0.05:
        pass

    assert 0.02 <= cpu_seconds([os.getpid()]) - before <= 0.5
    assert memory_bytes(os.getpid()) > 1_000_000


def test_the_best_is_of_those_that_were_measured() -> None:
    """A peer that is missing is no zero."""
    found = {"etcd": 3.0, "zookeeper": math.nan, "redis": 9.0}

    assert best(found, ["etcd", "zookeeper"]) == 3.0
    assert best(found, ["etcd", "redis"], is_least=True) == 3.0
    assert math.isnan(best(found, ["zookeeper", "none"]))
