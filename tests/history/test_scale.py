"""Long histories with many clients: judged, and how long it took is printed (``pytest -s``)."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

import pytest

from tests.amount import drawn
from tests.history.checker import check
from tests.history.generation import Facts, Shape, generate
from tests.history.operations import Operation
from tests.history.register import Register
from tests.history.search import Budget, Verdict

OPERATIONS = drawn(20_000)
CLIENTS = 16
_STEPS_MAX = 2_000_000


def _report(name: str, history: list[Operation], seconds: float, steps: int) -> None:
    unknown_count = sum(operation.is_unknown for operation in history)
    print(
        f"\n{name}: {len(history)} operations, {unknown_count} of unknown outcome, "
        f"{steps} steps, {seconds:.2f} s"
    )


@pytest.mark.histories
@pytest.mark.parametrize(
    ("key_count", "unknown_ratio"),
    [
        (10, 0.4),
        *(
            pytest.param(*each, marks=pytest.mark.check)
            for each in itertools.product((10, 50), (0.0, 0.1, 0.4))
            if each != (10, 0.4)
        ),
    ],
)
def test_a_long_good_history_is_accepted(key_count: int, unknown_ratio: float) -> None:
    """20 000 operations of 16 clients, up to two fifths of the writes unknown, are decided."""
    shape = Shape(OPERATIONS, key_count, CLIENTS, unknown_ratio=unknown_ratio)
    history = generate(7, shape)
    started = time.monotonic()

    result = check(history, Register(), Budget(steps_max=_STEPS_MAX))

    _report(f"{key_count} keys, accepted", history, time.monotonic() - started, result.steps)
    assert result.verdict is Verdict.OK


@pytest.mark.histories
@pytest.mark.parametrize("facts", [Facts.ALL, Facts.STAT])
def test_one_stale_read_in_a_long_history_is_found(facts: Facts) -> None:
    """One read in 20 000 operations that shows the past is found, beside 3 000 unknown writes."""
    history = generate(7, Shape(OPERATIONS, 10, CLIENTS, facts, unknown_ratio=0.4))
    key = _make_one_read_stale(history)
    started = time.monotonic()

    result = check(history, Register(), Budget(steps_max=_STEPS_MAX))

    _report(f"{facts}, refused", history, time.monotonic() - started, result.steps)
    assert [bad.key for bad in result.bad_keys()] == [key]
    assert len(result.keys) == 10


def _make_one_read_stale(history: list[Operation]) -> str:
    """Give a late read the answer of one long before; return its key."""
    seen: dict[str, Operation] = {}
    half = len(history) // 2
    for index, operation in enumerate(history):
        if operation.kind != "read" or not operation.output or "value" not in operation.output:
            continue
        if index < half:
            seen[operation.key] = operation
        elif index > half + half // 2 and operation.key in seen:
            history[index] = replace(operation, output=seen[operation.key].output)
            return operation.key
    raise AssertionError("the history has no two reads of one key")


@pytest.mark.histories
@pytest.mark.parametrize("seed", range(drawn(60)))
def test_no_good_history_is_refused(seed: int) -> None:
    """Histories of a correct store are accepted, whatever their shape and what answers tell."""
    facts = list(Facts)[seed % 4]
    shape = Shape(
        operation_count=250, key_count=1 + seed % 3, client_count=2 + seed % 7, facts=facts,
        write_ratio=0.3 + 0.1 * (seed % 5), unknown_ratio=0.15 * (seed % 3),
        value_count=None if seed % 2 else 40,
    )  # fmt: skip
    history = generate(seed, shape)

    result = check(history, Register(), Budget(steps_max=_STEPS_MAX))

    assert result.verdict is Verdict.OK, result.verdict


def test_a_budget_that_runs_out_is_undecided() -> None:
    """Neither a good nor a bad history is judged with fewer steps than it takes."""
    good = generate(3, Shape(200, facts=Facts.VALUE, unknown_ratio=0.3))
    bad = [o if o.kind != "set" else o.as_unknown() for o in good]
    bad.append(Operation("c", good[0].key, "read", {}, {"value": "x"}, 10_000, 10_001))

    assert check(good, Register(), Budget(steps_max=10)).verdict is Verdict.UNDECIDED
    assert check(bad, Register(), Budget(steps_max=10)).verdict is Verdict.UNDECIDED


def test_no_time_at_all_is_undecided() -> None:
    """A history that takes longer than its seconds is undecided, not accepted."""
    history = generate(3, Shape(6_000, facts=Facts.STAT))

    result = check(history, Register(), Budget(seconds_max=0.0))

    assert result.verdict is Verdict.UNDECIDED


def test_an_undecided_key_makes_the_history_undecided_and_a_bad_one_bad() -> None:
    """The verdict on a history is the worst of its keys': bad before undecided before ok."""
    long = generate(3, Shape(400, facts=Facts.VALUE))
    wrong = Operation("c", "/wrong", "read", {}, {"value": "x"}, 1, 2)
    fine = Operation("c", "/fine", "read", {}, {"error": "NoNode"}, 1, 2)
    budget = Budget(steps_max=5)

    assert check([fine, *long], Register(), budget).verdict is Verdict.UNDECIDED
    assert check([wrong, *long], Register(), budget).verdict is Verdict.NOT_LINEARIZABLE
