"""The shapes of bodies as JSON Schema (2020-12), as OpenAPI 3.1 uses it.

Hand-held beside the routes; a test drives every operation and validates what really came back.
Requests are closed (an unknown field is refused); a response may grow fields in later versions.
"""

from __future__ import annotations

from typing import Any

from coordinator.wire.messages.acquire import (
    ON_DISCONNECT,
    PID_MAX,
    TEXT_CHARACTERS_MAX,
    WAIT_MS_MAX,
)
from coordinator.wire.messages.operations import CREATE_MODES, PARENT_MODES, VERSION_MAX
from coordinator.wire.messages.sessions import LABEL_CHARACTERS_MAX
from coordinator.wire.messages.watches import EVENT_TYPES, WATCH_KINDS
from coordinator.wire.strict_json import INTEGER_MAX

Schema = dict[str, Any]


def reference(name: str) -> Schema:
    """Return a reference to the schema called ``name``."""
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return ``schema``, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def integer(minimum: int = 0, maximum: int = INTEGER_MAX, **more: Any) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def choice(*values: str, **more: Any) -> Schema:
    return {"type": "string", "enum": list(values), **more}


def response(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return an object that may grow."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


def body(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return an object that is refused if it has any other field; null is as good as absent."""
    given = {name: maybe(schema) for name, schema in (optional or {}).items()}
    return {
        "type": "object",
        "required": list(required),
        "properties": {**required, **given},
        "additionalProperties": False,
    }


TEXT: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
PATH: Schema = {"type": "string", "examples": ["/config/limits"]}
SHORT_TEXT: Schema = {"type": "string", "maxLength": TEXT_CHARACTERS_MAX}
VERSION = integer(0, VERSION_MAX)
EXPECTED_VERSION = integer(-1, VERSION_MAX, description="-1 accepts any version")
CZXID = integer()
BASE64: Schema = {"type": "string", "contentEncoding": "base64"}
DATA = {
    "data": {"type": "string", "description": "the data as text; in msgpack as bytes"},
    "data_base64": {**BASE64, "description": "the data, if it is not clean UTF-8 text"},
}
VALUE = {
    "value": {"type": "string", "description": "what the election publishes, as text"},
    "value_base64": {**BASE64, "description": "the value, if it is not clean UTF-8 text"},
}
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
CONTENDER_FIELDS = {
    "grant_id": TEXT,
    "fencing_token": integer(1),
    "session_id": TEXT,
    "path": TEXT,
    "position": integer(),
    "since_ms": integer(),
    "label": TEXT,
}
ACQUIRE = {
    "session_id": {**TEXT, "description": "an open session; this or lease_ms"},
    "lease_ms": integer(1, description="open a session of its own for this grant"),
    "timeout_ms": integer(0, WAIT_MS_MAX, description="how long to wait; 0 tries once"),
    "label": SHORT_TEXT,
    "host": SHORT_TEXT,
    "pid": integer(0, PID_MAX),
    "trace_id": SHORT_TEXT,
    "on_disconnect": choice(*ON_DISCONNECT),
}


def operation(name: str, required: dict[str, Schema], optional: dict[str, Schema]) -> Schema:
    """Return one operation of a multi."""
    return body({"op": {"const": name}, "path": PATH, **required}, optional)


def line(kind: str, required: dict[str, Schema]) -> Schema:
    """Return one line of a stream."""
    return response({"type": {"const": kind}, **required})


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
                "description": "true: it certainly did not happen; false: nobody knows",
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
    "Create": body({}, CREATE),
    "SetData": body({}, {**DATA, "expected_version": EXPECTED_VERSION})
    | {"anyOf": [{"required": ["data"]}, {"required": ["data_base64"]}]},
    "CreateOperation": operation("create", {}, CREATE),
    "SetOperation": operation("set", {}, {**DATA, "expected_version": EXPECTED_VERSION})
    | {"anyOf": [{"required": ["data"]}, {"required": ["data_base64"]}]},
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
    "Multi": body({"operations": array(reference("Operation"))}),
    "Guarded": body(
        {"conditions": array(reference("Condition"))},
        {"then": array(reference("Operation")), "otherwise": array(reference("Operation"))},
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
    "OpenSession": body(
        {},
        {
            "timeout_ms": integer(1),
            "label": {"type": "string", "maxLength": LABEL_CHARACTERS_MAX},
        },
    ),
    "SessionLease": response({"session_id": TEXT, "timeout_ms": integer(1)}),
    "SessionClosed": response({"session_id": TEXT, "was_open": BOOLEAN}),
    "Session": response(
        {
            "session_id": TEXT,
            "timeout_ms": integer(1),
            "label": TEXT,
            "opened_ms": integer(),
            "ephemeral_count": integer(),
        },
        {"ephemerals": array(TEXT)},
    ),
    "SessionList": response({"sessions": array(reference("Session"))}),
    "Acquire": body({}, ACQUIRE)
    | {"anyOf": [{"required": ["session_id"]}, {"required": ["lease_ms"]}]},
    "Campaign": body({}, {**ACQUIRE, **VALUE})
    | {"anyOf": [{"required": ["session_id"]}, {"required": ["lease_ms"]}]},
    "Grant": response(
        {
            "grant_id": TEXT,
            "lock": TEXT,
            "fencing_token": integer(1),
            "session_id": TEXT,
            "path": TEXT,
            "zxid": integer(1),
        }
    ),
    "GrantReply": response({"grant": reference("Grant")}),
    "ElectionGrant": response(
        {
            "grant_id": TEXT,
            "election": TEXT,
            "epoch": integer(1),
            "fencing_token": integer(1),
            "session_id": TEXT,
            "path": TEXT,
            "zxid": integer(1),
        }
    ),
    "ElectionGrantReply": response({"grant": reference("ElectionGrant")}),
    "AcquireLine": {
        "oneOf": [
            line("queued", {"position": integer(0)}),
            line("granted", {"grant": reference("Grant")}),
            reference("ErrorLine"),
        ]
    },
    "CampaignLine": {
        "oneOf": [
            line("queued", {"position": integer(0)}),
            line("granted", {"grant": reference("ElectionGrant")}),
            reference("ErrorLine"),
        ]
    },
    "Contender": response(
        {
            **CONTENDER_FIELDS,
            "host": TEXT,
            "pid": maybe(integer(0, PID_MAX)),
            "trace_id": TEXT,
        }
    ),
    "Candidate": response({**CONTENDER_FIELDS, "epoch": integer(1)}, VALUE),
    "LockView": response(
        {
            "lock": TEXT,
            "holder": maybe(reference("Contender")),
            "queue": array(reference("Contender")),
            "zxid": integer(),
        },
        {"is_current": BOOLEAN},
    ),
    "LockSummary": response(
        {
            "lock": TEXT,
            "holder": maybe(reference("Contender")),
            "queue_length": integer(),
            "held_ms": integer(),
        }
    ),
    "LockList": response({"locks": array(reference("LockSummary")), "next": maybe(TEXT)}),
    "Released": response({"grant_id": TEXT, "released": BOOLEAN}),
    "Abandoned": response({"deleted_path": maybe(TEXT)}),
    "Proclaim": body({}, VALUE),
    "Proclaimed": response({"grant_id": TEXT, "epoch": integer(1), "zxid": integer(1)}),
    "ElectionView": response(
        {
            "election": TEXT,
            "elected": maybe(reference("Candidate")),
            "candidates": array(reference("Candidate")),
            "zxid": integer(),
        }
    ),
    "ObserveLine": {
        "oneOf": [
            line("elected", {"elected": maybe(reference("Candidate")), "zxid": integer()}),
            reference("ErrorLine"),
        ]
    },
    "Member": response(
        {
            "member_id": TEXT,
            "client_url": TEXT,
            "is_reachable": BOOLEAN,
            "is_self": BOOLEAN,
            "is_leader": BOOLEAN,
        }
    ),
    "Status": response(
        {
            "member_id": TEXT,
            "cluster": TEXT,
            "role": choice("follower", "candidate", "leader"),
            "leader_id": maybe(TEXT),
            "term": integer(),
            "commit_index": integer(),
            "applied_index": integer(),
            "zxid": integer(),
            "is_ready": BOOLEAN,
            "summary": TEXT,
            "version": TEXT,
            "sessions": integer(),
            "znodes": integer(),
            "members": array(reference("Member")),
        }
    ),
    "Health": response({"status": TEXT, "reason": TEXT}),
}
