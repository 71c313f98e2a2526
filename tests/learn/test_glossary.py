"""The glossary: the page and the docs say the same, and every place in the code is there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from coordinator.console.pages import read_pages

ROOT = Path(__file__).resolve().parents[2]
TERMS = json.loads(read_pages("learn")["glossary.json"])
PAGE = " ".join((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("entry", TERMS, ids=[each["term"] for each in TERMS])
def test_a_term_is_where_the_glossary_says(entry: dict[str, str]) -> None:
    """The file exists, and defines what is named."""
    path, _, name = entry["place"].partition(" · ")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    defined = {
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert not name or name in defined
    place = f"`{path}`" + (f", `{name}`" if name else "")
    assert f"- **{entry['term']}**: {entry['says']} {place}" in PAGE


def test_the_docs_have_no_term_that_the_page_has_not() -> None:
    found = re.findall(r"- \*\*([^*]+)\*\*:", PAGE)

    assert found == [each["term"] for each in TERMS]
    assert len(set(found)) == len(found) >= 30
