"""The encoding that a client wants an answer in, as its Accept header says."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from coordinator.wire.encoding import Encoding

MSGPACK_TYPES: Final = frozenset({"application/msgpack", "application/x-msgpack"})
_KEPT: Final = 64
_KEPT_CHARACTERS_MAX: Final = 256
"""So many headers, of so many characters at the most, are not read again."""


def encoding_wanted(accept: str, default: Encoding) -> Encoding:
    """Return the encoding that an Accept header asks for; ``default`` if it leaves it open."""
    if "msgpack" not in accept:
        return default
    return _read(accept) if len(accept) > _KEPT_CHARACTERS_MAX else _known(accept)


def _read(accept: str) -> Encoding:
    """Return the encoding that an Accept header asks for, one of which names msgpack."""
    wanted = dict(map(_quality, accept.lower().split(",")))
    msgpack = max(wanted.get(each, 0.0) for each in MSGPACK_TYPES)
    is_wanted = msgpack > 0 and msgpack >= wanted.get(Encoding.JSON.value, 0.0)
    return Encoding.MSGPACK if is_wanted else Encoding.JSON


_known = lru_cache(maxsize=_KEPT)(_read)
"""The same, of headers as clients send them: each always the same one."""


def _quality(item: str) -> tuple[str, float]:
    """Return one type of an Accept header and its weight (RFC 9110, section 12.4.2)."""
    media_type, *parameters = [each.strip() for each in item.split(";")]
    weights = [each[2:] for each in parameters if each.startswith("q=")]
    try:
        return media_type, float(weights[0]) if weights else 1.0
    except ValueError:
        return media_type, 1.0
