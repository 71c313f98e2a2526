"""A contender's description of itself, as the JSON that its znode keeps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

from msgspec.structs import asdict

from coordinator.errors import BadArgumentsError
from coordinator.model.contention import PID_MAX, HolderInfo

_HOLDER_BYTES_MAX: Final = 4_096
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def holder_data(holder: HolderInfo) -> bytes:
    """Return the JSON of what is set."""
    return _data_of(*_values_of(holder))


@lru_cache(1_000, typed=True)  # a holder says the same of itself whenever it asks
def _data_of(*values: Any) -> bytes:
    pairs = zip(_KINDS, values, strict=True)
    document = {name: value for name, value in pairs if value not in ("", None)}
    try:
        data = _ENCODER.encode(document).encode()
    except UnicodeEncodeError:
        raise BadArgumentsError("holder: expected text without lone surrogates") from None
    if len(data) > _HOLDER_BYTES_MAX:
        raise BadArgumentsError(
            f"holder: expected at most {_HOLDER_BYTES_MAX} bytes, found {len(data)}"
        )
    return data


def said_in(data: bytes) -> dict[str, Any]:
    """Return the fields of a HolderInfo that a znode's data says; what another program wrote in
    another form is left out. A contender may write there what it likes."""
    if len(data) > _HOLDER_BYTES_MAX:
        return {}
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    return {
        name: value
        for name, kind in _KINDS.items()
        if type(value := document.get(name)) is kind and _can_be_said(value)
    }


def _can_be_said(value: str | int) -> bool:
    """Whether every encoding of an answer can carry it."""
    if isinstance(value, int):
        return 0 <= value <= PID_MAX
    return value.isascii() or _SURROGATE.search(value) is None


_KINDS: Final = {
    name: int if value is None else str for name, value in asdict(HolderInfo()).items()
}
_values_of: Final = attrgetter(*_KINDS)


def named(holder: Mapping[str, Any]) -> str:
    """Return who holds, as far as it said who it is."""
    who = f"{holder['label']!r}" if holder.get("label") else f"session {holder['session_id']}"
    where = f" on {holder['host']!r}" if holder.get("host") else ""
    return f"{who}{where}"
