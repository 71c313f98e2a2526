"""The shapes of bodies as JSON Schema (2020-12), as OpenAPI 3.1 uses it.

Hand-held beside the routes; a test drives every operation and validates what really came back.
Requests are closed (an unknown field is refused); a response may grow fields in later versions.
"""

from __future__ import annotations

from typing import Any

from coordinator.model.limits import LimitsChange, LimitsView
from coordinator.model.sessions import (
    LostGrant,
    SessionClosed,
    SessionInfo,
    SessionLease,
    SessionList,
    SessionRequest,
)
from coordinator.model.status import Health, MemberInfo, Status
from coordinator.wire.http.openapi_locks import LOCK_SCHEMAS
from coordinator.wire.http.openapi_shapes import (
    BOOLEAN,
    CZXID,
    DATA,
    EXPECTED_VERSION,
    IF_HELD,
    NOT_EMPTY,
    PATH,
    TEXT,
    VERSION,
    Schema,
    array,
    body,
    choice,
    integer,
    line,
    maybe,
    reference,
    response,
)
from coordinator.wire.http.schemas import Schemas
from coordinator.wire.messages.operations import (
    CREATE_MODES,
    PARENT_MODES,
)
from coordinator.wire.messages.watches import (
    EVENT_TYPES,
    WATCH_KINDS,
)

CREATE = {
    **DATA,
    "mode": choice(*CREATE_MODES),
    "session_id": {**TEXT, "description": "required by ephemeral modes"},
    "ttl_ms": integer(1, description="required by ttl modes"),
    "parents": choice(*PARENT_MODES, description="create missing ancestors as this"),
}
CONDITIONS = {
    "exists": BOOLEAN,
    "expected_version": EXPECTED_VERSION,
    "expected_czxid": CZXID,
    "has_children": BOOLEAN,
    "expected_owner": TEXT,
}


def operation(name: str, required: dict[str, Schema], optional: dict[str, Schema]) -> Schema:
    """Return one operation of a multi."""
    return body({"op": {"const": name}, "path": PATH, **required}, optional)


KINDS: dict[str, Any] = {
    "Member": MemberInfo,
    "Status": Status,
    "Health": Health,
    "OpenSession": SessionRequest,
    "SessionLease": SessionLease,
    "LostGrant": LostGrant,
    "SessionClosed": SessionClosed,
    "Session": SessionInfo,
    "SessionList": SessionList,
    "Limits": LimitsView,
}
"""The values of the model that have a schema of their own, by its name."""
_schemas = Schemas(KINDS)

SCHEMAS: dict[str, Schema] = {
    "Problem": response(
        {
            "type": TEXT,
            "title": TEXT,
            "status": integer(400, 599),
            "detail": TEXT,
            "code": {**TEXT, "description": "stable, for machines; docs/http-api.md lists all"},
            "definite": {
                **BOOLEAN,
                "description": "true: it certainly did not happen; false: unknown",
            },
        }
    )
    | {"additionalProperties": True},
    "Stat": response(
        {
            "czxid": integer(),
            "mzxid": integer(),
            "pzxid": integer(),
            "ctime_ms": integer(),
            "mtime_ms": integer(),
            "version": VERSION,
            "cversion": integer(),
            "aversion": integer(),
            "ephemeral_owner": maybe(TEXT),
            "data_length": integer(),
            "num_children": integer(),
            "mode": choice(*CREATE_MODES),
            "ttl_ms": maybe(integer(1)),
        }
    ),
    "Znode": response({"path": TEXT, "stat": reference("Stat")}, DATA),
    "Child": response({"name": TEXT, "stat": reference("Stat")}),
    "Children": response(
        {
            "path": TEXT,
            "children": array({"anyOf": [TEXT, reference("Child")]}),
            "stat": reference("Stat"),
            "next": maybe(TEXT),
        }
    ),
    "Written": response({"path": TEXT, "stat": reference("Stat")}),
    "Deleted": response({"path": TEXT, "deleted_count": integer(1)}),
    "Create": body({}, {**CREATE, **IF_HELD}),
    "SetData": body({}, {**DATA, **IF_HELD, "expected_version": EXPECTED_VERSION}) | NOT_EMPTY,
    "CreateOperation": operation("create", {}, CREATE),
    "SetOperation": operation("set", {}, {**DATA, "expected_version": EXPECTED_VERSION}),
    "DeleteOperation": operation(
        "delete",
        {},
        {"expected_version": EXPECTED_VERSION, "expected_czxid": CZXID, "recursive": BOOLEAN},
    ),
    "CheckOperation": operation("check", {}, CONDITIONS),
    "ReadOperation": operation("read", {}, {}),
    "Operation": {
        "oneOf": [
            reference(f"{kind}Operation") for kind in ("Create", "Set", "Delete", "Check", "Read")
        ]
    },
    "Condition": body({"path": PATH}, {"op": {"const": "check"}, **CONDITIONS}),
    "Multi": body({"operations": array(reference("Operation"))}, IF_HELD),
    "Guarded": body(
        {"conditions": array(reference("Condition"))},
        {
            "then": array(reference("Operation")),
            "otherwise": array(reference("Operation")),
            **IF_HELD,
        },
    ),
    "MultiReply": response(
        {"results": array(reference("OperationResult")), "zxid": integer()},
        {"branch": choice("then", "otherwise")},
    ),
    "OperationResult": response(
        {"op": choice("create", "set", "delete", "check", "read"), "path": TEXT},
        {"stat": maybe(reference("Stat")), "deleted_count": integer(1), **DATA},
    ),
    "WatchRequest": body(
        {"watches": array(body({"path": PATH}, {"kind": choice(*WATCH_KINDS)}))},
        {"from_zxid": integer(), "one_shot": BOOLEAN},
    ),
    "Event": response(
        {
            "type": choice(*EVENT_TYPES),
            "path": TEXT,
            "version": VERSION,
            "czxid": integer(1),
            "ephemeral_owner": maybe(TEXT),
        }
    ),
    "ErrorLine": line("error", {"problem": reference("Problem")}),
    "WatchLine": {
        "oneOf": [
            line("watching", {"zxid": integer()}),
            line("change", {"zxid": integer(1), "events": array(reference("Event"))}),
            line("bookmark", {"zxid": integer()}),
            line("resync", {"zxid": integer()}),
            reference("ErrorLine"),
        ]
    },
    "Nothing": {**body({}), "description": "an empty object: its content type says whence it is"},
    **LOCK_SCHEMAS,
    **{name: _schemas.of(kind) for name, kind in KINDS.items()},
    "LimitsChange": _schemas.of(LimitsChange, beside=IF_HELD),
}
