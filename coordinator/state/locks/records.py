"""The records of contenders and of grants that have ended: small immutable values.

Not compiled: msgspec makes these classes, in memory that the garbage collector need not look at.
Where states are compared they are encoded as rows of their fields.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from coordinator.state.commands import Kind


class ContenderRecord(Struct, frozen=True, gc=False, array_like=True):
    """One place in a queue. ``czxid`` is its fencing token and the zxid at which it entered."""

    path: str
    number: int
    """The number at the end of its name, the order of its queue."""
    czxid: int
    kind: Kind
    session_id: str
    data: bytes
    """The data when it entered; empty when it was too long to be kept."""
    entered_ms: int
    owner: str = ""
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    group: tuple[str, ...] = ()
    note: bytes = b""
    granted_zxid: int | None = None
    """None while it waits."""
    granted_ms: int = 0
    grant_number: int = 0
    is_repeated: bool = False
    """Whether its request came more than once, so another than who sent it first may know of it."""
    identity: str = ""
    """Who entered it, as whose waiter it counts; "" if nobody's (``access.quotas``)."""
    extensions: int = 0
    """How often the end of its bounded hold was moved; an end proposed before is void."""

    @property
    def directory(self) -> str:
        """The path of its queue."""
        return self.path[: self.path.rindex("/")]

    @property
    def name(self) -> str:
        """The last segment of its path."""
        return self.path[self.path.rindex("/") + 1 :]

    @property
    def is_holder(self) -> bool:
        """Whether it holds the lock."""
        return self.granted_zxid is not None

    @property
    def places(self) -> int:
        """How many places go when this one goes: a multi-lock goes as a whole."""
        return len(self.group) or 1

    def as_granted(self, zxid: int, wall_ms: int, grant_number: int) -> ContenderRecord:
        """Return what this contender is from the command on that grants to it."""
        return replace(self, granted_zxid=zxid, granted_ms=wall_ms, grant_number=grant_number)

    def but(self, **fields: Any) -> ContenderRecord:
        """Return this contender with other values of these fields."""
        return replace(self, **fields)

    def row(self) -> tuple[Any, ...]:
        """Return all fields, as they are written down."""
        return astuple(self)


class Ending(StrEnum):
    """How a grant ended; HELD is not ended."""

    HELD = ""
    RELEASED = "released"
    CLOSED = "closed"
    """Its session was closed by its client."""
    EXPIRED = "expired"
    FAILED = "failed"
    """Its session was ended by its client, which was not well; the reason says how."""
    ABANDONED = "abandoned"
    DELETED = "deleted"
    """Its znode was deleted over the tree."""
    FORCED = "forced"
    MAX_HOLD = "max_hold"

    def __bool__(self) -> bool:
        return self is not Ending.HELD  # compiled code would take that for true without this


class Departure(Struct, frozen=True, gc=False, array_like=True):
    """Why contenders go in one command; kept with the grants that end by it."""

    how: Ending
    term: int
    """The term of the entry."""
    by: str = ""
    reason: str = ""
    silent_ms: int = 0
    """For how long the leader had not heard of the session when it expired."""

    def row(self) -> tuple[Any, ...]:
        """Return all fields, as they are written down."""
        return astuple(self)


class EndedGrant(Struct, frozen=True, gc=False, array_like=True):
    """A grant as it is kept: the contender as it was at the end, and how it went."""

    contender: ContenderRecord
    ended_zxid: int
    ended_ms: int
    departure: Departure
