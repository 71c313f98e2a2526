"""Items of a work queue: their znodes' names and data; see ``coordinator.recipes.work_queue``.

The data is a line of JSON, and then the body. A znode that another program has put without such a
line is an item, too: all its data is the body.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from coordinator.client import Create, Delete, Operation
from coordinator.errors import BadArgumentsError
from coordinator.recipes.waits import is_seconds

CLAIM = "claim"
DELAY = "delay"
_MARK = "queue_item"
_REASON_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class WorkItem:
    """What is kept of an item: its body, how often it was delivered, and why that was not all."""

    body: bytes
    attempts: int = 0
    reason: str = ""

    def to_bytes(self) -> bytes:
        """Return the data of its znode."""
        document = {_MARK: 1, "attempts": self.attempts, "reason": self.reason}
        return json.dumps(document).encode() + b"\n" + self.body

    @classmethod
    def of(cls, data: bytes) -> WorkItem:
        """Return the item that a znode's data is."""
        line, _, body = data.partition(b"\n")
        try:
            document = json.loads(line)
            if document[_MARK] == 1:
                return cls(body, int(document["attempts"]), str(document["reason"]))
        except (ValueError, KeyError, TypeError):
            pass
        return cls(data)

    def because(self, reason: str) -> WorkItem:
        """Return the same with another reason."""
        return replace(self, reason=reason[:_REASON_CHARACTERS_MAX])


def delayed(path: str, delay_ms: int) -> tuple[Operation, ...]:
    """Return what hides the item at ``path`` for so long: a child that the leader takes away."""
    if delay_ms == 0:
        return ()
    return (Create(f"{path}/{DELAY}", b"", "ttl", ttl_ms=delay_ms),)


def delay_ms_of(delay: float) -> int:
    """Return a delay in ms.

    Raises:
        BadArgumentsError: it is no number of seconds.
    """
    if not is_seconds(delay):
        raise BadArgumentsError(f"delay: expected seconds from 0, found {delay!r}")
    return int(delay * 1000)


def to_dead(path: str, item: WorkItem) -> tuple[Operation, ...]:
    """Return what moves the item at ``path`` to the dead letters."""
    directory, _, name = path.rpartition("/")
    dead = f"{directory.rpartition('/')[0]}/dead/{name}"
    return (Create(dead, item.to_bytes(), parents="persistent"), Delete(path))
