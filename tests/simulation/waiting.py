"""Places in the queues as the judge sees them, and who of them would wait for ever.

An owner that waits for nothing can go on and gives everything back; what that makes way for lets
others go on. Whom this never reaches waits for ever. (Holt 1972, the wait-for graph reduced.) Done
here in the simplest way there is, over all queues and again from the start after each step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.state.commands import Kind

Owner = tuple[str, ...]
Lines = Mapping[str, list[tuple[Owner, Kind, bool]]]
"""Each queue, in order: whose the place is, of which kind, and whether it holds."""


@dataclass(frozen=True, slots=True)
class Place:
    """One contender, from the entry of the log that made it."""

    path: str
    directory: str
    number: int
    czxid: int
    kind: Kind
    session_id: str | None
    index: int
    owner: str = ""
    lock_delay_ms: int = 0
    max_hold_ms: int = 0
    group: tuple[str, ...] = ()
    note: bytes = b""
    granted_s: float = -1.0
    """When the entry that granted was first applied; less than 0 while it waits."""
    granted_index: int = 0
    counted_index: int = 0
    """The entry since which a bounded hold lasts ``max_hold_ms``: its grant, or an extension."""
    extensions: int = 0
    ends_s: float = 0.0
    """Before this a bounded hold is not ended, by a clock as fast as any."""

    @property
    def is_holder(self) -> bool:
        return self.granted_s >= 0

    @property
    def waits_as(self) -> Owner:
        if self.owner and self.session_id is not None:
            return (self.session_id, self.owner)
        return (self.group[0] if self.group else self.path,)


def stuck_owners(lines: Lines, sizes: Mapping[str, int]) -> set[Owner]:
    """Return the owners that can never go on, whatever those do who can."""
    queues = {directory: list(line) for directory, line in lines.items()}
    left = {owner for line in queues.values() for owner, _, _ in line}
    while left:
        _grant(queues, sizes)
        waiting = {owner for line in queues.values() for owner, _, holds in line if not holds}
        free = left - waiting
        if not free:
            return left
        for directory, line in queues.items():
            queues[directory] = [place for place in line if place[0] not in free]
        left -= free
    return set()


def _grant(queues: dict[str, list[tuple[Owner, Kind, bool]]], sizes: Mapping[str, int]) -> None:
    for directory, line in queues.items():
        for at, (owner, kind, holds) in enumerate(line):
            if holds:
                continue
            before = [each for _, each, _ in line[:at]]
            if at and (kind is Kind.EXCLUSIVE or any(each is not kind for each in before)):
                break
            if kind is Kind.SLOT and at >= sizes.get(directory, 1):
                break
            line[at] = (owner, kind, True)
