"""The audit lines of one member: which committed changes have one, and what happens to members.

1. Every member writes the line of a committed change when it applies it. So no line is lost with a
   member, index and zxid say which lines are of one change.
2. A member that gets a snapshot instead of the log has no lines of what it skipped; it says so, and
   the other members have them.
3. A write that was refused because its grant had ended is in no state. The leader writes its line.
4. The member that took a request writes who asked from where, and what was answered
   (``wire.routes.auditing``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from coordinator.audit.event import Audit, AuditEvent, Source
from coordinator.errors import LockLostError
from coordinator.model.access import Rule
from coordinator.model.operations import Deleted
from coordinator.raft.engine import EngineStatus
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import Interest
from coordinator.state.commands import (
    AddToken,
    Command,
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
    SetLevel,
    SetLimits,
)
from coordinator.state.locks.contender import QUEUE_ROOTS
from coordinator.state.outcomes import (
    AccessChanged,
    GuardedDone,
    LevelSet,
    LimitsSet,
    MultiDone,
    Outcome,
    Refusal,
    Revoked,
)

_PATHS_MAX = 8


def _of_revoke(operation: Revoke, result: Any) -> dict[str, Any] | None:
    assert isinstance(result, Revoked), "a revoke has a Revoked"
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
    assert isinstance(result, LimitsSet), "a change of limits has a LimitsSet"
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


def _of_level(operation: SetLevel, result: Any) -> dict[str, Any] | None:
    assert isinstance(result, LevelSet), "a raise of the level has a LevelSet"
    if not result.was_changed:
        return None
    return {
        "event": "cluster.level_raised",
        "verb": "admin",
        "resource": "@members",
        "detail": {"level": result.level, "by": operation.by},
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
        assert isinstance(result, AccessChanged), "a change of access has an AccessChanged"
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
    SetLevel: _of_level,
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


LOOK_EVERY_MS = 1_000


class AuditTrail:
    """Follows the state and the engine of one member, and notes what an auditor asks for."""

    interest: ClassVar[Interest] = frozenset({*LINES, Refusal})

    def __init__(self, context: MemberContext, audit: Audit) -> None:
        self._audit = audit
        self._clock = context.clock
        self._engine = context.engine
        self._replica = context.replica
        self._leadership = context.leadership
        self._shown: dict[str, Any] = {}

    def on_outcome(self, command: Command, outcome: Outcome) -> None:
        """Note a change that has a line, or a late write that was refused."""
        if outcome.is_repeat:
            return
        if outcome.refusal is not None:
            if command.if_held and outcome.refusal.code == LockLostError.code:
                self._note_late_write(command, outcome)
            return
        make = LINES.get(type(command.operation))
        fields = None if make is None else make(command.operation, outcome.result)
        if fields is not None:
            place = {
                "index": self._replica.machine.applied_index,
                "cluster_id": self._engine.cluster_id,
            }
            self._audit.note(_applied(command, outcome, **place, **fields))

    def on_restore(self) -> None:
        """Say from which change on this log has lines again."""
        self._note("state.restored", zxid=self._replica.machine.zxid)

    def look(self, _now_ms: int) -> None:
        """Note what has changed about the members, and about who leads."""
        for name, now in _facts(self._engine.status()).items():
            before = self._shown.get(name)
            if now != before and (now or before):
                self._note(name, detail={"now": now, "before": before or ""})
            self._shown[name] = now

    def _note_late_write(self, command: Command, outcome: Outcome) -> None:
        if not self._leadership.is_leader:
            return
        assert outcome.refusal is not None, "called for a refusal"
        event = _applied(
            command,
            outcome,
            event="write.refused_as_late",
            verb="write",
            resource=first_path(command.operation),
            detail={"why": outcome.refusal.message},
        )
        self._audit.note(_at_this_member(event, outcome.refusal.code))

    def _note(
        self, event: str, *, zxid: int | None = None, detail: Mapping[str, object] | None = None
    ) -> None:
        self._audit.note(
            AuditEvent(
                event=event,
                source=Source.MEMBER,
                time_ms=self._clock.wall_ms(),
                zxid=zxid,
                detail=detail or {},
            )
        )


def _applied(command: Command, outcome: Outcome, **fields: Any) -> AuditEvent:
    request = command.request
    return AuditEvent(
        source=Source.APPLIED,
        time_ms=command.wall_ms,
        identity=command.caller.identity,
        credential=command.caller.credential,
        zxid=outcome.zxid,
        request="" if request is None else f"{request.client_id}/{request.number}",
        **fields,
    )


def _at_this_member(event: AuditEvent, code: str) -> AuditEvent:
    """Return ``event`` as one that changed nothing, so that no zxid is its name."""
    return AuditEvent(
        event=event.event,
        source=Source.MEMBER,
        time_ms=event.time_ms,
        identity=event.identity,
        credential=event.credential,
        verb=event.verb,
        resource=event.resource,
        outcome="refused",
        code=code,
        request=event.request,
        detail=event.detail,
    )


def _facts(status: EngineStatus) -> dict[str, Any]:
    """Return what is noted when it changes, by the event's name."""
    return {
        "leader.changed": "" if status.leader_id is None else f"{status.leader_id}/{status.term}",
        "members.refused": dict(status.refused),
        "members.alarms": dict(status.alarms),
        "member.obstacle": status.obstacle,
    }
