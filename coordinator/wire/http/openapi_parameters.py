"""The parameters of the routes as OpenAPI describes them: of the path, the query, the headers."""

from __future__ import annotations

from typing import Any

from coordinator.wire import messages
from coordinator.wire.http.openapi_shapes import BOOLEAN, TEXT, Schema, array, integer
from coordinator.wire.if_held import IF_HELD_QUERY

FLAG: Schema = {**BOOLEAN, "description": "given by its name alone, or as true or false"}

PATH_PARAMETERS: dict[str, Schema] = {
    "path": {"type": "string", "minLength": 1},
    "session_id": {"type": "string", "minLength": 1},
    "name": {"type": "string", "minLength": 1, "maxLength": 200},
    "lock": {"type": "string", "minLength": 1, "maxLength": 200},
    "grant_id": {"type": "string", "minLength": 1, "examples": ["42-1337"]},
    "client_id": {"type": "string", "pattern": "^[!-~]{1,64}$"},
    "number": integer(1),
    "role": {"type": "string", "minLength": 1, "maxLength": 64},
    "identity": {"type": "string", "minLength": 1, "maxLength": 64},
    "token_id": {"type": "string", "minLength": 1, "maxLength": 32},
}
READ_QUERY: dict[str, Schema] = {"stale": FLAG, "at_least_zxid": integer()}
WRITE_QUERY: dict[str, Schema] = {
    name: array({"type": "string", "pattern": "^.+:[0-9]{1,19}$"}) for name in IF_HELD_QUERY
}
WRITE_HEADERS: dict[str, Schema] = {
    messages.CLIENT_ID_HEADER: {"type": "string", "pattern": "^[!-~]{1,64}$"},
    messages.REQUEST_NUMBER_HEADER: integer(1),
    messages.FLOOR_INDEX_HEADER: integer(),
}
COMMON_HEADERS: dict[str, Schema] = {
    messages.TIMEOUT_HEADER: integer(1, 60_000),
    messages.SESSION_ID_HEADER: TEXT,
}
IF_MATCH: dict[str, Schema] = {"If-Match": TEXT}
IF_NONE_MATCH: dict[str, Schema] = {"If-None-Match": TEXT}

_GUARDED = "<name>:<fencing token>: only while that grant still holds"
_TEXTS = {
    "path": "the path of the znode, or of the file, without its first slash; slashes stay slashes",
    "path in query": "a path to watch; as often as needed",
    "session_id": "the id of a session",
    "session_id in query": "of an open session: required by ephemeral modes, or whose grants",
    "name": "the name of the lock or the election; a slash in it is %2F",
    "lock": "the name of a lock, or of an election with ?election",
    "grant_id": "the name of one acquisition, as the grant says it",
    "client_id": "the Coordinator-Client-Id of the attempt",
    "number": "the Coordinator-Request-Number of the attempt",
    "role": "the name of a role",
    "identity": "the name of an identity",
    "token_id": "the id of a token: the part of it behind co_",
    "verb": "what it would do",
    "resource": "where: a path, or a thing of the cluster such as @limits",
    "stale": "read what this member has, at once; labelled with its age",
    "at_least_zxid": "read what this member has once it has this zxid",
    "if_held": _GUARDED,
    "if_elected": _GUARDED,
    "children": "list the children instead",
    "subtree": "read all below, too, instead",
    "stat": "with children: each with its Stat",
    "after": "continue after this: the next of the last page",
    "limit": "how many a page has at most",
    "raw": "the body of the request or the response is the data itself",
    "mode": "the create mode; with raw",
    "ttl_ms": "required by ttl modes; with raw",
    "parents": "create missing ancestors as this; with raw",
    "create": "create the znode if it is missing",
    "expected_version": "only if the version is this; -1 accepts any",
    "recursive": "with everything below it",
    "expected_czxid": "only the znode that was created at this zxid",
    "kind": "what is watched: the znode, its children, or all below it",
    "from_zxid": "deliver every change after this zxid, also past ones",
    "one_shot": "end after the first change",
    "checks": "with what an examination of all members finds; needs admin on @members",
    "values": "with the data after and before each change",
    "only": "only events of this type; may be said several times",
    "prefix": "only events of paths that begin so",
    "bookmark_ms": "how often to say how far the watch has come, 100 to 10000",
    "by": "who ends the session, if it is not its client; recorded",
    "failure": "what is wrong with the client: its grants end as a loss, for this reason",
    "held_ms_min": "only locks that have been held for at least this time",
    "fencing_token": "only whether this token is a current one; in the history: this grant",
    "floor_index": "a Coordinator-Index from before the client id was drawn",
    "election": "of this election; in a path's story: it is an election's",
    "since_ms": "granted at this wall time or later",
    "until_ms": "granted before this wall time",
    "how": "ended so; empty: held now",
    "observe": "stream each change",
    "id": "which backup: the backup_id of its first piece; without it one is begun",
    "offset": "where in the backup the piece begins",
    messages.TIMEOUT_HEADER: "how long the request may take in all",
    messages.SESSION_ID_HEADER: "renew this session besides; Coordinator-Safe-Ms answers",
    messages.CLIENT_ID_HEADER: "drawn at random by the client; makes a write safe to repeat",
    messages.REQUEST_NUMBER_HEADER: "1, 2, 3 and so on, for each write of a client id",
    messages.FLOOR_INDEX_HEADER: "a Coordinator-Index from before the client id was drawn",
    "If-Match": "an ETag, or the expected version in quotes",
    "If-None-Match": "ETags, or *",
}


def described(place: str, schemas: dict[str, Schema]) -> list[dict[str, Any]]:
    """Return the parameters ``schemas`` by name in ``place``: path, query or header."""
    return [
        {
            "name": name,
            "in": place,
            **({"required": True} if place == "path" else {}),
            "description": _TEXTS.get(f"{name} in {place}", _TEXTS[name]),
            "schema": schema,
        }
        for name, schema in schemas.items()
    ]
