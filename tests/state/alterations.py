"""Every value in an object, found by machine, with a way to change it and to put it back.

An alteration is named by its place, with ``*`` for what is in a container: entries of one container
are alike, so the first, a middle and the last one stand for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from tests.state.values import changed, is_value, names_of


class Alteration(NamedTuple):
    name: str
    apply: Callable[[], None]


def other(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over values unlike an immutable one: (which part of it, the value)."""
    for part, make in _others(value):
        yield part, make()


def _others(value: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The same, but a value is made only when it is asked for: there are many, and few are."""
    if isinstance(value, Enum):
        members = list(type(value))
        yield "", lambda: members[(members.index(value) + 1) % len(members)]
    elif isinstance(value, bool):
        yield "", lambda: not value
    elif isinstance(value, int):
        yield "", lambda: value + 1
    elif isinstance(value, str):
        yield "", lambda: value + "x"
    elif isinstance(value, bytes):
        yield "", lambda: value + b"x"
    elif value is None:
        yield "", lambda: 1
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for name in value._fields:
            for part, make in _others(getattr(value, name)):
                yield f".{name}{part}", partial(_with_field, value._replace, name, make)
    elif isinstance(value, tuple):
        if value:
            yield "[-]", lambda: value[:-1]
        for at in chosen(len(value)):
            for part, make in _others(value[at]):
                yield f"[*]{part}", partial(_with_item, value, at, make)
    elif is_value(value):
        for name in names_of(value):
            for part, make in _others(getattr(value, name)):
                yield f".{name}{part}", partial(_with_field, partial(changed, value), name, make)
    elif isinstance(value, Mapping) and value:
        yield "[-]", lambda: dict(list(value.items())[:-1])


def _with_field(replace: Callable[..., Any], name: str, make: Callable[[], Any]) -> Any:
    return replace(**{name: make()})


def _with_item(value: tuple[Any, ...], at: int, make: Callable[[], Any]) -> tuple[Any, ...]:
    return (*value[:at], make(), *value[at + 1 :])


def chosen(length: int) -> list[int]:
    return sorted({0, length // 2, length - 1}) if length else []


def alterations(root: Any, name: str = "") -> Iterator[Alteration]:
    """Iterate over all alterations of a mutable object and of what it holds."""
    yield from _of(root, name, {id(root)})


def nth_alteration(root: Any, at: int) -> Alteration:
    """Return the alteration at this place of ``alterations``, without going through the rest."""
    return next(islice(alterations(root), at, None))


def _of(holder: Any, name: str, seen: set[int]) -> Iterator[Alteration]:
    if isinstance(holder, MutableMapping):
        yield from _of_mapping(holder, name, seen)
    elif isinstance(holder, list | deque):
        yield from _of_sequence(holder, name, seen)
    else:
        for attribute in attributes_of(holder):
            value = getattr(holder, attribute)
            yield from _of_value(
                value,
                f"{name}.{attribute}",
                lambda new, attribute=attribute: setattr(holder, attribute, new),
                seen,
            )


def _of_mapping(
    holder: MutableMapping[Any, Any], name: str, seen: set[int]
) -> Iterator[Alteration]:
    keys = list(holder)
    for at in chosen(len(keys)):
        key = keys[at]
        yield Alteration(f"{name}[-]", lambda key=key: holder.pop(key))  # type: ignore[misc]
        if holder[key] is not None:  # a table without values is a set with an order
            yield from _of_value(
                holder[key], f"{name}[*]", lambda new, key=key: holder.update({key: new}), seen
            )


def _of_sequence(holder: Any, name: str, seen: set[int]) -> Iterator[Alteration]:
    for at in chosen(len(holder)):
        yield Alteration(f"{name}[-]", lambda at=at: holder.__delitem__(at))  # type: ignore[misc]
        yield from _of_value(
            holder[at], f"{name}[*]", lambda new, at=at: holder.__setitem__(at, new), seen
        )


def _of_value(
    value: Any, name: str, put: Callable[[Any], None], seen: set[int]
) -> Iterator[Alteration]:
    if _is_ours(value):
        if id(value) not in seen:
            seen.add(id(value))
            yield from _of(value, name, seen)
        return
    for part, make in _others(value):
        yield Alteration(f"{name}{part}", lambda make=make: put(make()))  # type: ignore[misc]


def _is_ours(value: Any) -> bool:
    if isinstance(value, MutableMapping | list | deque):
        return True
    if isinstance(value, tuple | Enum):
        return False
    if is_value(value):
        return False
    return type(value).__module__.startswith("coordinator.")


def attributes_of(holder: Any) -> list[str]:
    """Return the names of what an object holds, whether its class is compiled or not."""
    kinds = type(holder).__mro__
    slots = [each for kind in kinds for each in getattr(kind, "__slots__", ())]
    compiled = [each for kind in kinds for each in getattr(kind, "__mypyc_attrs__", ())]
    return sorted({*slots, *compiled, *getattr(holder, "__dict__", {})} - {"__dict__"})
