"""The machine that makes mutants makes those it says, and its list of the harmless ones fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import HARMLESS, TESTS, harmless_keys
from tests.mutation.mutating import mutants

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''
LIMIT = 3

class Sum:
    def add(self, one, other=0):
        """No words are changed."""
        assert one > 0
        if one < LIMIT and not other:
            raise ValueError(f"expected {one + 1}")
        self.last = min(one, other)
        return one + other
'''


def test_each_kind_of_change_is_made_once() -> None:
    """Comparisons, branches, sums, numbers and removed statements; no words, no assertions."""
    found = [each.what for each in mutants("sum.py", SOURCE)]

    assert found == [
        "one < LIMIT and not other -> one < LIMIT or not other",
        "one < LIMIT and not other -> not other",
        "one < LIMIT and not other -> one < LIMIT",
        "one < LIMIT -> one <= LIMIT",
        "one < LIMIT -> one >= LIMIT",
        "not other -> other",
        'raise ValueError(f"expected {one + 1}") -> nothing',
        "self.last = min(one, other) -> nothing",
        "min(one, other) -> max(one, other)",
        "one + other -> one - other",
    ]


def test_a_mutant_is_the_code_of_its_function() -> None:
    """It is exchanged for that of the function in which the change is."""
    last = mutants("sum.py", SOURCE)[-1]
    scope: dict[str, type] = {}
    exec(SOURCE, scope)  # noqa: S102
    add = scope["Sum"].add

    add.__code__ = last.code("sum.py")

    assert scope["Sum"]().add(5, 3) == 2


@pytest.mark.parametrize("module", TESTS)
def test_what_is_said_to_be_harmless_is_a_mutant(module: str) -> None:
    """Code that moves on takes its line in the list with it; the tests that hold it are there."""
    keys = {each.key for each in mutants(module, (ROOT / module).read_text(encoding="utf-8"))}

    assert sorted(harmless_keys(module) - keys) == []
    assert [each for each in TESTS[module] if not (ROOT / each).exists()] == []


def test_every_line_of_the_list_has_a_reason() -> None:
    """Module, mutant and reason, in this order."""
    lines = HARMLESS.read_text(encoding="utf-8").splitlines()

    for line in lines:
        if line and not line.startswith("#"):
            module, _, reason = line.split(" | ")
            assert module in TESTS
            assert reason
