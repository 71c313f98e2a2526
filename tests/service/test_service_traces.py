"""Golden traces of the service: watches, leases and locks, in tests/traces.

``pytest tests/service/test_service_traces.py --rewrite`` renews them; commit the difference only if
you understand it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden_traces import check, check_head, rerun, traces_of
from tests.service.service_trace_runner import rewritten

TRACES = traces_of("service")


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_prints_what_it_did_before(path: Path, request: pytest.FixtureRequest) -> None:
    """Every entry, and everything that a watch or a caller is told, is what is written there."""
    check(path, rewritten(path.read_text(encoding="utf-8")), request)


@pytest.mark.parametrize("path", TRACES, ids=[path.stem for path in TRACES])
def test_trace_says_what_it_is_and_where_it_comes_from(path: Path) -> None:
    """The head comment of a trace names the scenario and its source."""
    check_head(path)


@pytest.mark.parametrize("hash_seed", [1, pytest.param(2, marks=pytest.mark.check)])
def test_traces_are_the_same_in_another_process_with_another_hash_seed(hash_seed: int) -> None:
    """Nobody is told anything in the order of a set."""
    written = "".join(path.read_text(encoding="utf-8") for path in TRACES)

    assert rerun("tests.service.service_trace_runner", TRACES, hash_seed) == written


def test_there_are_traces() -> None:
    """The folder of traces is where this test looks for it."""
    assert len(TRACES) >= 12
