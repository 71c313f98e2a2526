"""The audit lines of requests: who asked from where, and what was answered.

The member that took a request writes its line when it answers:

1. of every request that was refused for want of a right or a credential (401, 403), and of every
   stream that ended for that;
2. of every request that changes rules, limits or what belongs to another client, whatever came of
   it (``AUDITED``, and what a handler names with ``note_request``).

A line has the path of a request, never its query or its body.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coordinator.audit.event import REFUSED, AuditEvent, Source
from coordinator.errors import CoordinatorError, UnavailableError
from coordinator.model.tokens import token_id_in
from coordinator.wire import messages
from coordinator.wire.request import Answer, Answered, IncomingRequest
from coordinator.wire.routes.door import Door

AUDITED: Final = {
    "revoke_lock": "request.revoke",
    "set_limits": "request.set_limits",
    "hand_over": "request.hand_over",
    "finish_upgrade": "request.finish_upgrade",
    "set_log_level": "request.set_log_level",
    "init_access": "request.init_access",
    "set_access": "request.set_access",
    "put_role": "request.put_role",
    "drop_role": "request.drop_role",
    "put_identity": "request.put_identity",
    "set_quota": "request.set_quota",
    "drop_identity": "request.drop_identity",
    "add_token": "request.add_token",
    "drop_token": "request.drop_token",
}
"""The event of an audit line by operation; each operation needs ``admin``."""
_NOBODY: Final = 401
BY_MAX: Final = 256
_REFUSED: Final = (_NOBODY, 403)


def attributed(request: IncomingRequest, by: str) -> str:
    """Return who does this, as it goes on record: whose credential was shown, and then only what
    he says of himself. Without a credential it is what is said."""
    identity = request.caller.identity
    if not identity or by == identity:
        return identity or by
    return f"{identity} ({by})"[:BY_MAX] if by else identity


def note_answer(
    door: Door,
    request: IncomingRequest,
    operation_id: str,
    answered: Answered,
    error: CoordinatorError | None,
) -> None:
    """Note what was answered to ``request``, if it is one that has a line."""
    status = answered.status
    if not isinstance(answered, Answer) and answered.ended_with is not None:
        error = answered.ended_with
        status = error.http_status
    is_refused = status in _REFUSED
    if not door.member.audit.is_kept or not (is_refused or operation_id in AUDITED):
        return
    event = REFUSED if is_refused else AUDITED[operation_id]
    verb = "admin" if operation_id in AUDITED else ""
    fields = {} if error is None else error.fields
    shown = _shown(request, status) | _why(fields)
    note_request(
        door,
        request,
        event,
        verb=str(fields.get("verb", verb)),
        resource=str(fields.get("resource", "")),
        detail=shown | {"operation": operation_id, "status": status},
        error=error,
        status=status,
    )


def note_request(
    door: Door,
    request: IncomingRequest,
    event: str,
    *,
    verb: str,
    resource: str = "",
    detail: dict[str, object] | None = None,
    error: CoordinatorError | None = None,
    status: int = 200,
) -> None:
    """Note a request and what came of it."""
    audit = door.member.audit
    if not audit.is_kept:
        return
    client_id = request.headers.get(messages.CLIENT_ID_HEADER.lower()) or ""
    number = request.headers.get(messages.REQUEST_NUMBER_HEADER.lower()) or ""
    audit.note(
        AuditEvent(
            event=event,
            source=Source.REQUEST,
            time_ms=door.clock.wall_ms(),
            identity=request.caller.identity,
            credential=request.caller.credential,
            address=request.remote,
            verb=verb,
            resource=resource or request.target.partition("?")[0],
            zxid=door.member.labels()[1],
            outcome=_outcome(status, error),
            code="" if error is None else error.code,
            request=f"{client_id}/{number}" if client_id else "",
            detail=detail or {},
        )
    )


def _shown(request: IncomingRequest, status: int) -> dict[str, object]:
    """Return which token was shown in vain: its id, which is no secret."""
    text = (request.authorization or "").rpartition(" ")[2]
    token_id = token_id_in(text) if status == _NOBODY else None
    return {} if token_id is None else {"token_id": token_id}


def _why(fields: Mapping[str, object]) -> dict[str, object]:
    """Return why a credential is worth nothing, and whose it was, where it was proved so far."""
    return {name: fields[name] for name in ("reason", "identity") if "reason" in fields}


def _outcome(status: int, error: CoordinatorError | None) -> str:
    if status < 400:
        return "done"
    if error is None or not error.definite:
        return "unknown"
    return "unavailable" if isinstance(error, UnavailableError) else "refused"
