"""How pages and texts are written: their width, their words, and what they name is there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.house import source

ROOT = Path(__file__).resolve().parents[2]

WIDE = [
    'docs/http-api.md: {"type":"change","zxid":2,"events":[{"type":"NodeCr',  # a line of an answer
]


def test_pages_are_as_wide_as_code() -> None:
    """Tables and examples as well as text."""
    found = []
    for place in source.wide_lines(ROOT):
        page, _, number = place.rpartition(":")
        line = (ROOT / page).read_text(encoding="utf-8").splitlines()[int(number) - 1]
        found.append(f"{page}: {line}"[: len(WIDE[0])])

    assert found == WIDE


_SPOKEN = {"coordinator.learn.side_by_side"}
"""What is said in recorded stories, word by word."""


def test_pages_use_the_standard_words() -> None:
    """A reader stumbles over words that the field does not use (CONTRIBUTING.md)."""
    odd = re.compile(r"\b(?:anew|somebody|whoever|(?:is|was) had|can not)\b", re.IGNORECASE)
    pages = [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md")),
        *sorted((ROOT / "docs").glob("*.md")),
        *(each.path for each in source.product(ROOT) if each.name not in _SPOKEN),
    ]

    for page in pages:
        found = odd.search(" ".join(page.read_text(encoding="utf-8").split()))
        assert not found, f"{page}: {found[0]!r}; say it in the words of the vocabulary"


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
