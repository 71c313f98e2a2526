"""Answers in msgpack, read straight into values of the model where their definition allows it.

``coordinator.wire.codec`` reads every body, by way of plain objects, and says what is wrong with
one. What is here is ten times as fast, for the plain kinds of which most answers are: objects of
texts, numbers, bytes and objects of these, each field called what it is called in the model. A body
that it does not take may be right all the same: then the codec has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec
from msgspec import Struct, inspect

from coordinator.wire.body_fields import bare

_PLAIN_MARKS = frozenset({"one_of", "is_left_out"})
_SCALARS = (inspect.IntType, inspect.StrType, inspect.BoolType, inspect.BytesType)

PackedReader = Callable[[bytes], Any]
"""Raises ValueError for a body that it does not take."""

_readers: dict[type[Any], PackedReader | None] = {}


def packed_reader(kind: type[Any]) -> PackedReader | None:
    """Return what reads a body in msgpack as a value of ``kind``; None if that takes the codec."""
    try:
        return _readers[kind]
    except KeyError:
        return _readers.setdefault(kind, _packed_reader(kind))


def _packed_reader(kind: type[Any]) -> PackedReader | None:
    info: Any = inspect.type_info(kind)
    if not _is_plain(info):
        return None
    rows = [_row_of(each.type) for each in info.fields]
    if not any(rows):
        return msgspec.msgpack.Decoder(kind).decode
    hints = get_type_hints(kind, include_extras=True)
    fields: Any = [
        (each.name, row or hints[each.name], *_default(each))
        for each, row in zip(info.fields, rows, strict=True)
    ]
    shadow = msgspec.defstruct(f"{kind.__name__}InMsgpack", fields, gc=False)
    decode, values_of = msgspec.msgpack.Decoder(shadow).decode, msgspec.structs.astuple
    at = [number for number, row in enumerate(rows) if row is not None]
    make = {number: info.fields[number].type.cls._make for number in at}

    def read(raw: bytes) -> Any:
        values: list[Any] = list(values_of(decode(raw)))
        for number in at:
            values[number] = make[number](values_of(values[number]))
        return kind(*values)

    return read


def _row_of(info: Any) -> type[Struct] | None:
    """Return a kind that is an object in msgpack, with the fields of a named tuple."""
    if not isinstance(info, inspect.NamedTupleType):
        return None
    hints = get_type_hints(info.cls, include_extras=True)
    fields: Any = [(each.name, hints[each.name], *_default(each)) for each in info.fields]
    return msgspec.defstruct(f"{info.cls.__name__}InMsgpack", fields, gc=False)


def _default(field: Any) -> tuple[Any, ...]:
    if field.required:
        return ()
    if field.default_factory is not msgspec.NODEFAULT:
        return (msgspec.field(default_factory=field.default_factory),)
    return (field.default,)


def _is_plain(info: Any) -> bool:
    if not isinstance(info, inspect.StructType) or info.tag is not None or info.array_like:
        return False
    if info.forbid_unknown_fields:
        return False  # a request: what is wrong with it is said by the codec
    return all(
        _has_plain_marks(each.type)
        and (
            _is_scalar(each.type)
            or (isinstance(each.type, inspect.StructType) and _is_flat(each.type))
            or (isinstance(each.type, inspect.NamedTupleType) and _is_flat(each.type))
        )
        for each in info.fields
    )


def _is_flat(info: Any) -> bool:
    """Whether it is an object of scalars alone, without a tag."""
    return getattr(info, "tag", None) is None and all(
        _has_plain_marks(each.type) and _is_scalar(each.type) for each in info.fields
    )


def _is_scalar(kind: inspect.Type) -> bool:
    kind, _ = bare(kind)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(bare(each)[0], (*_SCALARS, inspect.NoneType)) for each in kind.types)
    return isinstance(kind, _SCALARS)


def _has_plain_marks(kind: inspect.Type) -> bool:
    return bare(kind)[1].keys() <= _PLAIN_MARKS
