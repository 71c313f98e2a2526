"""Answers in msgpack, read straight into values of the model where their definition allows it.

``coordinator.wire.codec`` reads every body, by way of plain objects, and says what is wrong with
one. What is here is many times as fast, for the kinds of which most answers are: objects of texts,
numbers, bytes, and objects and lists of these, each field called what it is called in the model. A
body that it does not take may be right all the same: then the codec has the last word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

import msgspec
from msgspec import Meta, Struct, inspect

from coordinator.wire.body_fields import bare

_PLAIN_MARKS = frozenset({"one_of", "is_left_out", "is_null_said"})
_RENAMING_MARKS = frozenset({"or_called", "also_called", "is_unsaid", "when"})
"""Of a field that is called otherwise while another is true, which no body carries: one that has
the usual names is read here, and one without them lacks a field."""
_SCALARS = (inspect.IntType, inspect.StrType, inspect.BoolType, inspect.BytesType)

PackedReader = Callable[[bytes], Any]
"""Raises ValueError, of one that is very deep RecursionError, for a body that it does not take."""
_Convert = Callable[[Any], Any]

_readers: dict[type[Any], PackedReader | None] = {}


class _Plan(NamedTuple):
    """The kind that msgspec reads, and the function that makes a model value of it, or None."""

    kind: Any
    convert: _Convert | None = None


class _NotPlainError(Exception):
    """A kind that only the codec can read."""


def packed_reader(kind: type[Any]) -> PackedReader | None:
    """Return what reads a body in msgpack as a value of ``kind``; None if that takes the codec."""
    try:
        return _readers[kind]
    except KeyError:
        return _readers.setdefault(kind, _packed_reader(kind))


def _packed_reader(kind: type[Any]) -> PackedReader | None:
    try:
        plan = _plan_of(inspect.type_info(kind), kind, ())
    except _NotPlainError:
        return None
    decode, convert = msgspec.msgpack.Decoder(plan.kind).decode, plan.convert
    if convert is None:
        return decode
    return lambda raw: convert(decode(raw))


def _plan_of(info: inspect.Type, hint: Any, within: Sequence[type[Any]]) -> _Plan:
    """Return how a value of this type is read; ``within`` are the objects around it."""
    kind, _ = bare(info)
    match kind:
        case inspect.StructType() | inspect.NamedTupleType():
            return _object(kind, within)
        case inspect.VarTupleType(item_type=item):
            return _array(item, within)
        case inspect.DictType(value_type=value) if _is_scalar(value):
            return _Plan(hint)
        case inspect.UnionType(types=types) if not _is_scalar(kind):
            others = [each for each in types if not isinstance(each, inspect.NoneType)]
            if len(others) == 1 and len(types) == 2:
                return _or_null(_plan_of(others[0], _cls(others[0]), within))
        case _ if _is_scalar(kind):
            return _Plan(hint)
    raise _NotPlainError


def _or_null(plan: _Plan) -> _Plan:
    convert = plan.convert
    if convert is None:
        return _Plan(plan.kind | None)
    return _Plan(plan.kind | None, lambda value: None if value is None else convert(value))


def _array(item: inspect.Type, within: Sequence[type[Any]]) -> _Plan:
    inner, _ = bare(item)
    if _cls(inner) in within:  # of what is within itself only the usual case is read: none of it
        return _Plan(Annotated[tuple[int, ...], Meta(max_length=0)])
    if _is_scalar(inner):
        if not isinstance(inner, inspect.StrType):
            raise _NotPlainError
        return _Plan(tuple[str, ...])
    plan = _plan_of(inner, _cls(inner), within)
    convert = plan.convert
    several = GenericAlias(tuple, (plan.kind, ...))
    if convert is None:
        return _Plan(several)
    return _Plan(several, lambda values: tuple(map(convert, values)))


def _object(info: Any, within: Sequence[type[Any]]) -> _Plan:
    cls = info.cls
    is_struct = isinstance(info, inspect.StructType)
    if cls in within or (is_struct and (info.array_like or info.forbid_unknown_fields)):
        raise _NotPlainError  # a request: what is wrong with it is said by the codec
    hints = get_type_hints(cls, include_extras=True)
    shown = [each for each in info.fields if "is_internal" not in bare(each.type)[1]]
    plans = [_field(each, hints[each.name], (*within, cls)) for each in shown]
    tag = info.tag if is_struct else None
    changes = [(at, plan.convert) for at, plan in enumerate(plans) if plan.convert is not None]
    if is_struct and tag is None and not changes and len(shown) == len(info.fields):
        return _Plan(cls)
    fields: list[Any] = [
        (each.name, plan.kind, *_default(each)) for each, plan in zip(shown, plans, strict=True)
    ]
    if tag is not None:
        fields.append((info.tag_field, Literal[tag]))
    shadow = msgspec.defstruct(f"{cls.__name__}InMsgpack", fields, gc=False, kw_only=True)
    return _Plan(shadow, _made(cls, [each.name for each in shown], changes))


def _field(field: Any, hint: Any, within: Sequence[type[Any]]) -> _Plan:
    marks = bare(field.type)[1].keys()
    if not marks <= _PLAIN_MARKS | _RENAMING_MARKS:
        raise _NotPlainError
    if "or_called" in marks and not field.required:
        raise _NotPlainError  # that it is called otherwise would not be seen
    return _plan_of(field.type, hint, within)


def _made(
    cls: type[Any], names: Sequence[str], changes: Sequence[tuple[int, _Convert]]
) -> _Convert:
    """Return what makes a ``cls`` of what was read: its fields ``names``, and perhaps a tag."""
    values_of, count = msgspec.structs.astuple, len(names)
    is_by_name = cls.__match_args__[:count] != tuple(names)

    if not changes and not is_by_name:
        return lambda read: cls(*values_of(read)[:count])

    def make(read: Struct) -> Any:
        values = list(values_of(read)[:count])
        for at, convert in changes:
            values[at] = convert(values[at])
        return cls(**dict(zip(names, values, strict=True))) if is_by_name else cls(*values)

    return make


def _default(field: Any) -> tuple[Any, ...]:
    if field.required:
        return ()
    if field.default_factory is not msgspec.NODEFAULT:
        return (msgspec.field(default_factory=field.default_factory),)
    return (field.default,)


def _cls(info: inspect.Type) -> Any:
    """Return the class of an object, None of anything else."""
    return getattr(bare(info)[0], "cls", None)


def _is_scalar(kind: inspect.Type) -> bool:
    kind, _ = bare(kind)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(bare(each)[0], (*_SCALARS, inspect.NoneType)) for each in kind.types)
    return isinstance(kind, _SCALARS)
