"""A place in a queue: whose it is, what it is called, what its name tells, and how it is left.

The queues themselves are in ``queues``; this is the vocabulary they share with the operations.

1. A contender is a znode ``/locks/<segment>/<prefix><number>`` (or below ``/elections``) whose
   number has 10 to 18 digits; other names in a queue are nobody's place.
2. The prefix tells the kind where nothing else does: ``read-`` SHARED, ``slot-`` SLOT; ``delay-``
   is nobody's place and closes the queue; all others are EXCLUSIVE.
3. Only ephemerals are created there, so every contender ends with its session. A persistent one may
   be there since commands of a format before 5: it holds until it is deleted or revoked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import astuple, replace

from coordinator.model.events import Event
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.commands import EXCLUSIVE, Kind
from coordinator.state.paths import SEQUENCE_DIGITS
from coordinator.state.znode import ZnodeRecord

QUEUE_ROOTS: Final = ("/locks/", "/elections/")
QUEUE_DEPTH: Final = 2
CONTENDER_DEPTH: Final = 3
DELAY_PREFIX: Final = "delay-"
HAND_MADE_NUMBER_MAX: Final = 10**12
"""Higher than numbers get by themselves, and so that counting on stays within 18 digits."""
RECORDED_DATA_BYTES_MAX: Final = 2_048

_LONG_NUMBER: Final = re.compile(r"(?<!\d)\d{11,18}\Z", re.ASCII)
_KINDS_BY_PREFIX: Final = {"read-": Kind.SHARED, "slot-": Kind.SLOT}
_KIND_PREFIX_LENGTH: Final = 5


def number_of(name: str) -> int | None:
    """Return the number at the end of a contender's name or path, None when it is no contender."""
    digits = name[-SEQUENCE_DIGITS:]
    if len(digits) < SEQUENCE_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    if name[-SEQUENCE_DIGITS - 1 : -SEQUENCE_DIGITS] not in "0123456789":
        return int(digits)
    if len(name) == SEQUENCE_DIGITS:
        return int(digits)
    match = _LONG_NUMBER.search(name)
    return int(match.group()) if match else None


def kind_of(name: str) -> Kind:
    """Return the kind that a contender's name, or its prefix, tells."""
    return _KINDS_BY_PREFIX.get(name[:_KIND_PREFIX_LENGTH], EXCLUSIVE)


def is_queue(directory: str) -> bool:
    """Whether the path is that of a queue: whether it exists does not matter."""
    return directory.startswith(QUEUE_ROOTS) and directory.count("/") == QUEUE_DEPTH


class ContenderRecord(Struct, frozen=True, gc=False, array_like=True):
    """One place in a queue. ``czxid`` is its fencing token and the zxid at which it entered."""

    path: str
    number: int
    """The number at the end of its name, the order of its queue."""
    czxid: int
    kind: Kind
    session_id: str | None
    """None for a znode, made by hand, that outlives sessions."""
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


def made_by_hand(
    path: str, number: int, event: Event, znode: ZnodeRecord | None
) -> ContenderRecord:
    """Return the contender that a plain znode is: anonymous, its kind said by its name.

    ``znode`` is None if it is gone again already."""
    data, entered_ms, identity = b"", 0, ""
    if znode is not None:
        data, entered_ms, identity = recorded(znode.data), znode.ctime_ms, znode.identity
    name = path[path.rindex("/") + 1 :]
    return ContenderRecord(
        path, number, event.czxid, kind_of(name), event.ephemeral_owner, data, entered_ms,
        identity=identity,
    )  # fmt: skip


class Closing(NamedTuple):
    """A queue that is closed for ``delay_ms`` after its holder was lost, by the znode ``path``."""

    path: str
    czxid: int
    delay_ms: int


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


@dataclass(frozen=True, slots=True)
class LocksCapture:
    """The contenders and what is known beside them at one moment."""

    contenders: Collection[ContenderRecord]
    sizes: Collection[tuple[str, int]]
    closings: Collection[Closing]
    ended: tuple[EndedGrant, ...]
    grant_count: int
    ungranted: tuple[str, ...] = ()
    holds: tuple[CaptureHold, ...] = ()
    """Keep the first three as they were."""


def recorded(data: bytes) -> bytes:
    """Return the data of a contender as it is kept with its grant."""
    return data if len(data) <= RECORDED_DATA_BYTES_MAX else b""
