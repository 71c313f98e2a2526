"""Golden traces of the state machine: tests/traces/*.txt, each a scenario with its exact outcomes.

``pytest tests/state/test_traces.py --rewrite`` renews them; commit the difference only if you
understand it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_traces import check, check_head, traces_of
from tests.state.trace_runner import rewritten

TRACES = traces_of("state")


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_prints_what_it_did_before(path: Path, request: pytest.FixtureRequest) -> None:
    """Every command of the trace comes to the outcome and the events written beneath it."""
    check(path, rewritten(path.read_text(encoding="utf-8")), request)


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_says_what_it_is_and_where_it_comes_from(path: Path) -> None:
    """The head comment of a trace names the scenario and its source."""
    check_head(path)


def test_there_are_traces() -> None:
    """The folder of traces is where this test looks for it."""
    assert len(TRACES) >= 25
