"""JSON and msgpack, read strictly: what two readers could understand differently is refused.

Pure: bytes in, plain values out. Refused with ``BadArgumentsError`` that says what was expected
and what was found (RFC 8259 leaves most of these to the reader, and readers differ):

1. Bytes that are not valid UTF-8, and lone surrogates (``"\\ud800"``), which cannot be encoded.
2. NaN and the infinities, also as a number too large for a double (``1e999``).
3. An object with the same name twice.
4. Integers beyond 64 bits with a sign.
5. Nesting deeper than ``depth_max``.
6. More than ``items_max`` values: a value may take one byte to send, and costs a hundred times the
   work of a byte of text. They are counted before, or while, they are made.
7. In msgpack: the above, names that are not text, extension types, bytes after the value.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

import msgpack  # type: ignore[import-untyped]
import msgspec

from coordinator.errors import BadArgumentsError
from coordinator.model.fields import INTEGER_MAX as INTEGER_MAX
from coordinator.model.fields import INTEGER_MIN as INTEGER_MIN

DEPTH_MAX: Final = 32
ITEMS_MAX: Final = 50_000
"""Values in one body: the largest watch has three for each of its selectors."""
_SHOWN_CHARACTERS_MAX: Final = 60
_FIRST_BYTE_NAMES: Final = 15
"""What msgpack says in one byte."""
_PLAIN_KINDS: Final = frozenset({str, bytes, bool, type(None)})
_PLAIN_OBJECT: Final = msgspec.msgpack.Decoder(dict[str, Any])
_PLAIN_JSON_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])
_PLAIN_SEPARATORS: Final = 32
"""A JSON text with more commas and brackets is not tried as a plain object."""


def decode_json(raw: bytes, depth_max: int = DEPTH_MAX, items_max: int = ITEMS_MAX) -> Any:
    """Return the value that ``raw`` holds; raises BadArgumentsError if it is not strict JSON."""
    if items_max > _PLAIN_SEPARATORS and _separators(raw) <= _PLAIN_SEPARATORS:
        plain = _plain_json_object(raw)
        if plain is not None:
            return plain
    _check_json_items(raw, items_max)
    try:
        value = _DECODER.decode(raw.decode("utf-8"))
    except BadArgumentsError:
        raise
    except UnicodeDecodeError as error:
        raise BadArgumentsError(
            f"body: expected UTF-8, found byte 0x{raw[error.start]:02x} at offset {error.start}"
        ) from None
    except json.JSONDecodeError as error:
        raise BadArgumentsError(
            f"body: expected JSON, found {error.msg[:1].lower()}{error.msg[1:]} "
            f"at offset {error.pos}"
        ) from None
    except RecursionError:
        _refuse_depth(depth_max)
    except ValueError:  # an integer of more digits than Python is willing to read
        _refuse_integer("one of thousands of digits")
    check_value(value, depth_max)
    return value


def _plain_json_object(raw: bytes) -> dict[str, Any] | None:
    """As ``_plain_object``, of JSON without an escape: so its quotes say how many names and texts
    there were, and whether a name was there twice."""
    if b"\\" in raw:
        return None
    try:
        value: dict[str, Any] = _PLAIN_JSON_OBJECT.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    texts = 0
    for item in value.values():
        kind = type(item)
        if kind is str:
            texts += 1
        elif kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                return None
        elif item is not None and kind is not bool:
            return None
    return value if raw.count(b'"') == 2 * (len(value) + texts) else None


def encode_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8."""
    if type(value) is dict and _is_plain(value):
        try:
            return msgspec.json.encode(value)
        except (msgspec.MsgspecError, ValueError, OverflowError):
            pass  # a lone surrogate, for one
    return _ENCODER.encode(value).encode("utf-8", "backslashreplace")


def decode_msgpack(raw: bytes, depth_max: int = DEPTH_MAX, items_max: int = ITEMS_MAX) -> Any:
    """Return the value that ``raw`` holds; raises BadArgumentsError if it is not strict msgpack."""
    plain = _plain_object(raw) if items_max >= _FIRST_BYTE_NAMES else None
    if plain is not None:
        return plain
    items = _Items(items_max)
    try:
        value = msgpack.unpackb(
            raw, raw=False, list_hook=items.of_list, object_pairs_hook=items.of_object
        )
    except BadArgumentsError:
        raise
    except msgpack.StackError:
        _refuse_depth(depth_max)
    except (ValueError, msgpack.UnpackException) as error:
        detail = str(error) or type(error).__name__
        raise BadArgumentsError(f"body: expected one msgpack value, found: {detail}") from None
    check_value(value, depth_max)
    return value


def _plain_object(raw: bytes) -> dict[str, Any] | None:
    """Return the object in ``raw`` if it is a plain one, as nearly all are: few names, each once,
    and no values within values. None if it is not; then it is read, or refused, step by step."""
    if not raw or not 0x80 < raw[0] <= 0x80 + _FIRST_BYTE_NAMES:
        return None  # no map, or one of more names than its first byte can say
    try:
        value: dict[str, Any] = _PLAIN_OBJECT.decode(raw)
    except (msgspec.MsgspecError, ValueError):
        return None
    if len(value) != raw[0] - 0x80:
        return None  # one was there twice
    for item in value.values():
        kind = type(item)
        if kind is int:
            if not INTEGER_MIN <= item <= INTEGER_MAX:
                return None
        elif kind not in _PLAIN_KINDS:
            return None
    return value


def _is_plain(value: dict[Any, Any]) -> bool:
    """Whether msgspec writes this object as ``json`` does: not so fractions, and other classes.

    Objects within objects within it are not looked at: most have none."""
    within: list[dict[Any, Any]] = []
    if not _has_plain(value, within):
        return False
    return False not in [_has_plain(each, None) for each in within]


def _has_plain(value: dict[Any, Any], within: list[dict[Any, Any]] | None) -> bool:
    for name, item in value.items():
        kind = type(item)
        if type(name) is not str:
            return False
        if kind is dict and within is not None:
            within.append(item)
        elif kind is not str and kind is not int and item is not None and kind is not bool:
            return False
    return True


def encode_msgpack(value: Any) -> bytes:
    """Return ``value`` as msgpack; bytes stay bytes."""
    return msgspec.msgpack.encode(value)


def msgpack_packer() -> Any:
    """Return what encodes msgpack piece by piece."""
    return msgpack.Packer(use_bin_type=True, autoreset=True)


def found(value: Any) -> str:
    """Return how an error message names a value that was not expected."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {shortened(repr(value))}"
    if isinstance(value, str):
        return f"the text {shortened(json.dumps(value))}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, list):
        return f"an array of {len(value)}"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def shortened(text: str) -> str:
    """Return ``text`` cut to what fits into a message."""
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:_SHOWN_CHARACTERS_MAX]}… ({len(text)} characters)"


def check_value(value: Any, depth_max: int) -> None:
    """Refuse numbers, text and depth that a decoded value must not have; never recurses."""
    level = [value]
    depth = 0
    while level:
        below: list[Any] = []
        is_nested = False
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii():
                    _check_text(item)
            elif kind is int:
                if not INTEGER_MIN <= item <= INTEGER_MAX:
                    _refuse_integer(shortened(str(item)))
            elif kind is dict:
                is_nested = True
                below.extend(item)
                below.extend(item.values())
            elif kind is list:
                is_nested = True
                below.extend(item)
            elif kind is float:
                if not math.isfinite(item):
                    _refuse_constant(str(item))
            elif item is not None and kind is not bool and kind is not bytes:
                raise BadArgumentsError(
                    f"body: expected plain values, found the extension type {kind.__name__}"
                )
        depth += is_nested
        if depth > depth_max:
            _refuse_depth(depth_max)
        level = below


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadArgumentsError(
            f"body: expected text, found the lone surrogate U+{ord(text[error.start]):04X}"
        ) from None


class _Items:
    """Counts the values of one msgpack body as its arrays and maps are completed."""

    __slots__ = ("_left", "_maximum")

    def __init__(self, items_max: int) -> None:
        self._maximum = self._left = items_max

    def of_list(self, items: list[Any]) -> list[Any]:
        self._count(len(items))
        return items

    def of_object(self, pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        self._count(len(pairs))
        return _object(pairs)

    def _count(self, items: int) -> None:
        self._left -= items + 1
        if self._left < 0:
            _refuse_items(self._maximum)


def _check_json_items(raw: bytes, items_max: int) -> None:
    """Refuse a text with more values than ``items_max``, without making one of them.

    Each value but the first of all follows a comma or a bracket; in a text that has few of
    both there is nothing to count, in others those within strings are left out.
    """
    if _separators(raw) < items_max:
        return
    plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # only quotes that begin and end strings
    if plain.count(b'"') > 4 * items_max:  # at most a name and a text for each value
        _refuse_items(items_max)
    if _separators(b"".join(plain.split(b'"')[::2])) >= items_max:
        _refuse_items(items_max)


def _separators(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _object(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    for name, _ in pairs:
        if type(name) is not str:
            raise BadArgumentsError(f"body: expected names that are text, found {found(name)}")
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[Any] = set()
        for name, _ in pairs:
            if name in seen:
                raise BadArgumentsError(
                    f"body: expected each name once, found {shortened(json.dumps(name))} twice"
                )
            seen.add(name)
    return value


def _refuse_items(items_max: int) -> NoReturn:
    raise BadArgumentsError(f"body: expected at most {items_max} values, found more")


def _refuse_constant(name: str) -> NoReturn:
    raise BadArgumentsError(f"body: expected a finite number, found {name}")


def _refuse_depth(depth_max: int) -> NoReturn:
    raise BadArgumentsError(f"body: expected at most {depth_max} levels of nesting, found more")


def _refuse_integer(shown: str) -> NoReturn:
    raise BadArgumentsError(f"body: expected integers within 64 bits, found {shown}")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
