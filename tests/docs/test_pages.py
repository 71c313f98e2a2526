"""How pages and texts are written: their width, their words, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import source

ROOT = Path(__file__).resolve().parents[2]


def test_pages_are_as_wide_as_code() -> None:
    """Tables and examples as well as text."""
    assert source.wide_lines(ROOT) == []


PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_an_item_of_a_numbered_list_keeps_its_own_items(page: Path) -> None:
    """One that begins at the margin ends the list: the numbers after it would begin again at 1."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)

    torn = re.findall(r"^\d+\. .*\n(?:(?: .*)?\n)*?(- .*)\n(?:.+\n|\n(?=[ -]))*?\d+\. ", text, re.M)

    assert torn == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_are_indented_by_four(page: Path) -> None:
    """A block that hangs further to the right looks like something else."""
    for example in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S):
        for head, body in re.findall(r"^( *)[^ #\n].*:\n( +)(?! )", example, re.M):
            assert len(body) - len(head) == 4, f"{page}: {example}"


_SPOKEN = {"coordinator.learn.side_by_side"}
"""What is said in recorded stories, word by word."""


def test_pages_use_the_standard_words() -> None:
    """A reader stumbles over words that the field does not use (CONTRIBUTING.md)."""
    words = ("anew", "somebody", "whoever", "is had", "was had", "can not")
    pages = [
        *PAGES,
        *(each.path for each in source.product(ROOT) if each.name not in _SPOKEN),
    ]

    for page in pages:
        text = " ".join(page.read_text(encoding="utf-8").lower().split())
        found = [each for each in words if each in text and re.search(rf"\b{each}\b", text)]
        assert found == [], f"{page}: say it in the words of the vocabulary"


def test_nothing_cites_what_is_not_here() -> None:
    """A number of a list of requirements says nothing to who does not have the list."""
    assert source.citations(ROOT) == []


def test_the_ways_in_the_docs_name_functions_that_are_there() -> None:
    """docs/architecture.md follows one write and one lock by file and function."""
    steps = source.way_of_a_write(ROOT) + source.way_of_a_lock(ROOT)
    known = {
        (str(module.path.relative_to(ROOT)), function.name)
        for module in source.product(ROOT)
        for function in source.functions(module)
    }

    assert len(steps) >= 10
    assert [step for step in steps if step not in known] == []


def test_files_that_are_named_are_there() -> None:
    """In docs, comments and tests: a file that was moved is named where it is now."""
    assert source.missing_files(ROOT) == []
