"""The check that a remembered outcome belongs to the operation of the request.

A request number belongs to one operation, always. A client that reuses it for another operation
would get the first one's outcome (a set that answers "done" and set nothing), so that is refused at
the door. Refusals are not compared: they say what was refused, and that nothing happened.
"""

from __future__ import annotations

from coordinator.errors import BadArgumentsError
from coordinator.state.access.operations import Change, described
from coordinator.state.commands import (
    Create,
    Enter,
    Guarded,
    Multi,
    OpenSession,
    Operation,
    Put,
    Read,
    SetData,
    SetLimits,
    ZnodeOperation,
)
from coordinator.state.outcomes import (
    RESULTS,
    AccessChanged,
    Created,
    Entered,
    GuardedDone,
    LimitsSet,
    MultiDone,
    Outcome,
    Result,
    SessionOpened,
    ZnodeResult,
)


def check_answers(operation: Operation, outcome: Outcome) -> None:
    """Refuse a repeated ``outcome`` that cannot be one of ``operation``.

    Raises:
        BadArgumentsError: the request number was used for another operation; this one did nothing.
    """
    if not outcome.is_repeat or outcome.result is None or _answers(operation, outcome.result):
        return
    raise BadArgumentsError(
        f"request number: expected one that was not used before, found that of another operation, "
        f"which returned {type(outcome.result).__name__}; nothing was done now"
    )


def _answers(operation: Operation, result: Result) -> bool:
    if isinstance(operation, Change):
        return isinstance(result, AccessChanged) and result.what == described(operation)
    match operation, result:
        case Multi(asked), MultiDone(results):
            return _all_answer(asked, results)
        case Guarded(_, then, otherwise), GuardedDone(is_then, results):
            return _all_answer(then if is_then else otherwise, results)
        case Put(path, data), GuardedDone(is_then, results):
            return _all_answer((Create(path, data) if is_then else SetData(path, data),), results)
        case OpenSession(), SessionOpened():
            return True  # each try draws a new id
        case Enter(), Entered():
            return _is_entry_of(operation, result)
        case SetLimits(values), LimitsSet(_, changes):
            return {(name, now) for name, _, now in changes} <= set(values)
    return _one_answers(operation, result)


def _is_entry_of(asked: Enter, result: Entered) -> bool:
    """Whether the contenders are those of this attempt; a refused try names no queue."""
    if not result.is_entered:
        return asked.is_try
    created = [(path.rpartition("/")[0], path) for path in [c.path for c in result.contenders]]
    return [directory for directory, _ in created] == list(asked.directories) and all(
        path.startswith(f"{directory}/{asked.prefix}") for directory, path in created
    )


def _all_answer(asked: tuple[ZnodeOperation, ...], results: tuple[ZnodeResult, ...]) -> bool:
    return len(asked) == len(results) and all(map(_one_answers, asked, results))


def _one_answers(asked: Operation | Read, result: Result | ZnodeResult) -> bool:
    if isinstance(asked, Create):
        if not isinstance(result, Created):
            return False
        is_sequential = asked.mode.is_sequential
        return result.path.startswith(asked.path) if is_sequential else result.path == asked.path
    if RESULTS.get(type(asked)) is not type(result):
        return False
    shared = [name for name in result.__struct_fields__ if name in asked.__struct_fields__]
    return all(getattr(result, name) == getattr(asked, name) for name in shared)
