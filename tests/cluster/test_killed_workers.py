"""A hundred workers of a queue are killed, each a process; ``killed_workers`` kills a thousand."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.cluster.killed_workers import judge, run


@pytest.mark.slow
def test_nothing_is_lost_and_twice_is_what_a_worker_died_after(tmp_path: Path) -> None:
    """At any moment: while they connect, wait, hold, work, acknowledge."""
    counts = asyncio.run(run(tmp_path, kills=100, at_once=8, seed=1))

    assert (counts.killed, counts.lost, counts.wrong) == (100, 0, 0)
    assert counts.killed_holding > 3


def test_the_judge_finds_what_is_lost_and_what_is_done_twice_for_nothing(tmp_path: Path) -> None:
    """An item that nobody worked on; one that was worked on after it was acknowledged."""
    log = tmp_path / "log"
    log.write_text(
        "took 7 a 1\nworked 7 a 1\nacked 7 a 1\ntook 8 a 2\nworked 8 a 2\n"
        "took 9 b 3\nworked 9 b 3\ntook 8 b 4\nworked 8 b 4\nacked 8 b 4\n"
    )
    counts = judge(log, {"a", "b", "c"}, 2)

    assert (counts.lost, counts.wrong, counts.worked_twice) == (1, 1, 2)
    assert (counts.deliveries, counts.killed_after_work) == (4, 1)
