"""Requests about locks and elections whose fields depend on each other, or on the route."""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import fields

from coordinator.errors import BadArgumentsError
from coordinator.model.acquire import Acquire, AcquireSeveral
from coordinator.model.grants import RevokeBody
from coordinator.wire.codec import from_body
from coordinator.wire.if_held import IF_HELD

_OWN_ID: Final = re.compile(r"[0-9a-f]{16}")
_ELECTION_FIELDS: Final = {
    *("session_id", "lease_ms", "session_label", "timeout_ms", "on_disconnect"),
    *("label", "host", "pid", "trace_id", "value"),
}
OF_ONE: Final[dict[str, Any]] = {"value": None}
OF_SEVERAL: Final = {**OF_ONE, "kind": "exclusive", "size": None}
OF_AN_ELECTION: Final = {
    each.name: each.default for each in fields(Acquire) if each.name not in _ELECTION_FIELDS
}
"""What the request for one lock, for several, or for an election does not say."""


def read_acquire(body: Any, *, is_election: bool = False) -> Acquire:
    """Return what the body of POST /v1/locks/{name} or /v1/elections/{name} asks for."""
    given = OF_AN_ELECTION if is_election else OF_ONE
    return _with_a_lease(from_body(Acquire, body, given=given, beside=IF_HELD))


def read_acquire_several(body: Any) -> AcquireSeveral:
    """Return what the body of POST /v1/locks asks for."""
    wanted = from_body(AcquireSeveral, body, given=OF_SEVERAL, beside=IF_HELD)
    for at, name in enumerate(wanted.names):
        if name in ("", ".", ".."):  # as in a URL, by which it is given back
            raise BadArgumentsError(f"body.names[{at}]: expected a name, found {name!r}")
    _with_a_lease(wanted)
    return wanted


def read_revoke(body: Any) -> RevokeBody:
    """Return the forced end that the body of POST /v1/locks/{name}/revoke describes."""
    wanted = from_body(RevokeBody, body, beside=IF_HELD)
    if not wanted.by.strip() or not wanted.reason.strip():
        raise BadArgumentsError("body: expected by and reason to say something, found blanks")
    return wanted


def _with_a_lease(wanted: Acquire) -> Acquire:
    if wanted.session_id is None and wanted.lease_ms is None:
        raise BadArgumentsError(
            "body: expected session_id (an open session) or lease_ms (open one for this "
            "grant), found neither; nothing is held without a lease"
        )
    is_both = wanted.session_id is not None and wanted.lease_ms is not None
    if is_both and _OWN_ID.fullmatch(wanted.session_id or "") is None:
        raise BadArgumentsError(
            "body: expected session_id or lease_ms, or both to open a session whose id the client "
            f"drew (16 digits of 0-9a-f), found both and the id {(wanted.session_id or '')[:64]!a}"
        )
    return wanted
