"""The condition that any write may carry: only while this grant still holds.

``if_held`` names a lock (or an election) and a fencing token. The write is refused with LockLost,
in the same entry of the log, unless a contender with that token holds there at that moment: a
fenced write inside the service itself, with no guard beside it. In a JSON body it is the field
``if_held``; a write without one says it in the query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from coordinator.errors import BadArgumentsError
from coordinator.wire.fields import Fields
from coordinator.wire.strict_json import INTEGER_MAX

IF_HELD_MAX = 64
IF_HELD_FIELD = "if_held"
IF_HELD_QUERY = {"if_held": False, "if_elected": True}
"""The parameters of a query that carry conditions, and whether they name an election."""


@dataclass(frozen=True, slots=True)
class IfHeld:
    """The condition of a write: the grant with this token still holds this lock or election."""

    lock: str
    fencing_token: int
    is_election: bool = False

    def to_body(self) -> dict[str, Any]:
        name = "election" if self.is_election else "lock"
        return {name: self.lock, "fencing_token": self.fencing_token}

    def to_query(self) -> tuple[str, str]:
        """Return name and value of the query's parameter that says the same."""
        name = "if_elected" if self.is_election else "if_held"
        return name, f"{self.lock}:{self.fencing_token}"

    @classmethod
    def from_body(cls, body: Any, where: str) -> IfHeld:
        fields = Fields(body, where, {"lock", "election", "fencing_token"})
        is_election = "election" in fields
        if is_election and "lock" in fields:
            raise BadArgumentsError(f"{where}: expected lock or election, found both")
        return cls(
            lock=fields.text("election" if is_election else "lock"),
            fencing_token=fields.integer("fencing_token", minimum=1),
            is_election=is_election,
        )

    @classmethod
    def from_query(cls, name: str, value: str) -> IfHeld:
        """Read ``<name>:<token>``; the name may have colons of its own."""
        lock, _, token = value.rpartition(":")
        if not lock or not (token.isascii() and token.isdecimal()) or len(token) > 19:
            raise BadArgumentsError(
                f"query.{name}: expected <name>:<fencing token>, found {value[:60]!a}"
            )
        if not 1 <= int(token) <= INTEGER_MAX:
            raise BadArgumentsError(f"query.{name}: expected a fencing token, found {token}")
        return cls(lock, int(token), IF_HELD_QUERY[name])


def if_held_body(conditions: Iterable[IfHeld]) -> dict[str, Any]:
    """Return the field that carries ``conditions`` in a body, none when there are none."""
    bodies = [each.to_body() for each in conditions]
    return {IF_HELD_FIELD: bodies} if bodies else {}


def read_if_held(body: Any, where: str = "body") -> tuple[IfHeld, ...]:
    """Return the conditions in the field ``if_held`` of ``body``: an object, or an array of them.

    Raises:
        BadArgumentsError: it is neither, or too many.
    """
    fields = Fields(body, where)
    said = fields.inner(IF_HELD_FIELD)
    if said is None:
        return ()
    if not isinstance(said, list):
        return (IfHeld.from_body(said, fields.of(IF_HELD_FIELD)),)
    conditions: tuple[IfHeld, ...] = fields.items(IF_HELD_FIELD, IfHeld.from_body)
    return checked_if_held(conditions)


def checked_if_held(conditions: tuple[IfHeld, ...]) -> tuple[IfHeld, ...]:
    """Return ``conditions`` unless there are too many."""
    if len(conditions) > IF_HELD_MAX:
        raise BadArgumentsError(
            f"if_held: expected at most {IF_HELD_MAX} conditions, found {len(conditions)}"
        )
    return conditions
