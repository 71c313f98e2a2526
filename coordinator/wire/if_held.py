"""The condition that any write may carry: only while this grant still holds.

``if_held`` names a lock (or an election) and a fencing token. The write is refused with LockLost,
in the same entry of the log, unless a contender with that token holds there at that moment: a
fenced write inside the service itself, with no guard beside it. In a JSON body it is the field
``if_held``; a write without one says it in the query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.model.acquire import IF_HELD_MAX, IfHeld
from coordinator.model.fields import INTEGER_MAX
from coordinator.wire.codec import from_body, to_body

IF_HELD_FIELD = "if_held"
IF_HELD = frozenset({IF_HELD_FIELD})
"""The field of a body that carries conditions, beside those of the request."""
IF_HELD_QUERY = {"if_held": False, "if_elected": True}
"""The parameters of a query that carry conditions, and whether they name an election."""


def if_held_query(condition: IfHeld) -> tuple[str, str]:
    """Return name and value of the query's parameter that carries ``condition``."""
    name = "if_elected" if condition.is_election else "if_held"
    return name, f"{condition.lock}:{condition.fencing_token}"


def if_held_in(name: str, value: str) -> IfHeld:
    """Read ``<name>:<token>``; the name may have colons of its own."""
    lock, _, token = value.rpartition(":")
    if not lock or not (token.isascii() and token.isdecimal()) or len(token) > 19:
        raise BadArgumentsError(
            f"query.{name}: expected <name>:<fencing token>, found {value[:60]!a}"
        )
    if not 1 <= int(token) <= INTEGER_MAX:
        raise BadArgumentsError(f"query.{name}: expected a fencing token, found {token}")
    return IfHeld(lock, int(token), IF_HELD_QUERY[name])


def if_held_body(conditions: Iterable[IfHeld]) -> dict[str, Any]:
    """Return the field that carries ``conditions`` in a body, none when there are none."""
    bodies = [to_body(each) for each in conditions]
    return {IF_HELD_FIELD: bodies} if bodies else {}


def read_if_held(body: Mapping[str, Any]) -> tuple[IfHeld, ...]:
    """Return the conditions in the field ``if_held`` of ``body``: an object, or an array of them.

    Raises:
        BadArgumentsError: it is neither, or too many.
    """
    conditions, where = body.get(IF_HELD_FIELD), f"body.{IF_HELD_FIELD}"
    if conditions is None:
        return ()
    if not isinstance(conditions, list):
        return (from_body(IfHeld, conditions, where),)
    return checked_if_held(
        tuple([from_body(IfHeld, each, f"{where}[{at}]") for at, each in enumerate(conditions)])
    )


def checked_if_held(conditions: tuple[IfHeld, ...]) -> tuple[IfHeld, ...]:
    """Return ``conditions`` unless there are too many."""
    if len(conditions) > IF_HELD_MAX:
        raise BadArgumentsError(
            f"if_held: expected at most {IF_HELD_MAX} conditions, found {len(conditions)}"
        )
    return conditions
