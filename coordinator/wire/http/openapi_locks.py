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
    IF_HELD,
    NOT_EMPTY,
    TEXT,
    Schema,
    array,
    body,
    choice,
    integer,
    reference,
)
from coordinator.wire.http.schemas import Schemas

VALUE = {
    "value": {"type": "string", "description": "what the election publishes, as text"},
    "value_base64": {**BASE64, "description": "the value, if it is not clean UTF-8 text"},
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
LOCK_SCHEMAS: dict[str, Schema] = {
    "IfLockHeld": body({"lock": TEXT, "fencing_token": integer(1)}),
    "IfElected": body({"election": TEXT, "fencing_token": integer(1)}),
    "IfHeld": {"oneOf": [reference("IfLockHeld"), reference("IfElected")]},
    "Acquire": body({}, LOCK_ACQUIRE) | NOT_EMPTY,
    "AcquireSeveral": body(
        {"names": {**array(TEXT), "minItems": 1, "maxItems": NAMES_MAX}}, MULTI_ACQUIRE
    ),
    "Campaign": body({}, {**ACQUIRE, **VALUE, **IF_HELD}) | NOT_EMPTY,
}
