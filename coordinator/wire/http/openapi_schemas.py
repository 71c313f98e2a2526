"""The shapes of bodies as JSON Schema (2020-12), as OpenAPI 3.1 uses it.

Hand-held beside the routes; a test drives every operation and validates what really came back.
Requests are closed (an unknown field is refused); a response may grow fields in later versions.
"""

from __future__ import annotations

from typing import Any

from coordinator.wire.messages.acquire import (
    KINDS,
    LOCK_DELAY_MS_MAX,
    MAX_HOLD_MS_MAX,
    NAMES_MAX,
    ON_DISCONNECT,
    PID_MAX,
    PURPOSES,
    SIZE_MAX,
    TEXT_CHARACTERS_MAX,
    WAIT_MS_MAX,
    WHEN_UNSURE,
)
from coordinator.wire.messages.history import ENDS
from coordinator.wire.messages.if_held import IF_HELD_MAX
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
NOTE = {
    "note": {"type": "string", "description": "the checkpoint note, as text"},
    "note_base64": {**BASE64, "description": "the note, if it is not clean UTF-8 text"},
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
LEASE: Schema = {"anyOf": [{"required": ["session_id"]}, {"required": ["lease_ms"]}]}
IF_HELD = {
    "if_held": {
        "anyOf": [
            reference("IfHeld"),
            {"type": "array", "items": reference("IfHeld"), "maxItems": IF_HELD_MAX},
        ],
        "description": "only while these grants still hold; refused with LockLost otherwise",
    }
}
MULTI_ACQUIRE = {
    **ACQUIRE,
    **IF_HELD,
    "owner": {**SHORT_TEXT, "description": "tells owners within a session apart (deadlocks)"},
    "lock_delay_ms": integer(0, LOCK_DELAY_MS_MAX, description="closes it after an unclean loss"),
    "max_hold_ms": integer(0, MAX_HOLD_MS_MAX, description="ends the grant by itself; 0: never"),
    "when_unsure": choice(*WHEN_UNSURE, description="recorded only"),
    "purpose": choice(*PURPOSES, description="recorded only"),
    "guard": {**SHORT_TEXT, "description": "recorded only: what checks the token, or a waiver"},
}
LOCK_ACQUIRE = {
    **MULTI_ACQUIRE,
    "kind": choice(*KINDS),
    "size": integer(1, SIZE_MAX, description="of a semaphore that does not exist yet"),
}
GRANT_FIELDS = {
    "grant_id": TEXT,
    "lock": TEXT,
    "fencing_token": integer(1),
    "session_id": TEXT,
    "path": TEXT,
    "zxid": integer(1),
    "kind": choice(*KINDS),
    "max_hold_ms": integer(),
    "previous": maybe(reference("Previous")),
}
RECORDED = {
    "owner": TEXT,
    "host": TEXT,
    "pid": maybe(integer(0, PID_MAX)),
    "trace_id": TEXT,
    "kind": choice(*KINDS),
    "when_unsure": choice("", *WHEN_UNSURE),
    "purpose": choice("", *PURPOSES),
    "guard": TEXT,
}
RECORD_FIELDS = {
    **RECORDED,
    "grant_id": TEXT,
    "path": TEXT,
    "fencing_token": integer(1),
    "session_id": TEXT,
    "label": TEXT,
    "entered_zxid": integer(1),
    "entered_ms": integer(),
    "granted_zxid": integer(1),
    "granted_ms": integer(),
    "ended_zxid": maybe(integer(1)),
    "ended_ms": maybe(integer()),
    "how": choice("", *ENDS, description="how it ended; empty while it holds"),
    "by": TEXT,
    "reason": TEXT,
    "silent_ms": integer(description="how long the leader had heard nothing when it expired"),
    "term": integer(),
    "next_token": maybe(integer(1)),
    "group": array(TEXT),
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
    "Create": body({}, {**CREATE, **IF_HELD}),
    "SetData": body({}, {**DATA, **IF_HELD, "expected_version": EXPECTED_VERSION})
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
    "IfHeld": {
        "oneOf": [
            body({"lock": TEXT, "fencing_token": integer(1)}),
            body({"election": TEXT, "fencing_token": integer(1)}),
        ]
    },
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
    "OpenSession": body(
        {},
        {
            "timeout_ms": integer(1),
            "label": {"type": "string", "maxLength": LABEL_CHARACTERS_MAX},
        },
    ),
    "SessionLease": response(
        {"session_id": TEXT, "timeout_ms": integer(1)},
        {
            "holds": {
                "type": "object",
                "additionalProperties": integer(),
                "description": "ms left of each hold with max_hold_ms, by the contender's path",
            },
            "lost": {
                **array(reference("LostGrant")),
                "description": "grants that were taken from the session while it lives",
            },
        },
    ),
    "LostGrant": response(
        {
            "path": TEXT,
            "fencing_token": integer(1),
            "how": choice("forced", "max_hold", "deleted"),
            "by": TEXT,
            "reason": TEXT,
        }
    ),
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
    "Acquire": body({}, LOCK_ACQUIRE) | LEASE,
    "AcquireSeveral": body(
        {"names": {**array(TEXT), "minItems": 1, "maxItems": NAMES_MAX}}, MULTI_ACQUIRE
    )
    | LEASE,
    "Campaign": body({}, {**ACQUIRE, **VALUE, **IF_HELD}) | LEASE,
    "Previous": response(
        {
            "grant_id": TEXT,
            "fencing_token": integer(1),
            "how": choice(*ENDS),
            "ended_zxid": integer(1),
        },
        NOTE,
    ),
    "Grant": response(GRANT_FIELDS, {"grants": array(response(GRANT_FIELDS))}),
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
            **RECORDED,
            "is_holder": BOOLEAN,
            "granted_ms": maybe(integer()),
            "lock_delay_ms": integer(),
            "max_hold_ms": integer(),
            "safe_ms": {
                **maybe(integer()),
                "description": "what the leader said is left of its lease and of its max_hold_ms",
            },
        },
        NOTE,
    ),
    "Candidate": response({**CONTENDER_FIELDS, "epoch": integer(1)}, VALUE),
    "LockView": response(
        {
            "lock": TEXT,
            "holder": maybe(reference("Contender")),
            "holders": array(reference("Contender")),
            "queue": array(reference("Contender")),
            "size": maybe(integer(1)),
            "closed": maybe(response({"delay_ms": integer(1), "remaining_ms": maybe(integer())})),
            "waits": maybe(reference("Spread")),
            "holds": maybe(reference("Spread")),
            "zxid": integer(),
        },
        {"is_current": BOOLEAN},
    ),
    "Spread": response(
        {"count": integer(1), "p50_ms": integer(), "p95_ms": integer(), "p99_ms": integer()}
    ),
    "LockSummary": response(
        {
            "lock": TEXT,
            "holder": maybe(reference("Contender")),
            "queue_length": integer(),
            "held_ms": integer(),
            "holder_count": integer(1),
        }
    ),
    "LockList": response({"locks": array(reference("LockSummary")), "next": maybe(TEXT)}),
    "Released": response({"grant_id": TEXT, "released": BOOLEAN}),
    "Abandoned": response({"deleted_path": maybe(TEXT)}),
    "Proclaim": body({}, {**VALUE, **IF_HELD}),
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
