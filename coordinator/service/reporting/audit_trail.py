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

from collections.abc import Mapping
from typing import Any, ClassVar

from coordinator.audit.event import Audit, AuditEvent, Source
from coordinator.errors import LockLostError
from coordinator.raft.engine import EngineStatus
from coordinator.service.base.context import MemberContext
from coordinator.service.base.replica import Interest
from coordinator.service.reporting.audit_lines import LINES, first_path
from coordinator.state.commands import Command
from coordinator.state.outcomes import Outcome

LOOK_EVERY_MS = 1_000


class AuditTrail:
    """Follows the state and the engine of one member, and notes what an auditor asks for."""

    interest: ClassVar[Interest] = Interest.ALL

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
