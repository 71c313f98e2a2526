"""The two forms of a multi: operations, or conditions with two branches. The body says which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.model.operations import Guarded, Multi
from coordinator.wire.codec import from_body, unknown_name
from coordinator.wire.if_held import IF_HELD, IF_HELD_FIELD

_NAMES = {"operations", "by", "reason", "conditions", "then", "otherwise", IF_HELD_FIELD}


def read_multi(body: Any) -> Multi | Guarded:
    """Return the multi or the guarded write that the body of POST /v1/multi describes."""
    is_object = isinstance(body, Mapping)
    if is_object and "operations" not in body and "conditions" not in body:
        if unknown := body.keys() - _NAMES:
            raise BadArgumentsError(f"body: {unknown_name(unknown, _NAMES, 'field')}")
        raise BadArgumentsError("body: expected operations, or conditions; found neither")
    if is_object and "operations" not in body:
        return from_body(Guarded, body, beside=IF_HELD)
    return from_body(Multi, body, beside=IF_HELD)
