"""Golden traces of recipes: the calls of clients and the znodes that these make, in tests/traces.

``pytest tests/recipes/test_recipe_traces.py --rewrite`` renews them; commit the difference only if
you understand it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_traces import check, check_head, rerun, traces_of
from tests.recipes.recipe_trace_runner import rewritten

TRACES = traces_of("recipes")


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_prints_what_it_did_before(path: Path, request: pytest.FixtureRequest) -> None:
    """Every result, and every znode that came, changed or went, is what is written there."""
    check_head(path)
    check(path, rewritten(path.read_text(encoding="utf-8")), request)


@pytest.mark.check
def test_traces_are_the_same_in_another_process_with_another_hash_seed() -> None:
    """No znode is made in the order of a set."""
    written = "".join(path.read_text(encoding="utf-8") for path in TRACES)

    assert rerun("tests.recipes.recipe_trace_runner", TRACES, 1) == written
