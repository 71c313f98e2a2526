"""What a history of clients holds: a judgement of one in which nothing overlaps says little."""

from __future__ import annotations

from collections import Counter

from tests.history.operations import Operation
from tests.met import Met


def held(history: list[Operation]) -> Met:
    """Count operations by what they came to, and what makes a history hard to judge."""
    met = Met()
    writers: dict[tuple[str, str], Operation] = {}
    for operation in history:
        outcome = "unknown" if operation.is_unknown else operation.error or "done"
        met[f"{operation.kind} {outcome}"] += 1
        met["unknown"] += operation.is_unknown
        met["refused"] += operation.error is not None
        met["conditional"] += "expected_version" in operation.input
        if "value" in operation.input:
            writers[operation.key, operation.input["value"]] = operation
    met["overlapping"] = _overlapping(history)
    met["unknown and done"] = _seen(history, writers)
    return met


def _overlapping(history: list[Operation]) -> int:
    """Count the operations called while another one of their znode is under way and returns."""
    moments: list[tuple[int, int, str]] = []
    for operation in history:
        if operation.returned_at is not None:
            moments.append((operation.called_at, 1, operation.key))
            moments.append((operation.returned_at, 0, operation.key))
    under_way: Counter[str] = Counter()
    count = 0
    for _, is_call, key in sorted(moments):
        count += bool(is_call and under_way[key])
        under_way[key] += 1 if is_call else -1
    return count


def _seen(history: list[Operation], writers: dict[tuple[str, str], Operation]) -> int:
    """Count the reads that show what a write of unknown outcome has written."""
    count = 0
    for operation in history:
        if operation.kind == "read" and operation.output:
            writer = writers.get((operation.key, operation.output.get("value", "")))
            count += writer is not None and writer.is_unknown
    return count
