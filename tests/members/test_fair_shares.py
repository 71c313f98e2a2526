"""One client at full rage costs another at most a third, on whole members in counted time.

Three members with their real doors, engines and services, each on a processor of its own; what a
step costs is counted (``processors``), so the shares do not depend on the machine.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.members.closed_loop import KINDS
from tests.members.fair_cluster import lateness, shares
from tests.members.processors import Processor, run_with_processors

KEPT_AT_LEAST = 2 / 3
RAGING_AT_LEAST = 100
"""Of its requests, in seven tenths of a second; it is granted 300 and more."""
IN_CHECK = {("read", "list"), ("lock", "list"), ("list", "list"), ("write", "mix")}
"""The worst ones; the rest is slow. What they rest on is in ``tests/service/test_turns``."""


def _marks(modest: str, rage: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.check if (modest, rage) in IN_CHECK else pytest.mark.slow]


@pytest.mark.parametrize(
    ("modest", "rage"),
    [
        pytest.param(modest, rage, marks=_marks(modest, rage), id=f"{modest} beside {rage}")
        for modest in KINDS
        for rage in [*KINDS, "mix"]
    ],
)
def test_one_at_full_rage_costs_another_at_most_a_third(modest: str, rage: str) -> None:
    """Of its writes, locks, reads and lists, beside any of these and all of them."""
    found = shares(modest, rage)

    assert not found.problems
    assert found.alone > 0
    assert found.kept >= KEPT_AT_LEAST, found
    assert found.raging >= RAGING_AT_LEAST, "it is slowed, not shut out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rage", "connections"),
    [
        pytest.param(rage, count, id=f"{rage}-{count}")
        for rage in ("list", "mix")
        for count in (1, 3, 24, 96)
    ],
)
def test_however_many_connections_it_has(rage: str, connections: int) -> None:
    """Few connections have few long answers under way, and take no less of a member with them."""
    found = shares("read", rage, connections=connections)

    assert found.kept >= KEPT_AT_LEAST, found


@pytest.mark.check
def test_lists_by_the_thousand_hold_nothing_up() -> None:
    """However many ask at once, one of them goes on in a pass: heartbeats and votes are in time."""
    assert lateness("list", 128) < 0.01


def test_a_processor_does_one_thing_at_once() -> None:
    """What becomes due meanwhile waits, in its order; another processor is not held up."""

    async def scenario() -> tuple[list[str], float, float]:
        loop, done = asyncio.get_running_loop(), list[str]()
        one, other = Processor("one"), Processor("other")

        def work(name: str) -> None:
            for _ in range(1_000):
                len(name)
            done.append(name)

        began_s = loop.time()
        one.soon(work, "first")
        one.at(began_s + 1e-5, work, "second")
        other.at(began_s + 2e-5, work, "other")
        one.soon(work, "third")
        await asyncio.sleep(0.01)
        return done, one.worked_s, other.worked_s

    done, one_s, other_s = run_with_processors(scenario())
    assert done == ["first", "other", "third", "second"]
    assert one_s == pytest.approx(3 * other_s, rel=0.05)
    assert one_s > 1e-4
