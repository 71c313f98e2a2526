"""Names, texts and counts that callers give, checked."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from coordinator.client.locks import refuse_path
from coordinator.errors import BadArgumentsError

NAME_CHARACTERS_MAX = 200
WHO_CHARACTERS_MAX = 100
WHY_CHARACTERS_MAX = 500


def name_of(name: object, what: str = "name") -> str:
    """Return ``name`` as the name by which programs meet; ``what`` is it in errors.

    Raises:
        BadArgumentsError: it begins with a slash, or is neither text nor an integer.
    """
    text = text_of(name, what)
    refuse_path(text, what)
    return text


def text_of(name: object, what: str) -> str:
    """Return ``name`` as text; an integer is its decimal digits.

    Anything else is refused: ``str()`` would make a name of everything, and all whose order number
    was forgotten would share the one lock "None".

    Raises:
        BadArgumentsError: it is neither text nor an integer.
    """
    if isinstance(name, str):
        return name
    if is_integer(name):
        return str(name)
    raise BadArgumentsError(f"{what}: expected text or an integer, found {name!r:.60}")


def path_of(
    root: str, name: object, what: str = "name", characters_max: int = NAME_CHARACTERS_MAX
) -> str:
    """Return the path below ``root`` for ``name``, by which programs meet.

    Raises:
        BadArgumentsError: it begins with a slash; and all that ``segment_of`` raises.
    """
    return f"{root}/{segment_of(name_of(name, what), what, characters_max)}"


def segment_of(name: object, what: str = "name", characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return ``name``, text or an integer, as the name of a znode: one quoted segment of a path.

    Raises:
        BadArgumentsError: it is neither, empty, too long, or no text that UTF-8 can carry.
    """
    text = text_of(name, what)
    if not 1 <= len(text) <= characters_max:
        raise BadArgumentsError(
            f"{what}: expected 1 to {characters_max} characters, found {text[:60]!r}"
        )
    try:
        return quote(text, safe="") if text not in (".", "..") else text.replace(".", "%2E")
    except UnicodeEncodeError:
        raise BadArgumentsError(f"{what}: expected text of UTF-8, found {text[:60]!a}") from None


def checked_text(what: str, text: str, characters_max: int) -> str:
    """Return ``text``, which a recipe keeps for people; ``what`` is it in errors.

    Raises:
        BadArgumentsError: it is no text that UTF-8 can carry, or too long.
    """
    if not isinstance(text, str) or len(text) > characters_max:
        raise BadArgumentsError(
            f"{what}: expected text of at most {characters_max} characters, found {text!r:.60}"
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadArgumentsError(f"{what}: expected text of UTF-8, found {text[:60]!a}") from None
    return text


def is_integer(value: Any) -> bool:
    """Return whether ``value`` is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_count(what: str, given: Any, most: int | None = None, *, least: int = 1) -> int:
    """Return ``given``; ``what`` is it in errors.

    Raises:
        BadArgumentsError: it is no integer from ``least`` up, and to ``most`` if that is said.
    """
    if is_integer(given) and given >= least and (most is None or given <= most):
        return int(given)
    expected = f"an integer from {least}" if most is None else f"{least} to {most}"
    raise BadArgumentsError(f"{what}: expected {expected}, found {given!r:.60}")
