"""The shapes of bodies as JSON Schema (2020-12), as OpenAPI 3.1 uses it.

Kept by hand beside the routes; a test drives every operation and validates what really came back.
Requests are closed (an unknown field is refused); a response may grow fields in later versions.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from coordinator.model.access import IdentityView, Quota, RoleView, Rule, TokenView
from coordinator.model.access_requests import (
    AccessReply,
    AccessView,
    IdentityPage,
    IdentityRequest,
    InitAccessRequest,
    Me,
    QuotaPage,
    QuotaRequest,
    QuotaView,
    RolePage,
    RoleRequest,
    RuleOfRole,
    SetAccessRequest,
    TokenReply,
    TokenRequest,
    Use,
    Verdict,
)
from coordinator.model.acquire import IF_HELD_MAX, Acquire, AcquireSeveral, IfHeld
from coordinator.model.backup import BackupPiece
from coordinator.model.deadlocks import CycleStep, DeadlockList, RefusedDeadlock
from coordinator.model.diagnosis import (
    CheckResult,
    Diagnosis,
    LockDiagnosis,
    LockFigures,
    LockFinding,
    LockWhy,
    WaitLink,
)
from coordinator.model.events import Event, StreamError, WatchLine, WatchRequest
from coordinator.model.grants import (
    AbandonReply,
    AcquireLine,
    AcquireReply,
    DowngradeRequest,
    ExtendReply,
    ExtendRequest,
    GrantReply,
    NoteReply,
    NoteRequest,
    Proclaimed,
    ProclaimRequest,
    ReleaseReply,
    RevokeBody,
    RevokeReply,
    SizeReply,
    SizeRequest,
)
from coordinator.model.history import GrantLine, GrantPage, GrantRecord, GrantStory, Previous
from coordinator.model.limits import LimitsChange, LimitsView
from coordinator.model.members import (
    ClusterHealth,
    HandoverReply,
    HealthFinding,
    LeaderSeen,
    LogLevelReply,
    LogLevelRequest,
    MemberFacts,
    MemberList,
    MemberReport,
)
from coordinator.model.operations import (
    Check,
    Create,
    Delete,
    Deleted,
    Guarded,
    Multi,
    MultiReply,
    Operation,
    Read,
    Result,
    SetData,
)
from coordinator.model.sessions import (
    HeartbeatsRequest,
    LostGrant,
    SessionClosed,
    SessionInfo,
    SessionLease,
    SessionLeases,
    SessionList,
    SessionRequest,
)
from coordinator.model.status import Health, MemberInfo, Status
from coordinator.model.upgrade import FinishUpgrade, UpgradeMember, UpgradeView
from coordinator.model.views import (
    Candidate,
    Contender,
    Denied,
    Elected,
    ElectionView,
    LockList,
    LockSummary,
    LockView,
    Spread,
)
from coordinator.model.znodes import Child, Children, Stat, Subtree, Written, Znode
from coordinator.wire.http.openapi_shapes import (
    BOOLEAN,
    NOT_EMPTY,
    TEXT,
    Schema,
    array,
    integer,
    reference,
)
from coordinator.wire.http.schemas import Schemas
from coordinator.wire.lock_requests import OF_AN_ELECTION, OF_ONE, OF_SEVERAL

KINDS: dict[str, Any] = {
    "Stat": Stat,
    "Znode": Znode,
    "Child": Child,
    "Children": Children,
    "Subtree": Subtree,
    "Written": Written,
    "CreateOperation": Create,
    "SetOperation": SetData,
    "DeleteOperation": Delete,
    "CheckOperation": Check,
    "ReadOperation": Read,
    "Operation": Operation,
    "MultiReply": MultiReply,
    "OperationResult": Result,
    "WatchRequest": WatchRequest,
    "Event": Event,
    "ErrorLine": StreamError,
    "WatchLine": WatchLine,
    "Member": MemberInfo,
    "Status": Status,
    "LeaderSeen": LeaderSeen,
    "HandoverReply": HandoverReply,
    "UpgradeMember": UpgradeMember,
    "UpgradeView": UpgradeView,
    "FinishUpgrade": FinishUpgrade,
    "CycleStep": CycleStep,
    "RefusedDeadlock": RefusedDeadlock,
    "DeadlockList": DeadlockList,
    "MemberFacts": MemberFacts,
    "MemberReport": MemberReport,
    "HealthFinding": HealthFinding,
    "ClusterHealth": ClusterHealth,
    "BackupPiece": BackupPiece,
    "LogLevelRequest": LogLevelRequest,
    "LogLevelReply": LogLevelReply,
    "MemberList": MemberList,
    "Health": Health,
    "OpenSession": SessionRequest,
    "SessionLease": SessionLease,
    "SessionLeases": SessionLeases,
    "HeartbeatsRequest": HeartbeatsRequest,
    "LostGrant": LostGrant,
    "SessionClosed": SessionClosed,
    "Session": SessionInfo,
    "SessionList": SessionList,
    "Limits": LimitsView,
    "Rule": Rule,
    "Role": RoleView,
    "RuleOfRole": RuleOfRole,
    "Identity": IdentityView,
    "Token": TokenView,
    "Access": AccessView,
    "AccessReply": AccessReply,
    "TokenReply": TokenReply,
    "RolePage": RolePage,
    "IdentityPage": IdentityPage,
    "OwnQuota": Quota,
    "Use": Use,
    "Quota": QuotaView,
    "QuotaPage": QuotaPage,
    "Caller": Me,
    "Verdict": Verdict,
    "Contender": Contender,
    "Candidate": Candidate,
    "LockView": LockView,
    "Denied": Denied,
    "Spread": Spread,
    "LockSummary": LockSummary,
    "LockList": LockList,
    "LockWhy": LockWhy,
    "WaitLink": WaitLink,
    "LockFigures": LockFigures,
    "LockFinding": LockFinding,
    "LockDiagnosis": LockDiagnosis,
    "CheckResult": CheckResult,
    "Diagnosis": Diagnosis,
    "ElectionView": ElectionView,
    "ObserveLine": Elected | StreamError,
    "Previous": Previous,
    "GrantRecord": GrantRecord,
    "GrantPage": GrantPage,
    "GrantStory": GrantStory,
    "GrantLine": GrantLine | StreamError,
    "Released": ReleaseReply,
    "Abandoned": AbandonReply,
    "Proclaimed": Proclaimed,
    "Noted": NoteReply,
    "Extended": ExtendReply,
    "Size": SizeReply,
    "Revoked": RevokeReply,
}
"""The values of the model that have a schema of their own, by its name."""
LOCK_KINDS = {
    "IfLockHeld": IfHeld,
    "Grant": GrantReply,
    "GrantReply": AcquireReply,
    "AcquireLine": AcquireLine,
}
ELECTION_KINDS = {
    "IfElected": IfHeld,
    "ElectionGrant": GrantReply,
    "ElectionGrantReply": AcquireReply,
    "CampaignLine": AcquireLine,
}
"""The kinds that have other names for a lock than for an election."""
WRITES: dict[str, tuple[Any, Collection[str]]] = {
    "Create": (Create, {"path"}),
    "SetData": (SetData, {"path"}),
    "Multi": (Multi, ()),
    "Guarded": (Guarded, ()),
    "LimitsChange": (LimitsChange, ()),
    "SetAccess": (SetAccessRequest, ()),
    "InitAccess": (InitAccessRequest, ()),
    "RoleRequest": (RoleRequest, ()),
    "IdentityRequest": (IdentityRequest, ()),
    "QuotaRequest": (QuotaRequest, ()),
    "TokenRequest": (TokenRequest, ()),
    "Acquire": (Acquire, OF_ONE),
    "AcquireSeveral": (AcquireSeveral, OF_SEVERAL),
    "Campaign": (Acquire, OF_AN_ELECTION),
    "Proclaim": (ProclaimRequest, ()),
    "Conditions": (DowngradeRequest, ()),
    "NoteRequest": (NoteRequest, ()),
    "ExtendRequest": (ExtendRequest, ()),
    "Resize": (SizeRequest, ()),
    "Revoke": (RevokeBody, ()),
}
"""Bodies of writes, which may have conditions beside them: without which fields."""
IF_HELD = {
    "if_held": {
        "anyOf": [reference("IfHeld"), array(reference("IfHeld")) | {"maxItems": IF_HELD_MAX}],
        "description": "only while these grants still hold; refused with LockLost otherwise",
    }
}
_schemas = Schemas(KINDS, alone={"Condition": Check})
_of_locks = Schemas(KINDS | LOCK_KINDS, when=False)
_of_elections = Schemas(KINDS | ELECTION_KINDS, when=True)
CREATE_FIELDS = _schemas.of_fields(Create, "mode", "session_id", "ttl_ms", "parents")
"""What a query says of a znode whose data is the body itself."""
WATCH_QUERY = {
    **_schemas.of_fields(WatchRequest, "only", "prefix", "bookmark_ms"),
    "values": BOOLEAN,
}

SCHEMAS: dict[str, Schema] = {
    "Problem": {
        "type": "object",
        "required": ["type", "title", "status", "detail", "code", "definite"],
        "properties": {
            "type": TEXT,
            "title": TEXT,
            "status": integer(400, 599),
            "detail": TEXT,
            "code": {**TEXT, "description": "stable, for machines; docs/http-api.md lists all"},
            "definite": {
                **BOOLEAN,
                "description": "true: it certainly did not happen; false: unknown",
            },
        },
        "additionalProperties": True,
    },
    "Nothing": _schemas.of(DowngradeRequest)
    | {"description": "an empty object: its content type says whence it is"},
    **{name: _schemas.of(kind) for name, kind in KINDS.items()},
    "Deleted": _schemas.of(Deleted, given=("op",)),
    "Condition": _schemas.of(Check, is_alone=True),
    "IfHeld": {"oneOf": [reference("IfLockHeld"), reference("IfElected")]},
    **{name: _of_locks.of(kind) for name, kind in LOCK_KINDS.items()},
    **{name: _of_elections.of(kind) for name, kind in ELECTION_KINDS.items()},
    **{
        name: _schemas.of(kind, given=given, beside=IF_HELD)
        for name, (kind, given) in WRITES.items()
    },
}
for _name in ("SetData", "Acquire", "Campaign", "NoteRequest"):
    SCHEMAS[_name] |= NOT_EMPTY

SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "a token of an identity, co_...; needed once access rights are on",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "a client's certificate, a URI of which is a subject of an identity",
    },
}
