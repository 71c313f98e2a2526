"""Golden traces of the state machine: tests/traces/*.txt, each a scenario with its exact outcomes.

``pytest tests/state/test_traces.py --rewrite`` renews them; commit the difference only if you
understand it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.state.trace_runner import rewritten

TRACES = sorted((Path(__file__).resolve().parent.parent / "traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_prints_what_it_did_before(path: Path, request: pytest.FixtureRequest) -> None:
    """Every command of the trace comes to the outcome and the events written beneath it."""
    written = path.read_text(encoding="utf-8")

    found = rewritten(written)

    if request.config.getoption("--rewrite"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == written


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_says_what_it_is_and_where_it_comes_from(path: Path) -> None:
    """The head comment of a trace names the scenario and its source."""
    head = path.read_text(encoding="utf-8").split("\n\n")[0]

    assert head.startswith("# ")
    assert "Source: " in head


def test_there_are_traces() -> None:
    """The folder of traces is where this test looks for it."""
    assert len(TRACES) >= 25
