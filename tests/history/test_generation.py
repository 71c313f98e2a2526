"""Made histories hold what their judges are about: overlaps, refusals, answers that got lost."""

from __future__ import annotations

import pytest

from tests.history.generation import Facts, Shape, generate
from tests.history.held import held
from tests.met import Met


def met_in(shape: Shape, seeds: range) -> Met:
    met = Met()
    for seed in seeds:
        met.update(held(generate(seed, shape)))
    return met


@pytest.mark.parametrize("facts", Facts)
@pytest.mark.parametrize("key_count", [1, 10])
def test_histories_hold_every_outcome(facts: Facts, key_count: int) -> None:
    """Of 2 000 operations hundreds overlap, and each kind of write comes to each of its ends."""
    met = met_in(Shape(200, key_count, 8, facts, unknown_ratio=0.3), range(10))

    met.check(
        overlapping=400, unknown=150, unknown_and_done=60, conditional=120, read_done=500,
        read_NoNode=100, create_done=40, create_NodeExists=25, create_unknown=30, set_done=120,
        set_NoNode=12, set_BadVersion=10, set_unknown=60, delete_done=20, delete_NoNode=5,
        delete_BadVersion=2, delete_unknown=15,
    )  # fmt: skip


def test_short_histories_overlap_too() -> None:
    """Those that are compared with brute force, six operations each, are no mere sequences."""
    met = met_in(Shape(6, 1, 3, write_ratio=0.75, unknown_ratio=0.4), range(500))

    met.check(overlapping=800, unknown=500, unknown_and_done=40, refused=400, set_done=200)


def test_one_client_alone_overlaps_only_with_what_got_lost() -> None:
    """The counter itself: a sequence has no overlap."""
    met = met_in(Shape(100, 1, 1), range(3))

    assert met["overlapping"] == met["unknown"] == 0
    assert met["read done"] > 0
