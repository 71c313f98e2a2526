"""Reading a decoded body field by field, saying what was expected and what was found.

Pure. A request's reader names every field it knows, and a field it does not know is refused: a
mistyped ``timeot_ms`` must not be silently ignored. A response's reader names none, because a
client has to live with fields that a later server adds.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from coordinator.errors import BadArgumentsError
from coordinator.wire.codec import unknown_name
from coordinator.wire.strict_json import INTEGER_MAX, INTEGER_MIN, found

_MISSING: Any = object()


class Fields:
    """The fields of one object; ``where`` is how messages call it."""

    __slots__ = ("_body", "_where")

    def __init__(self, body: Any, where: str, known: Iterable[str] | None = None) -> None:
        if not isinstance(body, Mapping):
            raise BadArgumentsError(f"{where}: expected an object, found {found(body)}")
        self._body: Mapping[str, Any] = body
        self._where = where
        if known is not None:
            unknown = body.keys() - known
            if unknown:
                raise BadArgumentsError(f"{where}: {unknown_name(unknown, known, 'field')}")

    def __contains__(self, name: str) -> bool:
        return name in self._body

    def text(self, name: str, default: Any = _MISSING, *, characters_max: int | None = None) -> Any:
        """Return a text; ``default`` (may be None) when it is absent or null."""
        value = self._get(name, default, "text")
        if value is default:
            return default
        if not isinstance(value, str):
            self._refuse(name, "text", value)
        if characters_max is not None and len(value) > characters_max:
            self._refuse(name, f"at most {characters_max} characters", value)
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: Any = _MISSING) -> Any:
        """Return one of the ``allowed`` texts."""
        expected = "one of " + ", ".join(allowed)
        value = self._get(name, default, expected)
        if value is default:
            return default
        if not isinstance(value, str) or value not in allowed:
            self._refuse(name, expected, value)
        return value

    def integer(
        self,
        name: str,
        default: Any = _MISSING,
        *,
        minimum: int = INTEGER_MIN,
        maximum: int = INTEGER_MAX,
    ) -> Any:
        """Return an integer within its bounds; a number with a fraction is not one."""
        value = self._get(name, default, "an integer")
        if value is default:
            return default
        if type(value) is not int:
            self._refuse(name, "an integer", value)
        if not minimum <= value <= maximum:
            self._refuse(name, f"an integer from {minimum} to {maximum}", value)
        return value

    def boolean(self, name: str, default: Any = _MISSING) -> Any:
        value = self._get(name, default, "true or false")
        if value is not default and type(value) is not bool:
            self._refuse(name, "true or false", value)
        return value

    def items(self, name: str, read: Callable[[Any, str], Any], default: Any = _MISSING) -> Any:
        """Return an array as a tuple, each item read by ``read(item, where)``."""
        value = self._get(name, default, "an array")
        if value is default:
            return default
        if not isinstance(value, list):
            self._refuse(name, "an array", value)
        return tuple(read(item, f"{self.of(name)}[{at}]") for at, item in enumerate(value))

    def inner(self, name: str) -> Any:
        """Return the value of ``name`` as it is, None when absent."""
        return self._body.get(name)

    def data(self, *, is_required: bool = False) -> bytes:
        """Return the bytes in ``data`` (text, or bytes in msgpack) or in ``data_base64``."""
        value = self._body.get("data")
        encoded = self._body.get("data_base64")
        if encoded is not None:
            if value is not None:
                raise BadArgumentsError(f"{self._where}: expected data or data_base64, found both")
            return self._from_base64(encoded)
        if value is None:
            if is_required:
                raise BadArgumentsError(f"{self._where}: expected data or data_base64, found none")
            return b""
        if isinstance(value, bytes):
            return value
        if not isinstance(value, str):
            self._refuse("data", "text", value)
        return value.encode("utf-8")

    def of(self, name: str) -> str:
        """Return how messages call the field ``name``."""
        return f"{self._where}.{name}"

    def _get(self, name: str, default: Any, expected: str) -> Any:
        value = self._body.get(name)
        if value is None:
            if default is _MISSING:
                what = "null" if name in self._body else "no such field"
                raise BadArgumentsError(f"{self.of(name)}: expected {expected}, found {what}")
            return default
        return value

    def _from_base64(self, encoded: Any) -> bytes:
        if not isinstance(encoded, str):
            self._refuse("data_base64", "text", encoded)
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            pass
        self._refuse("data_base64", "base64 (RFC 4648, section 4)", encoded)

    def _refuse(self, name: str, expected: str, value: Any) -> NoReturn:
        raise BadArgumentsError(f"{self.of(name)}: expected {expected}, found {found(value)}")


def read_bytes(body: Any, name: str, where: str, *, is_required: bool = False) -> bytes:
    """Return the bytes in the field ``name`` or ``name_base64`` of ``body``, empty when in none."""
    given = {each: body[each] for each in (name, f"{name}_base64") if each in body}
    renamed = {each.replace(name, "data"): value for each, value in given.items()}
    return Fields(renamed, where).data(is_required=is_required)
