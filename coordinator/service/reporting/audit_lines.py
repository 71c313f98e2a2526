"""The audit lines of committed changes: for each class of command what its line says. Pure.

Every command that changes rights, limits or what belongs to others has a row in ``LINES``. A line
never has the digest of a token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coordinator.model.access import Rule
from coordinator.model.operations import Deleted
from coordinator.state.commands import (
    AddToken,
    Delete,
    DropIdentity,
    DropRole,
    DropToken,
    Guarded,
    InitAccess,
    Multi,
    OpenSession,
    Operation,
    PutIdentity,
    PutRole,
    Revoke,
    SetAccess,
    SetLimits,
)
from coordinator.state.locks.contender import QUEUE_ROOTS
from coordinator.state.outcomes import AccessChanged, GuardedDone, LimitsSet, MultiDone, Revoked

_PATHS_MAX = 8


def _of_revoke(operation: Revoke, result: Any) -> dict[str, Any] | None:
    assert isinstance(result, Revoked), "a revoke comes to a Revoked"
    return {
        "event": "grant.revoked",
        "verb": "admin",
        "resource": result.path,
        "detail": {
            "fencing_token": result.czxid,
            "was_holder": result.was_holder,
            "paths": result.paths[:_PATHS_MAX],
            "count": len(result.paths),
            "by": operation.by,
            "reason": operation.reason,
        },
    }


def _of_limits(operation: SetLimits, result: Any) -> dict[str, Any] | None:
    assert isinstance(result, LimitsSet), "a change of limits comes to a LimitsSet"
    return {
        "event": "limits.changed",
        "verb": "admin",
        "resource": "@limits",
        "detail": {
            "version": result.version,
            "by": operation.by,
            "changes": {name: [was, now] for name, was, now in result.changes},
        },
    }


def _of_session(operation: OpenSession, _result: Any) -> dict[str, Any] | None:
    if not operation.by:
        return None
    return {
        "event": "session.opened_from_reserve",
        "verb": "admin",
        "resource": "@sessions",
        "address": operation.address,
        "detail": {"session_id": operation.session_id, "by": operation.by},
    }


def _of_deletes(operation: Operation, result: Any) -> dict[str, Any] | None:
    """Say what was deleted below locks and elections by its path: the end of a client's grant."""
    done = result.results if isinstance(result, MultiDone | GuardedDone) else (result,)
    deleted = [each.path for each in done if isinstance(each, Deleted)]
    paths = [each for each in deleted if f"{each}/".startswith(QUEUE_ROOTS)]
    if not paths:
        return None
    return {
        "event": "queue.deleted_by_path",
        "verb": "admin",
        "resource": paths[0],
        "detail": {"paths": paths[:_PATHS_MAX], "count": len(paths), **_said_in(operation)},
    }


def _said_in(operation: Operation) -> dict[str, str]:
    """Return by whom and why, of a multi that says so."""
    if not isinstance(operation, Multi) or not (operation.by or operation.reason):
        return {}
    return {"by": operation.by, "reason": operation.reason}


def first_path(operation: Operation) -> str:
    """Return a path that the operation names, "" if it names none."""
    parts: tuple[object, ...] = (operation,)
    if isinstance(operation, Multi):
        parts = operation.operations
    elif isinstance(operation, Guarded):
        parts = operation.then + operation.otherwise
    return next((str(path) for each in parts if (path := getattr(each, "path", ""))), "")


# --- access rights


def _of_access(name: Callable[[Any], str], detail: Callable[[Any], dict[str, object]]) -> Any:
    """Return how a change of access rights is said: nothing of one that changed nothing."""

    def fields_of(operation: Any, result: Any) -> dict[str, Any] | None:
        assert isinstance(result, AccessChanged), "a change of access comes to an AccessChanged"
        if not result.was_changed:
            return None
        return {
            "event": name(operation),
            "verb": "admin",
            "resource": "@access",
            "detail": detail(operation),
        }

    return fields_of


def _rules(rules: tuple[Rule, ...]) -> dict[str, object]:
    return {each.prefix: ",".join([verb.value for verb in each.verbs]) for each in rules}


def _changed(operation: PutIdentity) -> dict[str, object]:
    """Return what a change of an identity says, without what it leaves as it is."""
    found: dict[str, object] = {"name": operation.name}
    for key in ("roles", "subjects"):
        if getattr(operation, key) is not None:
            found[key] = getattr(operation, key)
    return found | ({"quota": dict(operation.quota)} if operation.quota else {})


def _named(event: str, *fields: str) -> Any:
    """Return what says these fields of an operation."""
    return _of_access(lambda _: event, lambda each: {key: getattr(each, key) for key in fields})


LINES: dict[type, Callable[[Any, Any], dict[str, Any] | None]] = {
    Revoke: _of_revoke,
    SetLimits: _of_limits,
    OpenSession: _of_session,
    Delete: _of_deletes,
    Multi: _of_deletes,
    Guarded: _of_deletes,
    InitAccess: _named("access.turned_on", "identity", "token_id", "expires_ms"),
    SetAccess: _of_access(
        lambda each: "access.turned_on" if each.is_on else "access.turned_off", lambda _: {}
    ),
    PutRole: _of_access(
        lambda _: "role.put", lambda each: {"name": each.name, "rules": _rules(each.rules)}
    ),
    DropRole: _named("role.dropped", "name"),
    PutIdentity: _of_access(lambda _: "identity.put", _changed),
    DropIdentity: _named("identity.dropped", "name"),
    AddToken: _named("token.added", "identity", "token_id", "expires_ms", "label"),
    DropToken: _named("token.dropped", "token_id"),
}
