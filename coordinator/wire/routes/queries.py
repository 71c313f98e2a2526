"""The query of a request, as strict as a body: what a route does not know is refused.

A mistyped ``?exepcted_version=3`` must not delete whatever is there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final
from urllib.parse import parse_qsl

from coordinator.errors import BadArgumentsError
from coordinator.service.reads.reads import LINEARIZABLE, STALE, ReadMode, at_least
from coordinator.wire.codec import unknown_name
from coordinator.wire.if_held import IF_HELD_QUERY
from coordinator.wire.strict_json import INTEGER_MAX, INTEGER_MIN, shortened

_TRUE: Final = frozenset({"", "1", "true"})
_FALSE: Final = frozenset({"0", "false"})
_PARAMETERS_MAX: Final = 1_000
_INTEGER_DIGITS_MAX: Final = 19

READ_MODES: Final = ("stale", "at_least_zxid")
CONDITIONS: Final = tuple(IF_HELD_QUERY)
"""The parameters that every write takes: on which grants it depends."""


class Query:
    """The parameters of one request. A flag is given by its name alone (``?stale``)."""

    __slots__ = ("_values", "is_empty")

    def __init__(
        self, raw: str, known: Collection[str] = (), repeatable: Iterable[str] = CONDITIONS
    ) -> None:
        self._values: dict[str, list[str]] = {}
        self.is_empty = not raw
        if raw in known:  # one flag, as most queries are
            self._values[raw] = [""]
        elif raw:
            self._read(raw, frozenset(known), frozenset(repeatable))

    def _read(self, raw: str, known: frozenset[str], repeatable: frozenset[str]) -> None:
        try:
            pairs = parse_qsl(
                raw, keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX
            )
        except UnicodeDecodeError:
            raise BadArgumentsError("query: expected UTF-8, found other bytes") from None
        except ValueError:
            raise BadArgumentsError(
                f"query: expected at most {_PARAMETERS_MAX} parameters, found more"
            ) from None
        for name, value in pairs:
            if name not in known:
                raise BadArgumentsError(f"query: {unknown_name([name], known, 'parameter')}")
            values = self._values.setdefault(name, [])
            if values and name not in repeatable:
                raise BadArgumentsError(f"query: expected {name} once, found it twice")
            values.append(value)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def flag(self, name: str) -> bool:
        """Return whether ``name`` is set: by itself, or as true or 1."""
        values = self._values.get(name)
        if values is None or values[0] in _FALSE:
            return False
        if values[0] in _TRUE:
            return True
        raise BadArgumentsError(
            f"query.{name}: expected nothing, true or false; found {shortened(ascii(values[0]))}"
        )

    def text(self, name: str) -> str | None:
        """Return the first value of a parameter, None if there is none."""
        values = self._values.get(name)
        return None if values is None else values[0]

    def texts(self, name: str) -> tuple[str, ...]:
        """Return all values of a parameter, in their order."""
        return tuple(self._values.get(name, ()))

    def integer(
        self, name: str, *, minimum: int = INTEGER_MIN, maximum: int = INTEGER_MAX
    ) -> int | None:
        """Return an integer within its bounds, None when absent."""
        values = self._values.get(name)
        if values is None:
            return None
        return parsed_integer(values[0], f"query.{name}", minimum=minimum, maximum=maximum)

    def read_mode(self) -> ReadMode:
        """Return how fresh a read must be: linearizable, unless it says otherwise."""
        if not self._values:
            return LINEARIZABLE
        zxid = self.integer("at_least_zxid", minimum=0)
        if self.flag("stale"):
            if zxid is not None:
                raise BadArgumentsError("query: expected stale or at_least_zxid, found both")
            return STALE
        return LINEARIZABLE if zxid is None else at_least(zxid)


def parsed_integer(
    text: str, where: str, *, minimum: int = INTEGER_MIN, maximum: int = INTEGER_MAX
) -> int:
    """Return the integer written in ``text``: ASCII digits with at most a minus before them."""
    digits = text.removeprefix("-") if text[:1] == "-" else text
    if len(digits) <= _INTEGER_DIGITS_MAX and digits.isascii() and digits.isdecimal():
        number = int(text)
        if minimum <= number <= maximum:
            return number
    raise BadArgumentsError(
        f"{where}: expected an integer from {minimum} to {maximum}, found {shortened(ascii(text))}"
    )
