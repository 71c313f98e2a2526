"""The znode of a recipe that a program names: opaque text, quoted into one segment of a path."""

from __future__ import annotations

from urllib.parse import quote

from coordinator.errors import BadArgumentsError
from coordinator.recipes.options import name_of, text_of

NAME_CHARACTERS_MAX = 200


def path_of(
    root: str, name: object, what: str = "name", characters_max: int = NAME_CHARACTERS_MAX
) -> str:
    """Return the path below ``root`` for ``name``, by which programs meet.

    Raises:
        BadArgumentsError: it begins with a slash; and all that ``segment_of`` raises.
    """
    return f"{root}/{segment_of(name_of(name, what), what, characters_max)}"


def segment_of(name: object, what: str = "name", characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """Return ``name``, text or an integer, as the name of a znode; ``what`` is it in errors.

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
