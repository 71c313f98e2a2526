"""A second opinion for tiny histories: tries everything, shares nothing with the search.

For znodes it has its own idea of what is legal, with concrete states only: an unknown zxid is every
zxid it could have been. For other models it uses their ``step``. Exponential in all it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.history.operations import Operation
from tests.history.specification import Model

_SAYING_ERRORS = frozenset({"NodeExists", "NoNode", "BadVersion", "NotEmpty"})


class _Znode(NamedTuple):
    value: str
    version: int
    czxid: int
    mzxid: int


class _Place(NamedTuple):
    placed: frozenset[int]
    znode: _Znode | None
    zxid: int


def is_linearizable(operations: Sequence[Operation]) -> bool:
    """Say whether some order of the operations of one key is legal."""
    zxid_max = len(operations) + max(
        (fact for operation in operations for fact in _zxids(operation)), default=0
    )
    required = {i for i, operation in enumerate(operations) if not operation.is_unknown}
    waiting = [_Place(frozenset(), None, 0)]
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        if required <= place.placed:
            return True
        for index, operation in enumerate(operations):
            if index in place.placed or not _may_be_next(index, operations, place.placed):
                continue
            for znode, zxid in _outcomes(operation, place.znode, place.zxid, zxid_max):
                after = _Place(place.placed | {index}, znode, zxid)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
    return False


def is_linearizable_by(model: Model, operations: Sequence[Operation]) -> bool:
    """Say the same by the ``init``, ``action`` and ``step`` of a model, and nothing else of it."""
    telling = [operation for operation in operations if model.action(operation) is not None]
    required = {i for i, operation in enumerate(telling) if not operation.is_unknown}
    waiting: list[tuple[frozenset[int], Any]] = [(frozenset(), model.init())]
    seen = set(waiting)
    while waiting:
        placed, state = waiting.pop()
        if required <= placed:
            return True
        for index, operation in enumerate(telling):
            if index in placed or not _may_be_next(index, telling, placed):
                continue
            next_state = model.step(state, model.action(operation))
            after = (placed | {index}, next_state)
            if next_state is not None and after not in seen:
                seen.add(after)
                waiting.append(after)
    return False


def _zxids(operation: Operation) -> list[int]:
    facts = {**operation.input, **(operation.output or {})}
    names = ("zxid", "mzxid", "czxid", "expected_czxid")
    return [facts[name] for name in names if facts.get(name) is not None]


def _may_be_next(index: int, operations: Sequence[Operation], placed: frozenset[int]) -> bool:
    if operations[index].kind == "stale_read":
        return True
    called_at = operations[index].called_at
    return all(
        other in placed or one.returned_at is None or one.returned_at >= called_at
        for other, one in enumerate(operations)
    )


def _outcomes(
    operation: Operation, znode: _Znode | None, zxid: int, zxid_max: int
) -> list[tuple[_Znode | None, int]]:
    """Return every (znode, store zxid) after the operation, if it went as it was recorded."""
    told = operation.output
    found: list[tuple[_Znode | None, int]] = []
    kind = operation.kind
    if kind in ("read", "stale_read"):
        if told is None:
            return [(znode, zxid)]
        for now in range(zxid, zxid_max + 1):
            if told.get("zxid", now) != now:
                continue
            if told.get("error") == "NoNode" if znode is None else "error" not in told:
                if znode is not None and not _agrees(told, znode):
                    continue
                found.append((znode, now))
        return found
    if told is not None and "error" in told:
        if told["error"] not in _SAYING_ERRORS:
            return [(znode, zxid)]
        is_true = _refusal(operation, znode) == told["error"] or (
            told["error"] == "NotEmpty" and znode is not None
        )
        return [
            (znode, now)
            for now in range(zxid, zxid_max + 1)
            if is_true and told.get("zxid", now) == now
        ]
    if _refusal(operation, znode) is not None:
        return []
    for now in range(zxid + 1, zxid_max + 1):
        after: _Znode | None = None
        if kind == "create":
            after = _Znode(operation.input["value"], 0, now, now)
        elif kind == "set":
            assert znode is not None
            after = _Znode(operation.input["value"], znode.version + 1, znode.czxid, now)
        if told is not None and told.get("zxid", now) != now:
            continue
        if told is not None and after is not None and not _agrees(told, after):
            continue
        found.append((after, now))
    return found


def _agrees(told: object, znode: _Znode) -> bool:
    assert isinstance(told, dict)
    return all(told.get(name, fact) == fact for name, fact in znode._asdict().items())


def _refusal(operation: Operation, znode: _Znode | None) -> str | None:
    if operation.kind == "create":
        return None if znode is None else "NodeExists"
    if znode is None:
        return "NoNode"
    if operation.input.get("expected_version", -1) not in (-1, znode.version):
        return "BadVersion"
    if operation.input.get("expected_czxid", znode.czxid) != znode.czxid:
        return "BadVersion"
    return None
