"""Texts that a recipe keeps for people: bounded, and such as UTF-8 can carry."""

from __future__ import annotations

from coordinator.errors import BadArgumentsError

WHO_CHARACTERS_MAX = 100
WHY_CHARACTERS_MAX = 500


def checked_text(what: str, text: str, characters_max: int) -> str:
    """Return ``text``; ``what`` is it in errors.

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
