"""Every requirement that this product claims is named by a test: a test that goes shows here.

The numbers are those of the list of requirements (S: what a user does and what must happen; E: what
is commonly said about locks, and wrong). A test names the lines that it covers in its docstring; a
story in ``examples`` is named after its line, and is run by tests/examples.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.examples.test_stories import SAID

ROOT = Path(__file__).resolve().parent.parent

CLAIMED = """
S001-S003 S005-S009 S011-S023 S025-S028 S030-S032 S034-S131 S142 S144 S148-S153 S156-S157
E01-E17
"""
LINES = {"S": 157, "E": 17}
"""How many lines there are of each kind."""


def claimed() -> Iterator[str]:
    """Yield each number that ``CLAIMED`` stands for."""
    for kind, first, last in re.findall(r"([SE])(\d+)(?:-[SE](\d+))?", CLAIMED):
        for number in range(int(first), int(last or first) + 1):
            yield f"{kind}{number:0{len(first)}d}"


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield where each test is, and its docstring."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}::{node.name}", ast.get_docstring(node) or ""


def naming() -> dict[str, list[str]]:
    """Return which tests and stories name each line."""
    found = defaultdict(list)
    for where, docstring in docstrings():
        for line in re.findall(r"\b(?:S\d{3}|E\d{2})\b", docstring):
            found[line].append(where)
    for story in SAID:
        if line := re.match(r"s\d{3}(?=_)", story):
            found[line[0].upper()].append(f"examples/{story}.py")
    return found


def test_every_claimed_line_is_named_by_a_test() -> None:
    """Otherwise a test was removed or lost its name, or a claim was made too early."""
    named = naming()

    assert [line for line in claimed() if line not in named] == []


def test_what_is_named_is_claimed_and_there() -> None:
    """A number with a typing mistake would claim another line; a new line is claimed here, too."""
    named, all_claimed = naming(), set(claimed())

    for line, where in named.items():
        assert 1 <= int(line[1:]) <= LINES[line[0]], f"there is no line {line}: {where}"
        assert line in all_claimed, f"{line} is new in {where}: add it to CLAIMED"


def test_the_numbers_are_read_as_they_are_meant() -> None:
    """The first and the last of a range, and one alone."""
    numbers = list(claimed())

    assert len(numbers) == len(set(numbers))
    assert numbers[:3] == ["S001", "S002", "S003"]
    assert numbers[-1] == "E17"
