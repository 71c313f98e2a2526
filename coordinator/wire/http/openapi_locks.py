"""The shapes of locks, grants, their history and elections as JSON Schema; part of all schemas."""

from __future__ import annotations

from coordinator.model.contention import (
    KINDS,
    LOCK_DELAY_MS_MAX,
    MAX_HOLD_MS_MAX,
    NAMES_MAX,
    ON_DISCONNECT,
    OWNER_CHARACTERS_MAX,
    PID_MAX,
    PURPOSES,
    SIZE_MAX,
    WAIT_MS_MAX,
    WHEN_UNSURE,
)
from coordinator.model.history import ENDS
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

VALUE = {
    "value": {"type": "string", "description": "what the election publishes, as text"},
    "value_base64": {**BASE64, "description": "the value, if it is not clean UTF-8 text"},
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
    "session_id": {**TEXT, "description": "an open session; exactly one of this and lease_ms"},
    "lease_ms": integer(
        1,
        description="open a session of its own for this grant; exactly one of this and session_id",
    ),
    "timeout_ms": integer(0, WAIT_MS_MAX, description="how long to wait; 0 tries once"),
    "label": SHORT_TEXT,
    "host": SHORT_TEXT,
    "pid": integer(0, PID_MAX),
    "trace_id": SHORT_TEXT,
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
    "when_unsure": choice(*WHEN_UNSURE, description="recorded only"),
    "purpose": choice(*PURPOSES, description="recorded only"),
    "guard": {**SHORT_TEXT, "description": "recorded only: what checks the token, or a waiver"},
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
RECORD_OPTIONAL = {
    "lock": {**TEXT, "description": "of a lock; an election has election instead"},
    "election": TEXT,
    **NOTE,
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
    "Contender": response(
        {
            **CONTENDER_FIELDS,
            **RECORDED,
            "is_holder": BOOLEAN,
            "granted_ms": maybe(integer()),
            "lock_delay_ms": integer(),
            "max_hold_ms": integer(),
            "lease_ms": {
                **maybe(integer()),
                "description": "how long its lease is: the timeout of its session",
            },
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
            "denied": maybe(reference("Denied")),
            "zxid": integer(),
        },
        {"is_current": BOOLEAN},
    ),
    "Denied": response({"tries": integer(), "left": integer(), "since_ms": integer()}),
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
            "denied": maybe(reference("Denied")),
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
    "GrantRecord": response(RECORD_FIELDS, RECORD_OPTIONAL),
    "GrantPage": response({"grants": array(reference("GrantRecord")), "next": maybe(integer(1))}),
    "GrantLine": {
        "oneOf": [
            response({"type": {"const": "grant"}, **RECORD_FIELDS}, RECORD_OPTIONAL),
            reference("ErrorLine"),
        ]
    },
    "GrantStory": response(
        {
            "grant": reference("GrantRecord"),
            "next": maybe(reference("GrantRecord")),
            "summary": TEXT,
        }
    ),
}
