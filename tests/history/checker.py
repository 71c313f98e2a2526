"""The verdict on a history: each key searched on its own, every "ok" certified."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.history.operations import Operation
from tests.history.search import Budget, Search, Verdict
from tests.history.specification import BEGINNING, FOREVER, Entry, Model


@dataclass(frozen=True, slots=True)
class KeyResult:
    """The verdict on one key.

    ``order`` is a legal order when the verdict is ok, otherwise the longest that was found;
    ``unplaced`` are the operations of which one had to come next, ``state`` is where they failed.
    """

    key: str
    verdict: Verdict
    operation_count: int
    steps: int
    order: tuple[Operation, ...]
    unplaced: tuple[Operation, ...] = ()
    state: Any = None


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a history: the worst of its keys'."""

    keys: Mapping[str, KeyResult]

    @property
    def verdict(self) -> Verdict:
        verdicts = {result.verdict for result in self.keys.values()}
        for verdict in (Verdict.NOT_LINEARIZABLE, Verdict.UNDECIDED):
            if verdict in verdicts:
                return verdict
        return Verdict.OK

    @property
    def is_ok(self) -> bool:
        return self.verdict is Verdict.OK

    @property
    def steps(self) -> int:
        return sum(result.steps for result in self.keys.values())

    def bad_keys(self) -> list[KeyResult]:
        return [r for r in self.keys.values() if r.verdict is Verdict.NOT_LINEARIZABLE]


def check(operations: Iterable[Operation], model: Model, budget: Budget | None = None) -> Result:
    """Judge a history, key by key. Any order of the operations will do."""
    by_key: dict[str, list[Operation]] = {}
    for operation in operations:
        by_key.setdefault(operation.key, []).append(operation)
    budget = budget or Budget()
    started = time.monotonic()
    results = {}
    for key, of_key in by_key.items():
        left = budget
        if budget.seconds_max is not None:
            spent = time.monotonic() - started
            left = replace(budget, seconds_max=max(0.0, budget.seconds_max - spent))
        results[key] = check_key(key, of_key, model, left)
    return Result(results)


def check_key(
    key: str, operations: Sequence[Operation], model: Model, budget: Budget | None = None
) -> KeyResult:
    """Judge the operations of one key."""
    entries = model.prepare(operations)
    search = Search(model, entries, budget or Budget())
    verdict = search.run()
    order = search.order()
    if verdict is Verdict.OK:
        certify(model, operations, entries, order)
    is_ok = verdict is Verdict.OK
    return KeyResult(
        key=key,
        verdict=verdict,
        operation_count=len(operations),
        steps=search.steps,
        order=tuple(entry.operation for entry in order),
        unplaced=() if is_ok else search.unplaced(),
        state=None if is_ok else search.best.state,
    )


def certify(
    model: Model,
    operations: Sequence[Operation],
    entries: Sequence[Entry],
    order: Sequence[Entry],
) -> None:
    """Replay a legal order against what was recorded; an AssertionError is a bug of this tool.

    Only the start of an entry is taken from the model (a read that may be stale has none).
    """
    state = model.init()
    for entry in order:
        action = model.action(entry.operation)
        state = model.step(state, action)
        assert state is not None, f"the order found is not legal at {entry.operation}"
    earliest_return = FOREVER
    for entry in reversed(order):
        assert entry.called_at <= earliest_return, f"out of real time: {entry.operation}"
        assert entry.called_at in (entry.operation.called_at, BEGINNING)
        if entry.operation.returned_at is not None:
            earliest_return = min(earliest_return, entry.operation.returned_at)
    placed = {id(entry.operation) for entry in order}
    assert len(placed) == len(order), "an operation was placed twice"
    for operation in operations:
        if not operation.is_unknown and model.action(operation) is not None:
            assert id(operation) in placed, f"left out: {operation}"
