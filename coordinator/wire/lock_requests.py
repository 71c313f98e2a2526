"""Requests about locks whose fields depend on each other."""

from __future__ import annotations

from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.model.grants import RevokeRequest
from coordinator.wire.codec import from_body
from coordinator.wire.messages.if_held import IF_HELD_FIELD

_BESIDE = frozenset({IF_HELD_FIELD})


def read_revoke(body: Any) -> RevokeRequest:
    """Return the forced end that the body of POST /v1/locks/{name}/revoke describes."""
    asked = from_body(RevokeRequest, body, beside=_BESIDE)
    if not asked.by.strip() or not asked.reason.strip():
        raise BadArgumentsError("body: expected by and reason to say something, found blanks")
    return asked
