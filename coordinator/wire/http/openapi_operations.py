"""The operations of the OpenAPI document: where each route is, what it takes and what it gives.

Keys are operation ids; the routes carry the same. A test compares them with ``app.all_routes``.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.model.access import Verb
from coordinator.model.events import WatchKind
from coordinator.model.history import ENDS
from coordinator.wire import messages
from coordinator.wire.http.openapi_pages import PAGES
from coordinator.wire.http.openapi_parameters import (
    FLAG,
)
from coordinator.wire.http.openapi_schemas import CREATE_FIELDS, WATCH_QUERY
from coordinator.wire.http.openapi_shapes import (
    CZXID,
    EXPECTED_VERSION,
    TEXT,
    Schema,
    array,
    choice,
    integer,
)


@dataclass(frozen=True, slots=True)
class Described:
    """One operation: ``takes`` and ``gives`` name schemas; ``errors`` lists statuses with reasons.

    ``streams`` names the schema of a line when the response goes on."""

    method: str
    template: str
    summary: str
    takes: tuple[str, ...] = ()
    gives: str | None = None
    status: int = 200
    also: tuple[int, ...] = ()
    errors: tuple[int, ...] = ()
    query: dict[str, Schema] | None = None
    streams: str | None = None
    stream_types: tuple[str, ...] = (messages.NDJSON_TYPE,)
    is_write: bool = False
    is_read: bool = False
    is_raw: bool = False
    is_page: bool = False

    @property
    def tag(self) -> str:
        """Return the noun that the route is about: its first segment that says one."""
        first, second, *_ = [*self.template.strip("/").split("/"), ""]
        if self.is_page:
            return PAGES_TAG
        if second == "deadlocks":
            return "grants"
        return second if first == "v1" and second in TAGS else OPERATIONS_TAG


OPERATIONS_TAG = "operations"
PAGES_TAG = "pages"
TAGS = {
    "tree": "Znodes: read, list, create, set and delete.",
    "multi": "Several operations on znodes at once, all or none.",
    "watch": "Streams of changes.",
    "sessions": "Leases that clients keep alive; what they hold ends with them.",
    "locks": "Fair locks with fencing tokens; the wait is in the server.",
    "grants": "What became of grants.",
    "elections": "Leader election: the queue of a lock, with a value.",
    "access": "Access rights: roles, identities, tokens.",
    "limits": "How much there may be of everything, for all members.",
    OPERATIONS_TAG: "What a member says of itself.",
    PAGES_TAG: "Static pages for people, which use the routes above.",
}
"""The nouns of the routes, in the order of the documentation."""

_RAW_QUERY = {"raw": FLAG}
_PAGE = {"after": TEXT, "limit": integer(1, 10_000)}
_LIMITED = {"after": TEXT, "limit": integer(0, 10_000)}
_READ_QUERY = {"children": FLAG, "stat": FLAG, "subtree": FLAG, **_LIMITED, **_RAW_QUERY}

TREE = "/v1/tree/{path}"
_SESSION = "/v1/sessions/{session_id}"
_LOCKS = "/v1/locks"
_LOCK = "/v1/locks/{name}"
_ELECTION = "/v1/elections/{name}"
_GRANT = "/grants/{grant_id}"
_ATTEMPT = "/attempts/{client_id}/{number}"

OPERATIONS: dict[str, Described] = {
    "read_root": Described(
        "GET", "/v1/tree", "Read the root, or list its children.",
        gives="Znode", is_read=True, is_raw=True, also=(304,),
        query=_READ_QUERY,
    ),
    "read_znode": Described(
        "GET", TREE, "Read a znode; ?children lists its children, ?subtree reads all below.",
        gives="Znode", is_read=True, is_raw=True, also=(304,), errors=(404,),
        query=_READ_QUERY,
    ),
    "head_znode": Described(
        "HEAD", TREE, "What GET would answer, without the body.",
        is_read=True, also=(304,), errors=(404,),
        query=_READ_QUERY,
    ),
    "create_znode": Described(
        "POST", TREE, "Create a znode; a sequential mode answers with the full name.",
        takes=("Create",), gives="Written", status=201, errors=(404, 409, 410, 413),
        query={**CREATE_FIELDS, **_RAW_QUERY}, is_write=True, is_raw=True,
    ),
    "set_data": Described(
        "PUT", TREE, "Replace the data, if the version is the expected one; ?create upserts.",
        takes=("SetData",), gives="Written", also=(201,), errors=(404, 409, 412, 413),
        query={"create": FLAG, "expected_version": EXPECTED_VERSION, **_RAW_QUERY},
        is_write=True, is_raw=True,
    ),
    "delete_znode": Described(
        "DELETE", TREE, "Delete a znode, with ?recursive and everything below it.",
        gives="Deleted", errors=(404, 409, 412),
        query={"recursive": FLAG, "expected_version": EXPECTED_VERSION, "expected_czxid": CZXID},
        is_write=True,
    ),
    "multi": Described(
        "POST", "/v1/multi", "Do all operations or none; under conditions, one of two branches.",
        takes=("Multi", "Guarded"), gives="MultiReply", errors=(404, 409, 410, 412, 413),
        is_write=True,
    ),
    "watch": Described(
        "GET", "/v1/watch", "Stream the changes of the given paths, all watched in one way.",
        streams="WatchLine", errors=(409, 410),
        stream_types=(messages.EVENT_STREAM_TYPE, messages.NDJSON_TYPE),
        query={
            "path": array(TEXT), "kind": choice(*WatchKind), "from_zxid": integer(),
            "one_shot": FLAG, **WATCH_QUERY,
        },
    ),
    "watch_many": Described(
        "POST", "/v1/watch", "Stream the changes that the selectors in the body ask for.",
        takes=("WatchRequest",), streams="WatchLine", errors=(409, 410, 413),
        stream_types=(messages.EVENT_STREAM_TYPE, messages.NDJSON_TYPE),
    ),
    "open_session": Described(
        "POST", "/v1/sessions", "Open a session; the member draws its id.",
        takes=("OpenSession",), gives="SessionLease", status=201, errors=(409, 413), is_write=True,
    ),
    "list_sessions": Described(
        "GET", "/v1/sessions", "List the open sessions, in the order of their opening.",
        gives="SessionList", is_read=True,
        query={"after": integer(), "limit": integer(1, 1_000)},
    ),
    "get_session": Described(
        "GET", _SESSION, "Look at one session and its ephemerals.",
        gives="Session", is_read=True, errors=(410,),
    ),
    "close_session": Described(
        "DELETE", _SESSION, "End a session and its ephemerals; a loss with ?failure. Idempotent.",
        gives="SessionClosed", is_write=True, query={"failure": TEXT, "by": TEXT},
    ),
    "heartbeat": Described(
        "POST", f"{_SESSION}/heartbeat", "Extend the lease of a session.",
        takes=("Nothing",), gives="SessionLease", errors=(410, 413),
    ),
    "heartbeats": Described(
        "POST", "/v1/sessions/heartbeats", "Extend the leases of many sessions at once.",
        takes=("HeartbeatsRequest",), gives="SessionLeases", errors=(413,),
    ),
    "list_locks": Described(
        "GET", _LOCKS, "List the locks that are not free.",
        gives="LockList", is_read=True, query={**_PAGE, "held_ms_min": integer()},
    ),
    "acquire_locks": Described(
        "POST", _LOCKS, "Wait until all of several locks are granted at once, or time is up.",
        takes=("AcquireSeveral",), gives="GrantReply", streams="AcquireLine",
        errors=(409, 410, 413), is_write=True,
    ),
    "get_lock": Described(
        "GET", _LOCK, "Who holds, who waits, and whether a fencing token is the current one.",
        gives="LockView", is_read=True,
        query={"fencing_token": integer(), "session_id": TEXT},
    ),
    "acquire_lock": Described(
        "POST", _LOCK, "Wait in the queue until the lock is granted or the time is up.",
        takes=("Acquire",), gives="GrantReply", streams="AcquireLine",
        errors=(409, 410, 413), is_write=True,
    ),
    "release_lock": Described(
        "DELETE", _LOCK + _GRANT, "Release a grant; idempotent, never another client's.",
        gives="Released", errors=(409, 410), is_write=True,
    ),
    "abandon_lock_attempt": Described(
        "DELETE", _LOCK + _ATTEMPT, "Undo an attempt whose answer never came; idempotent.",
        gives="Abandoned", errors=(409, 410), query={"floor_index": integer()},
    ),
    "downgrade_lock": Described(
        "POST", f"{_LOCK}{_GRANT}/downgrade", "Turn an exclusive grant into a shared one.",
        takes=("Conditions",), gives="GrantReply", errors=(409, 413), is_write=True,
    ),
    "note_lock": Described(
        "PUT", f"{_LOCK}{_GRANT}/note", "Keep a checkpoint note for the next holder.",
        takes=("NoteRequest",), gives="Noted", errors=(409, 413), is_write=True,
    ),
    "extend_lock": Described(
        "POST", f"{_LOCK}{_GRANT}/extend", "Move the end of a hold that has a max_hold_ms.",
        takes=("ExtendRequest",), gives="Extended", errors=(409, 413), is_write=True,
    ),
    "resize_semaphore": Described(
        "PUT", f"{_LOCK}/size", "Change the size of a semaphore; nobody's slot is taken.",
        takes=("Resize",), gives="Size", errors=(404, 409, 413), is_write=True,
    ),
    "revoke_lock": Described(
        "POST", f"{_LOCK}/revoke", "End a grant by force; who did it and why is recorded.",
        takes=("Revoke",), gives="Revoked", errors=(409, 413), is_write=True,
    ),
    "list_grants": Described(
        "GET", "/v1/grants", "The history of grants, oldest first; NDJSON exports all of them.",
        gives="GrantPage", streams="GrantLine", is_read=True,
        query={
            "lock": TEXT, "election": TEXT, "session_id": TEXT, "fencing_token": integer(),
            "since_ms": integer(), "until_ms": integer(), "how": choice("", *ENDS),
            "after": integer(), "limit": integer(1, 10_000),
        },
    ),
    "get_grant": Described(
        "GET", "/v1/grants/{lock}/{grant_id}", "How a grant ended, and who was next.",
        gives="GrantStory", is_read=True, errors=(404,), query={"election": FLAG},
    ),
    "list_deadlocks": Described(
        "GET", "/v1/deadlocks", "The latest requests that were refused for a deadlock.",
        gives="DeadlockList",
    ),
    "explain_lock": Described(
        "GET", f"{_LOCK}/why", "Who holds, how long that is safe, why others wait; in sentences.",
        gives="LockWhy", is_read=True,
    ),
    "diagnose": Described(
        "GET", "/v1/diagnosis", "What is wrong with the cluster and its locks, and what to do.",
        gives="Diagnosis", is_read=True, query={**_PAGE, "lock": TEXT, "checks": FLAG},
    ),
    "get_election": Described(
        "GET", _ELECTION, "Who is elected, and the other candidates; ?observe streams each change.",
        gives="ElectionView", streams="ObserveLine", is_read=True,
        query={"observe": FLAG, "session_id": TEXT},
        stream_types=(messages.EVENT_STREAM_TYPE, messages.NDJSON_TYPE),
    ),
    "campaign": Described(
        "POST", _ELECTION, "Stand for election and wait until elected or the time is up.",
        takes=("Campaign",), gives="ElectionGrantReply", streams="CampaignLine",
        errors=(409, 410, 413), is_write=True,
    ),
    "proclaim": Described(
        "PUT", _ELECTION + _GRANT, "Publish another value while elected.",
        takes=("Proclaim",), gives="Proclaimed", errors=(409, 410, 413), is_write=True,
    ),
    "resign": Described(
        "DELETE", _ELECTION + _GRANT, "Step down; idempotent.",
        gives="Released", errors=(409, 410), is_write=True,
    ),
    "abandon_campaign": Described(
        "DELETE", _ELECTION + _ATTEMPT, "Undo a campaign whose answer never came; idempotent.",
        gives="Abandoned", errors=(409, 410), query={"floor_index": integer()},
    ),
    "get_limits": Described(
        "GET", "/v1/limits", "The limits that hold for all members, and who set them.",
        gives="Limits", is_read=True,
    ),
    "set_limits": Described(
        "PATCH", "/v1/limits", "Set limits for all members; what exists beyond them stays.",
        takes=("LimitsChange",), gives="Limits", errors=(409, 412, 413), is_write=True,
    ),
    "get_access": Described(
        "GET", "/v1/access", "Whether access rights are on.", gives="Access", is_read=True,
    ),
    "set_access": Described(
        "PUT", "/v1/access", "Turn access rights off, or on again.",
        takes=("SetAccess",), gives="AccessReply", errors=(413,), is_write=True,
    ),
    "init_access": Described(
        "POST", "/v1/access/init", "Turn access rights on, with a first identity that may do all.",
        takes=("InitAccess",), gives="TokenReply", status=201, errors=(409, 413), is_write=True,
    ),
    "get_caller": Described(
        "GET", "/v1/access/me", "Who the caller is, and its roles.", gives="Caller",
    ),
    "explain_access": Described(
        "GET", "/v1/access/can", "Whether an identity may do something, and why.",
        gives="Verdict", query={"identity": TEXT, "verb": choice(*Verb), "resource": TEXT},
    ),
    "list_roles": Described(
        "GET", "/v1/access/roles", "The roles and their rules, by name.",
        gives="RolePage", is_read=True, query={"after": TEXT, "limit": integer(1, 100)},
    ),
    "put_role": Described(
        "PUT", "/v1/access/roles/{role}", "Make a role, or replace its rules.",
        takes=("RoleRequest",), gives="AccessReply", errors=(409, 413), is_write=True,
    ),
    "drop_role": Described(
        "DELETE", "/v1/access/roles/{role}", "Forget a role that no identity has.",
        gives="AccessReply", errors=(404, 409), is_write=True,
    ),
    "list_identities": Described(
        "GET", "/v1/access/identities", "The identities, their roles and the ids of their tokens.",
        gives="IdentityPage", is_read=True, query={"after": TEXT, "limit": integer(1, 100)},
    ),
    "put_identity": Described(
        "PUT", "/v1/access/identities/{identity}", "Make an identity, or change its roles.",
        takes=("IdentityRequest",), gives="AccessReply", errors=(404, 409, 413), is_write=True,
    ),
    "drop_identity": Described(
        "DELETE", "/v1/access/identities/{identity}", "Forget an identity and its credentials.",
        gives="AccessReply", errors=(404,), is_write=True,
    ),
    "list_quotas": Described(
        "GET", "/v1/access/quotas", "The quotas of the identities, and what is used of them.",
        gives="QuotaPage", is_read=True, query={"after": TEXT, "limit": integer(1, 100)},
    ),
    "get_quota": Described("GET", "/v1/access/identities/{identity}/quota", "A quota, and its use.",
        gives="Quota", is_read=True, errors=(404,)),
    "set_quota": Described("PATCH", "/v1/access/identities/{identity}/quota", "Change a quota.",
        takes=("QuotaRequest",), gives="AccessReply", errors=(404, 413), is_write=True),
    "add_token": Described(
        "POST", "/v1/access/identities/{identity}/tokens", "Give an identity one more token.",
        takes=("TokenRequest",), gives="TokenReply", status=201, errors=(404, 409, 413),
        is_write=True,
    ),
    "drop_token": Described(
        "DELETE", "/v1/access/tokens/{token_id}", "Revoke a token; sessions opened with it end.",
        gives="AccessReply", errors=(404,), is_write=True,
    ),
    "backup": Described(
        "GET", "/v1/backup", "Begin a backup and return its first piece, or return another piece.",
        gives="BackupPiece", errors=(410,), query={"id": TEXT, "offset": integer()},
    ),
    "status": Described(
        "GET", "/v1/status", "What this member knows of itself and the others.", gives="Status"
    ),
    "upgrade_status": Described(
        "GET", "/v1/upgrade", "Which member runs which release, and what to do next.",
        gives="UpgradeView",
    ),
    "finish_upgrade": Described(
        "POST", "/v1/upgrade/finish", "Raise the level of the cluster, if every member reads it.",
        takes=("FinishUpgrade",), gives="UpgradeView", errors=(412, 413),
    ),
    "hand_over": Described(
        "POST", "/v1/members/handover", "Have another member lead; answers when one does.",
        takes=("Nothing",), gives="HandoverReply", errors=(413,),
    ),
    "set_log_level": Described(
        "PUT", "/v1/members/log-level", "Change what members log, until their next start.",
        takes=("LogLevelRequest",), gives="LogLevelReply", errors=(413,),
    ),
    "list_members": Described(
        "GET", "/v1/members", "How the cluster is, and what each member says of itself.",
        gives="MemberList",
    ),
    "health_live": Described(
        "GET", "/health/live", "Whether the process answers at all.", gives="Health"
    ),
    "health_live_head": Described(
        "HEAD", "/health/live", "The same without a body, for probes that ask so."
    ),
    "health_ready_head": Described(
        "HEAD", "/health/ready", "The same without a body.", also=(503,)
    ),
    "health_ready": Described(
        "GET", "/health/ready", "Whether to send requests here; 503 says why not.",
        gives="Health", also=(503,),
    ),
    "metrics": Described("GET", "/metrics", "Metrics in the text format of Prometheus."),
    "openapi": Described("GET", "/openapi.json", "This document."),
    "root": Described(
        "GET", "/", "Leads a browser to the console.", status=303, errors=(404,), is_page=True
    ),
    "root_head": Described(
        "HEAD", "/", "The same for HEAD.", status=303, errors=(404,), is_page=True
    ),
    **{each.operation_id: Described(
        each.method, each.template, each.summary, also=(304,), errors=(404,), is_page=True,
    ) for each in PAGES},
}  # fmt: skip
