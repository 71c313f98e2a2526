"""The shapes of the rows of a snapshot: the types that the elements of a decoded tuple must have.

A row is a tuple of primitives and rows. A shape says which types each element may have; a check is
one look-up of the row's types among the accepted ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, Final

from coordinator.state.commands import CreateMode, Kind

Row = tuple[Any, ...]
Types = tuple[type, ...]
"""The types that one element may have; exactly these, so a bool is not an int."""

INT: Final[Types] = (int,)
STR: Final[Types] = (str,)
BYTES: Final[Types] = (bytes,)
BOOL: Final[Types] = (bool,)
ROW: Final[Types] = (tuple,)
MAYBE_INT: Final[Types] = (int, type(None))
MAYBE_STR: Final[Types] = (str, type(None))
MAYBE_ROW: Final[Types] = (tuple, type(None))

_MODES: Final = tuple(CreateMode)
_MODE_NUMBER: Final = {mode: number for number, mode in enumerate(_MODES)}
_KINDS: Final = tuple(Kind)
_KIND_NUMBER: Final = {kind: number for number, kind in enumerate(_KINDS)}


def described(value: Any) -> str:
    """Return a short description, for a message, of a value of any size and depth."""
    if type(value) in (int, bool, type(None)):
        return repr(value)
    if type(value) is str:
        return repr(value[:40])
    if type(value) is tuple and len(value) <= 16:
        return "(" + ", ".join([type(each).__name__ for each in value]) + ")"
    return f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else "another"


def shape(what: str, *elements: Types) -> Callable[[Any], Row]:
    """Return a check that returns rows of these elements and raises ValueError for others."""
    accepted = frozenset(product(*elements))

    def check(row: Any) -> Row:
        if type(row) is tuple and tuple(map(type, row)) in accepted:
            return row
        expected = ", ".join(["/".join([kind.__name__ for kind in each]) for each in elements])
        raise ValueError(f"expected a {what} ({expected}), found {described(row)}")

    return check


def mode_of(value: int) -> CreateMode:
    """Decode a create mode; raises ValueError."""
    if 0 <= value < len(_MODES):
        return _MODES[value]
    raise ValueError(f"expected a create mode, found {value}")


def mode_number(mode: CreateMode) -> int:
    """Encode a create mode."""
    return _MODE_NUMBER[mode]


def kind_of_number(value: int) -> Kind:
    """Decode the kind of a contender; raises ValueError."""
    if 0 <= value < len(_KINDS):
        return _KINDS[value]
    raise ValueError(f"expected a kind of contender, found {value}")


def kind_number(kind: Kind) -> int:
    """Encode the kind of a contender."""
    return _KIND_NUMBER[kind]


def texts_of(row: Row) -> tuple[str, ...]:
    """Return a row of texts as they are; raises ValueError if one is not."""
    for each in row:
        if type(each) is not str:
            raise ValueError(f"expected a text, found {described(each)}")
    return row


_limit_shape: Final = shape("limit", STR, INT)
_rule_shape: Final = shape("rule", STR, STR)


def limit_values_of(rows: Row) -> tuple[tuple[str, int], ...]:
    """Return rows of a limit's name and its value as they are; raises ValueError."""
    return tuple([(name, value) for name, value in map(_limit_shape, rows)])


def rules_of(rows: Row) -> tuple[tuple[str, str], ...]:
    """Return rows of a rule's name and its value as they are; raises ValueError."""
    return tuple([(name, value) for name, value in map(_rule_shape, rows)])
