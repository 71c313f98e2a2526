"""The two encodings of a body, and how bytes of a znode travel in each.

A body is the same object in both. Only data differs: msgpack has bytes; JSON has ``data`` for what
is clean UTF-8 text and ``data_base64`` for everything else.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from coordinator.wire.strict_json import (
    DEPTH_MAX,
    ITEMS_MAX,
    decode_json,
    decode_msgpack,
    encode_json,
    encode_msgpack,
    msgpack_packer,
)

# Text that survives a terminal and an editor: no control characters but tab and line ends.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Encoding(StrEnum):
    """How a body is written; the value is its media type."""

    JSON = "application/json"
    MSGPACK = "application/msgpack"


def encode(body: Any, encoding: Encoding = Encoding.JSON) -> bytes:
    """Return ``body`` as bytes on the wire."""
    return encode_json(body) if encoding is Encoding.JSON else encode_msgpack(body)


def encode_listed(
    body: Mapping[str, Any], lists: Mapping[str, Sequence[bytes]], encoding: Encoding
) -> bytes:
    """Return ``body`` as bytes on the wire, its fields ``lists`` made of items encoded before.

    So a long list is encoded item by item, with other work in between.
    """
    parts: list[bytes] = []
    if encoding is Encoding.MSGPACK:
        packer = msgpack_packer()
        parts.append(packer.pack_map_header(len(body)))
        for name, value in body.items():
            parts.append(packer.pack(name))
            if name in lists:
                parts += (packer.pack_array_header(len(lists[name])), *lists[name])
            else:
                parts.append(packer.pack(value))
        return b"".join(parts)
    for name, value in body.items():
        parts += (b"," if parts else b"{", encode_json(name), b":")
        if name in lists:  # which may be some 20 MB: copied once, below
            items = lists[name]
            woven = [b","] * (2 * len(items) - 1)
            woven[::2] = items
            parts += (b"[", *woven, b"]")
        else:
            parts.append(encode_json(value))
    parts.append(b"}" if parts else b"{}")
    return b"".join(parts)


def decode(
    raw: bytes,
    encoding: Encoding = Encoding.JSON,
    depth_max: int = DEPTH_MAX,
    items_max: int = ITEMS_MAX,
) -> Any:
    """Return the body in ``raw``, strictly read; raises BadArgumentsError."""
    if encoding is Encoding.JSON:
        return decode_json(raw, depth_max, items_max)
    return decode_msgpack(raw, depth_max, items_max)


def data_fields(data: bytes, encoding: Encoding) -> dict[str, Any]:
    """Return the one field that carries ``data``."""
    if encoding is Encoding.MSGPACK:
        return {"data": data}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode("ascii")}
    if _CONTROL.search(text) is not None:
        return {"data_base64": base64.b64encode(data).decode("ascii")}
    return {"data": text}


def bytes_fields(name: str, value: bytes, encoding: Encoding) -> dict[str, Any]:
    """Return the one field that carries ``value``: called ``name``, or ``name_base64``."""
    fields = data_fields(value, encoding)
    return {each.replace("data", name): carried for each, carried in fields.items()}


def read_base64(encoded: Any) -> bytes | None:
    """Return the bytes that ``encoded`` says, None when it is not base64."""
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (binascii.Error, ValueError):
        return None
