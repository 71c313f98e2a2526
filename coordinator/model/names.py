"""The one rule that names of locks, elections and all recipes share: a name is no path."""

from __future__ import annotations

from coordinator.errors import BadArgumentsError

_SHOWN_CHARACTERS_MAX = 60


def refuse_path(name: str, what: str) -> None:
    """Refuse a name that begins with a slash; ``what`` is it in the error.

    Users of ZooKeeper write ``/daily-report``, where paths are names. Here it would be another lock
    than ``daily-report``, and both would be held at once.

    Raises:
        BadArgumentsError: it begins with a slash; the message says what to write.
    """
    if name.startswith("/"):
        plain = name.lstrip("/")[:_SHOWN_CHARACTERS_MAX]
        write = f"; write {plain!r}" if plain else ""
        raise BadArgumentsError(
            f"{what}: expected a name without a slash at its beginning, "
            f"found {name[:_SHOWN_CHARACTERS_MAX]!a}{write}"
        )
