"""Golden traces of the engine: tests/traces/engine-*.txt, what members say to each other, and when.

``pytest tests/raft/test_engine_traces.py --rewrite`` renews them; commit the difference only if you
understand it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_traces import check, check_head, rerun, traces_of
from tests.raft.engine_trace_runner import rewritten

TRACES = traces_of("engine")


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_prints_what_it_did_before(path: Path, request: pytest.FixtureRequest) -> None:
    """Every message, every change of a member and every answer is the one written there."""
    check(path, rewritten(path.read_text(encoding="utf-8")), request)


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_says_what_it_is_and_where_it_comes_from(path: Path) -> None:
    """The head comment of a trace names the scenario and its source."""
    check_head(path)


@pytest.mark.check
@pytest.mark.parametrize("hash_seed", [1, pytest.param(2, marks=pytest.mark.check)])
def test_traces_are_the_same_in_another_process_with_another_hash_seed(hash_seed: int) -> None:
    """Nothing that is sent or done follows the order of a set."""
    written = "".join(path.read_text(encoding="utf-8") for path in TRACES)

    assert rerun("tests.raft.engine_trace_runner", TRACES, hash_seed) == written


def test_there_are_traces() -> None:
    """The folder of traces is where this test looks for it."""
    assert len(TRACES) >= 12
