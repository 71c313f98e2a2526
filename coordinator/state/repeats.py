"""The check that a remembered outcome belongs to the operation of the request.

A request number belongs to one operation, always. A client that reuses it for another operation
would get the first one's outcome (a set that answers "done" and set nothing), so that is refused at
the door. Refusals are not compared: they say what was refused, and that nothing happened.
"""

from __future__ import annotations

from coordinator.errors import BadArgumentsError
from coordinator.state.access.operations import Change, described
from coordinator.state.commands import (
    Abandon,
    Check,
    CloseSession,
    Create,
    Delete,
    Downgrade,
    Enter,
    ExtendHold,
    Guarded,
    Multi,
    Note,
    OpenSession,
    Operation,
    Put,
    Read,
    Release,
    RenewCredential,
    Resize,
    Revoke,
    SetData,
    SetLevel,
    SetLimits,
    ZnodeOperation,
)
from coordinator.state.outcomes import (
    Abandoned,
    AccessChanged,
    Checked,
    Created,
    CredentialRenewed,
    DataSet,
    Deleted,
    Downgraded,
    Entered,
    GuardedDone,
    HoldExtended,
    LevelSet,
    LimitsSet,
    MultiDone,
    Noted,
    Outcome,
    ReadDone,
    Released,
    Resized,
    Result,
    Revoked,
    SessionEnded,
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
        case (OpenSession(), SessionOpened()) | (Abandon(), Abandoned()):
            return True  # each try draws a new id
        case CloseSession(session_id), SessionEnded(ended):
            return session_id == ended
        case Release(path, czxid), Released(found, found_czxid):
            return (path, czxid) == (found, found_czxid)
        case RenewCredential(session_id), CredentialRenewed(renewed):
            return session_id == renewed
        case Enter(), Entered():
            return _is_entry_of(operation, result)
        case (
            (Downgrade(path, czxid), Downgraded(found, found_czxid))
            | (Note(path, czxid), Noted(found, found_czxid))
            | (ExtendHold(path, czxid), HoldExtended(found, found_czxid))
            | (Revoke(path, czxid), Revoked(found, found_czxid))
        ):
            return (path, czxid) == (found, found_czxid)
        case Resize(path, size), Resized(found, found_size):
            return (path, size) == (found, found_size)
        case SetLimits(values), LimitsSet(_, changes):
            return {(name, now) for name, _, now in changes} <= set(values)
        case SetLevel(level), LevelSet(found):
            return level == found
        case ((Create() | SetData() | Delete() | Check()), _):
            return _one_answers(operation, result)
    return False


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


def _one_answers(asked: ZnodeOperation, result: Result | ZnodeResult) -> bool:
    match asked, result:
        case Create(path), Created(found) if asked.mode.is_sequential:
            return found.startswith(path)
        case Create(path), Created(found):
            return path == found
        case SetData(path), DataSet(found):
            return path == found
        case Delete(path), Deleted(found):
            return path == found
        case Check(path), Checked(found):
            return path == found
        case Read(path), ReadDone(found):
            return path == found
    return False
