"""The fields of a value, and the value with others in their place: of every kind of value."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from msgspec import Struct, structs

_V = TypeVar("_V")


def is_value(value: Any) -> bool:
    """Say whether this is a frozen dataclass or a struct of the model."""
    if isinstance(value, Struct):
        return True
    is_one = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return is_one and bool(value.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def names_of(value: Any) -> tuple[str, ...]:
    """Return the names of the fields of a value, in order."""
    if isinstance(value, Struct):
        return value.__struct_fields__
    return tuple(each.name for each in dataclasses.fields(value))


def changed(value: _V, **fields: Any) -> _V:
    """Return ``value`` with ``fields`` in place of its own."""
    if isinstance(value, Struct):
        return structs.replace(value, **fields)
    return dataclasses.replace(value, **fields)  # type: ignore[type-var]
