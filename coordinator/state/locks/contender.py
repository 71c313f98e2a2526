"""A place in a queue: whose it is, what it is called, what its name tells, and how it is left.

The queues themselves are in ``queues``; this is the vocabulary they share with the operations.

1. A contender is a znode ``/locks/<segment>/<prefix><number>`` (or below ``/elections``) whose
   number has 10 to 18 digits; other names in a queue are nobody's place.
2. The prefix tells the kind where nothing else does: ``read-`` SHARED, ``slot-`` SLOT; ``delay-``
   is nobody's place and closes the queue; all others are EXCLUSIVE.
3. Only ephemerals are created there, so every contender ends with its session.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from coordinator.model.events import Event
from coordinator.state.capture_hold import CaptureHold
from coordinator.state.commands import EXCLUSIVE, Kind
from coordinator.state.locks.records import ContenderRecord as ContenderRecord
from coordinator.state.locks.records import Departure as Departure
from coordinator.state.locks.records import EndedGrant as EndedGrant
from coordinator.state.locks.records import Ending as Ending
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


def made_by_hand(
    path: str, number: int, session_id: str, event: Event, znode: ZnodeRecord | None
) -> ContenderRecord:
    """Return the contender that a plain znode is: anonymous, its kind said by its name.

    ``znode`` is None if it is gone again already."""
    data, entered_ms, identity = b"", 0, ""
    if znode is not None:
        data, entered_ms, identity = recorded(znode.data), znode.ctime_ms, znode.identity
    name = path[path.rindex("/") + 1 :]
    return ContenderRecord(
        path, number, event.czxid, kind_of(name), session_id, data, entered_ms,
        identity=identity,
    )  # fmt: skip


class Closing(NamedTuple):
    """A queue that is closed for ``delay_ms`` after its holder was lost, by the znode ``path``."""

    path: str
    czxid: int
    delay_ms: int


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
