"""A place in a queue: whose it is, what it is called, and what its name tells.

The queues themselves are in ``queues``; this is the vocabulary they share with the operations.

1. A contender is a znode ``/locks/<segment>/<prefix><number>`` (or below ``/elections``) whose
   number has 10 to 18 digits; other names in a queue are nobody's place.
2. The prefix tells the kind where nothing else does: ``read-`` SHARED, ``slot-`` SLOT; ``delay-``
   is nobody's place and closes the queue; all others are EXCLUSIVE.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from coordinator.state.commands import Kind
from coordinator.state.grants import Ending

QUEUE_ROOTS = ("/locks/", "/elections/")
DELAY_PREFIX = "delay-"
HAND_MADE_NUMBER_MAX = 10**12
"""Higher than numbers get by themselves, and so that counting on stays within 18 digits."""
RECORDED_DATA_BYTES_MAX = 2_048

QUEUE_DEPTH = 2
CONTENDER_DEPTH = 3
_SEQUENCE = re.compile(r"(?<!\d)(\d{10,18})\Z", re.ASCII)
_KINDS_BY_PREFIX = {"read-": Kind.SHARED, "slot-": Kind.SLOT}
_KIND_PREFIX_LENGTH = 5


def number_of(name: str) -> int | None:
    """Return the number at the end of a contender's name, None when it is no contender."""
    match = _SEQUENCE.search(name)
    return int(match.group(1)) if match else None


def kind_of(name: str) -> Kind:
    """Return the kind that a contender's name, or its prefix, tells."""
    return _KINDS_BY_PREFIX.get(name[:_KIND_PREFIX_LENGTH], Kind.EXCLUSIVE)


def is_queue(directory: str) -> bool:
    """Whether the path is that of a queue: whether it exists does not matter."""
    return directory.startswith(QUEUE_ROOTS) and directory.count("/") == QUEUE_DEPTH


class Contender(NamedTuple):
    """One place in a queue. ``czxid`` is its fencing token and the zxid at which it entered."""

    path: str
    czxid: int
    kind: Kind
    session_id: str | None
    data: bytes
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

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def number(self) -> int:
        number = number_of(self.path)
        assert number is not None, "a contender has a number"
        return number

    @property
    def is_holder(self) -> bool:
        return self.granted_zxid is not None


class Closing(NamedTuple):
    """A queue that is closed for ``delay_ms`` after its holder was lost, by the znode ``path``."""

    path: str
    czxid: int
    delay_ms: int


class Departure(NamedTuple):
    """Why contenders go in this command; kept with the grants that end by it."""

    how: Ending
    term: int
    by: str = ""
    reason: str = ""
    silent_ms: int = 0


def recorded(data: bytes) -> bytes:
    """Return the data of a contender as it is kept with its grant."""
    return data if len(data) <= RECORDED_DATA_BYTES_MAX else b""
