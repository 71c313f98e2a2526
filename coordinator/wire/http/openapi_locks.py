"""The shapes of locks, grants, their history and elections as JSON Schema; part of all schemas."""

from __future__ import annotations

from coordinator.model.contention import (
    KINDS,
    LOCK_DELAY_MS_MAX,
    MAX_HOLD_MS_MAX,
    NAMES_MAX,
    ON_DISCONNECT,
    OWNER_CHARACTERS_MAX,
    SIZE_MAX,
    WAIT_MS_MAX,
    HolderInfo,
)
from coordinator.wire.http.openapi_shapes import (
    BASE64,
    BOOLEAN,
    IF_HELD,
    NOT_EMPTY,
    SHORT_TEXT,
    TEXT,
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

VALUE = {
    "value": {"type": "string", "description": "what the election publishes, as text"},
    "value_base64": {**BASE64, "description": "the value, if it is not clean UTF-8 text"},
}
NOTE = {
    "note": {"type": "string", "description": "the checkpoint note, as text"},
    "note_base64": {**BASE64, "description": "the note, if it is not clean UTF-8 text"},
}
ACQUIRE = {
    "session_id": {**TEXT, "description": "an open session; exactly one of this and lease_ms"},
    "lease_ms": integer(
        1,
        description="open a session of its own for this grant; exactly one of this and session_id",
    ),
    "timeout_ms": integer(0, WAIT_MS_MAX, description="how long to wait; 0 tries once"),
    **Schemas({}).of_fields(HolderInfo, "label", "host", "pid", "trace_id"),
    "on_disconnect": choice(*ON_DISCONNECT),
}
MULTI_ACQUIRE = {
    **ACQUIRE,
    **IF_HELD,
    "owner": {
        "type": "string",
        "maxLength": OWNER_CHARACTERS_MAX,
        "description": "distinguishes owners within a session (deadlocks)",
    },
    "lock_delay_ms": integer(0, LOCK_DELAY_MS_MAX, description="closes it after an unclean loss"),
    "max_hold_ms": integer(0, MAX_HOLD_MS_MAX, description="ends the grant by itself; 0: never"),
    **Schemas({}).of_fields(HolderInfo, *HolderInfo.__struct_fields__),
}
LOCK_ACQUIRE = {
    **MULTI_ACQUIRE,
    "kind": choice(*KINDS),
    "size": integer(1, SIZE_MAX, description="of a semaphore that does not exist yet"),
}
GRANT_LEASE = {
    "lease_ms": maybe(integer(1, description="of a lease of its own; null with session_id")),
    "safe_ms": maybe(integer(description="how long it is safe, counted from the answer")),
}
GRANT_FIELDS = {
    **GRANT_LEASE,
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
LOCK_SCHEMAS: dict[str, Schema] = {
    "IfLockHeld": body({"lock": TEXT, "fencing_token": integer(1)}),
    "IfElected": body({"election": TEXT, "fencing_token": integer(1)}),
    "IfHeld": {"oneOf": [reference("IfLockHeld"), reference("IfElected")]},
    "Acquire": body({}, LOCK_ACQUIRE) | NOT_EMPTY,
    "AcquireSeveral": body(
        {"names": {**array(TEXT), "minItems": 1, "maxItems": NAMES_MAX}}, MULTI_ACQUIRE
    ),
    "Campaign": body({}, {**ACQUIRE, **VALUE, **IF_HELD}) | NOT_EMPTY,
    "Grant": response(GRANT_FIELDS, {"grants": array(response(GRANT_FIELDS))}),
    "GrantReply": response({"grant": reference("Grant")}),
    "ElectionGrant": response(
        {
            "grant_id": TEXT,
            "election": TEXT,
            "epoch": integer(1),
            "fencing_token": integer(1),
            "session_id": TEXT,
            **GRANT_LEASE,
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
    "Released": response({"grant_id": TEXT, "released": BOOLEAN}),
    "Abandoned": response({"deleted_path": maybe(TEXT)}),
    "Proclaim": body({}, {**VALUE, **IF_HELD}),
    "Proclaimed": response({"grant_id": TEXT, "epoch": integer(1), "zxid": integer(1)}),
    "Conditions": body({}, IF_HELD),
    "NoteRequest": body({}, {**NOTE, **IF_HELD}) | NOT_EMPTY,
    "Noted": response({"grant_id": TEXT, "zxid": integer()}),
    "Resize": body({"size": integer(1, SIZE_MAX)}, IF_HELD),
    "Size": response({"lock": TEXT, "size": integer(1), "zxid": integer()}),
    "Revoke": body(
        {
            "by": {**SHORT_TEXT, "minLength": 1},
            "reason": {**SHORT_TEXT, "minLength": 1},
        },
        {"grant_id": TEXT, **IF_HELD},
    ),
    "Revoked": response({"grant": reference("GrantRecord"), "fencing_token_min": integer(1)}),
}
