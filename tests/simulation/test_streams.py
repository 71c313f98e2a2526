"""Worlds whose clients speak the stream, over connections that break at random bytes."""

from __future__ import annotations

import pytest

from tests.met import Met
from tests.simulation.world import STREAMS_FROM, Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")


def judged(seeds: range, seconds: float) -> Met:
    met = Met()
    for seed in seeds:
        verdict = simulate(seed, Settings(seconds=seconds))
        assert not verdict.violations, f"seed {seed}"
        assert not verdict.problems, f"seed {seed}"
        met.update(verdict.tally.deeds)
    return met


def test_a_world_on_the_stream_keeps_every_promise() -> None:
    """Requests go over it, many to the leader; connections break, some with work on them."""
    met = judged(range(STREAMS_FROM, STREAMS_FROM + 1), 10)

    met.check(
        stream_request=300,
        stream_request_at_the_leader=100,
        stream_break=20,
        stream_break_under_way=5,
    )


@pytest.mark.check
def test_more_worlds_on_the_stream_keep_every_promise() -> None:
    """The same for longer, in ten worlds."""
    met = judged(range(STREAMS_FROM + 1, STREAMS_FROM + 11), 30)

    met.check(stream_request=7_000, stream_request_at_the_leader=3_000, stream_break=300)


def test_the_same_seed_makes_the_same_stream() -> None:
    """Where a connection breaks is drawn; and the worlds before these do not have it."""
    one, other = (simulate(STREAMS_FROM + 2, Settings(seconds=4)) for _ in range(2))
    before = simulate(1, Settings(seconds=2))

    assert one.trace_digest == other.trace_digest
    assert one.tally.deeds["stream_request"] > 0
    assert before.tally.deeds["stream_request"] == 0
