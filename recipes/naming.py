"""What may be the name of a lock, an election, a bucket or a key: text, or an integer.

Anything else is refused where it is said. ``str()`` would make a name of everything, and all whose
order number was forgotten would share the one lock "None" without a word.
"""

from __future__ import annotations

from coordinator.errors import BadArgumentsError


def name_of(name: object, what: str = "name") -> str:
    """Return ``name`` as text; an integer is its decimal digits."""
    if isinstance(name, str):
        return name
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    raise BadArgumentsError(f"{what}: expected text or an integer, found {name!r:.60}")
