"""The forms of single values in bodies: how each is read and written, and what messages call it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from coordinator.errors import from_problem, to_problem
from coordinator.wire.encoding import Encoding
from coordinator.wire.strict_json import found

UNBOUNDED: Final = sys.maxsize
"""More than there can be."""


class WrongBody(Exception):
    """What is wrong with a part of a body; the path to it grows on the way out."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


def refuse(expected: str, value: Any) -> NoReturn:
    """Raise what is wrong with ``value``."""
    raise WrongBody(f"expected {expected}, found {found(value)}")


@dataclass(frozen=True, slots=True)
class Form:
    """How one value is read and written; ``expected`` is what messages call it."""

    expected: str
    read: Callable[[Any], Any]
    write: Callable[[Any, Encoding], Any] | None = None
    """None: it is in a body what it is in the model."""


def integer(low: int, high: int) -> Form:
    """Return the form of an integer within its bounds; a number with a fraction is not one."""

    def read(value: Any) -> Any:
        if type(value) is not int:
            refuse("an integer", value)
        if not low <= value <= high:
            refuse(f"an integer from {low} to {high}", value)
        return value

    return Form("an integer", read)


def text(length: int | None) -> Form:
    """Return the form of a text of at most ``length`` characters."""

    def read(value: Any) -> Any:
        if not isinstance(value, str):
            refuse("text", value)
        if length is not None and len(value) > length:
            refuse(f"at most {length} characters", value)
        return value

    return Form("text", read)


def words_of(words: Collection[str], form: Form) -> Form:
    """Return ``form`` for these words alone."""
    expected = "one of " + ", ".join(words)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or value not in words:
            refuse(expected, value)
        return form.read(value)

    return Form(expected, read, form.write)


def members_of(kind: type[Any], *, is_strict: bool) -> Form:
    """Return the form of a word that has a name; in an answer it may be one of a later server."""
    members = {each.value: each for each in kind}
    expected = "one of " + ", ".join(members)

    def read(value: Any) -> Any:
        if not isinstance(value, str) or (is_strict and value not in members):
            refuse(expected, value)
        return members.get(value, value)

    return Form(expected, read, lambda value, _: str(value))


def _read_boolean(value: Any) -> Any:
    if type(value) is not bool:
        refuse("true or false", value)
    return value


BOOLEAN: Final = Form("true or false", _read_boolean)


BYTES: Final = Form("text", lambda value: value)
"""The form of bytes, which take one of two fields: see ``body_fields``."""


def _read_problem(value: Any) -> Any:
    if not isinstance(value, dict):
        refuse("an object", value)
    return from_problem(value)


PROBLEM: Final = Form("an object", _read_problem, lambda error, _: to_problem(error))
"""The form of an error, as problem details."""


@dataclass(frozen=True, slots=True)
class Length:
    """How many items there may be."""

    least: int
    most: int

    @classmethod
    def of(cls, kind: Any, is_strict: bool) -> Length:
        """Return what the definition of ``kind`` says; an answer has no bounds."""
        if not is_strict:
            return cls(0, UNBOUNDED)
        most = UNBOUNDED if kind.max_length is None else kind.max_length
        return cls(kind.min_length or 0, most)

    def check(self, value: Any, what: str) -> None:
        """Refuse a ``value`` of too few or too many items; ``what`` is what they are."""
        if not self.least <= len(value) <= self.most:
            least = f"{self.least} to" if self.least else "at most"
            raise WrongBody(f"expected {least} {self.most} {what}, found {len(value)}")


def array(item: Form, length: Length) -> Form:
    """Return the form of an array of such items."""

    def read(value: Any) -> Any:
        if not isinstance(value, list):
            refuse("an array", value)
        length.check(value, "items")
        items = []
        for each in value:
            try:
                items.append(item.read(each))
            except WrongBody as wrong:
                wrong.path = f"[{len(items)}]{wrong.path}"
                raise
        return tuple(items)

    def write(value: Any, encoding: Encoding) -> Any:
        if item.write is None:
            return list(value)
        return [item.write(each, encoding) for each in value]

    return Form("an array", read, write)


def mapping(item: Form, length: Length) -> Form:
    """Return the form of an object whose names are data, with such values."""

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            refuse("an object", value)
        length.check(value, "names")
        read_items = {}
        for name, each in value.items():
            try:
                read_items[name] = item.read(each)
            except WrongBody as wrong:
                wrong.path = f".{name}{wrong.path}"
                raise
        return read_items

    return Form("an object", read, lambda value, _: dict(value))
