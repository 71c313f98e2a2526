"""The shapes of rows: what a decoded tuple must look like to become a value, checked strictly.

A row is a tuple of primitives and rows. A field decoder takes one element and returns its value or
raises ValueError; a family gives each of its classes a tag, and writes and reads them as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any

from coordinator.state.commands import CreateMode

Row = tuple[Any, ...]
Field = Callable[[Any], Any]

_MODES = tuple(CreateMode)
_MODE_NUMBER = {mode: number for number, mode in enumerate(_MODES)}


def described(value: Any) -> str:
    """Return what a message may say of a value of any size and depth."""
    if type(value) in (int, bool, type(None)):
        return repr(value)
    if type(value) is str:
        return repr(value[:40])
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "another"


def exactly(kind: type, *, is_optional: bool = False) -> Field:
    """Return a decoder of values of exactly this type (a bool is no int)."""

    def check(value: Any) -> Any:
        if type(value) is kind or (is_optional and value is None):
            return value
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")

    return check


int_field, str_field, bytes_field, bool_field = (exactly(kind) for kind in (int, str, bytes, bool))
maybe_int_field, maybe_str_field, maybe_bool_field = (
    exactly(kind, is_optional=True) for kind in (int, str, bool)
)


def mode_of(value: Any) -> CreateMode:
    """Decode a create mode."""
    if type(value) is int and 0 <= value < len(_MODES):
        return _MODES[value]
    raise ValueError(f"expected a create mode, found {described(value)}")


def mode_number(mode: CreateMode) -> int:
    """Encode a create mode."""
    return _MODE_NUMBER[mode]


def maybe_mode_field(value: Any) -> CreateMode | None:
    return None if value is None else mode_of(value)


def tuple_of(decode: Field) -> Field:
    """Return a decoder of tuples of any length."""

    def check(value: Any) -> tuple[Any, ...]:
        return tuple([decode(each) for each in exactly(tuple)(value)])

    return check


def fixed(row: Any, *decoders: Field) -> list[Any]:
    """Decode a row with exactly these fields."""
    if type(row) is not tuple or len(row) != len(decoders):
        raise ValueError(f"expected a row of {len(decoders)}, found {described(row)}")
    return [decode(value) for decode, value in zip(decoders, row, strict=True)]


class Family:
    """Some classes with a tag each: how to write one as a row, and a row as one of them."""

    def __init__(self) -> None:
        self._encoders: dict[type, Callable[[Any], Row]] = {}
        self._decoders: dict[int, tuple[type, tuple[Field, ...]]] = {}

    def add(
        self, tag: int, kind: type, *decoders: Field, encode: Callable[[Any], Row] | None = None
    ) -> None:
        names = [each.name for each in fields(kind)]
        assert tag not in self._decoders, "a tag means one thing"
        assert len(names) == len(decoders), f"{kind.__name__}: each field has its decoder"
        self._decoders[tag] = (kind, decoders)
        self._encoders[kind] = encode or _encoder(tag, names)

    def encode(self, value: Any) -> Row:
        return self._encoders[type(value)](value)

    def encode_all(self, values: Iterable[Any]) -> Row:
        return tuple([self._encoders[type(value)](value) for value in values])

    def decode(self, row: Any) -> Any:
        if type(row) is not tuple or not row:
            raise ValueError(f"expected a tagged row, found {described(row)}")
        entry = self._decoders.get(row[0]) if type(row[0]) is int else None
        if entry is None:
            raise ValueError(f"expected a known tag, found {described(row[0])}")
        kind, decoders = entry
        return kind(*fixed(row[1:], *decoders))


def _encoder(tag: int, names: list[str]) -> Callable[[Any], Row]:
    if len(names) == 1:
        single = attrgetter(names[0])
        return lambda value: (tag, single(value))
    several = attrgetter(*names)
    return lambda value: (tag, *several(value))
