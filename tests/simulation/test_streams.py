"""Worlds whose clients speak the stream, over connections that break at random bytes."""

from __future__ import annotations

import pytest

from tests.simulation.plan import STREAMS_FROM
from tests.simulation.world import Settings, simulate

pytestmark = pytest.mark.usefixtures("is_quiet")

COUNTED = (
    "stream_request", "stream_request_at_the_leader", "stream_break", "stream_break_under_way",
)  # fmt: skip
LEAST = (300, 100, 20, 5)
"""How often each of these happens in ten seconds."""


@pytest.mark.parametrize(
    ("seconds", "least"), [(2, (80, 20, 3, 1)), pytest.param(10, LEAST, marks=pytest.mark.check)]
)
def test_a_world_on_the_stream_keeps_every_promise(
    seconds: float, least: tuple[int, int, int, int]
) -> None:
    """Requests go over it, many to the leader; connections break, some with work on them.

    Ten more are among the fifty worlds of ``test_simulation``.
    """
    verdict = simulate(STREAMS_FROM, Settings(seconds=seconds))

    assert verdict.is_fine
    verdict.tally.deeds.check(**dict(zip(COUNTED, least, strict=True)))


@pytest.mark.check
def test_the_same_seed_makes_the_same_stream() -> None:
    """Where a connection breaks is drawn; and the worlds before these do not have it."""
    one, other = (simulate(STREAMS_FROM + 2, Settings(seconds=4)) for _ in range(2))
    before = simulate(1, Settings(seconds=2))

    assert one.trace_digest == other.trace_digest
    assert one.tally.deeds["stream_request"] > 0
    assert before.tally.deeds["stream_request"] == 0
