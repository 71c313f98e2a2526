"""The targets of the guided fuzzer: what it begins from goes deep, and what is damaged does not."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.mutation import damaged
from tests.fuzz.targets import LEAST, SEEDS, TARGETS
from tests.met import Met

DAMAGED = 300


NAMES = [
    pytest.param(each, marks=pytest.mark.check) if each == "commands" else each for each in TARGETS
]
"""Those of commands take as long as all others together."""


@pytest.mark.parametrize("name", NAMES)
def test_the_seeds_of_a_target_go_deep(name: str) -> None:
    """Whoever begins from a seed that is refused at the first byte finds nothing behind it."""
    met = Met([TARGETS[name](data) for data in SEEDS[name]()])

    met.check(**LEAST[name])


@pytest.mark.parametrize("name", NAMES)
def test_damaged_seeds_are_refused_by_the_error_of_the_contract(name: str) -> None:
    """Some are refused and some are taken; no other error comes."""
    chance, seeds = random.Random(1), SEEDS[name]()

    met = Met([TARGETS[name](damaged(chance.choice(seeds), chance)) for _ in range(DAMAGED)])

    refused = sum(met[each] for each in met if each.startswith(("refused", "not decoded")))
    assert refused > DAMAGED / 10
    assert len(met) > 1
