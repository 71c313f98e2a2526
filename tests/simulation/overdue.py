"""Do leaders end in time what ends by itself: bounded holds, and lock-delays?

A leader that runs, is ready and has applied the entry proposes the end when the bound is over by
its clock. Whether that is committed is another question; whether it is proposed does not depend on
the network or on a disk, so it is judged in the middle of all faults.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.members import SimulatedMember
    from tests.simulation.world import World

CLOCK_RATE_MOST = 1.015
LATE_S = 0.3
"""Looks are 50 ms apart, timers 10 ms, and a proposal that was refused comes again after 100."""

Bound = tuple[str, int, int, int]
"""A path, the ms it may stand, the index of the entry from which they count, its extensions."""


class Overdue:
    """Looks at each leader of a world, regularly."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since_s: dict[tuple[str, int, str, int], float] = {}
        """From when on a leader certainly counts a bound: by member's life, term, path and
        how often it was extended."""

    def look(self) -> None:
        bounds = list(self._bounds())
        if not bounds:
            return
        for member in self._world.members:
            if member.is_leading and member.failure is None:
                self._look_at(member, bounds)

    def _bounds(self) -> Iterator[Bound]:
        """Iterate over what has to end."""
        locks = self._world.record.locks
        for place in locks.bounded():
            yield place.path, place.max_hold_ms, place.counted_index, place.extensions
        for path, (_, delay_ms, index) in locks.delays.items():
            yield path, delay_ms, index, 0

    def _look_at(self, member: SimulatedMember, bounds: list[Bound]) -> None:
        record, term = self._world.record, member.service._hold_timers._term
        if term is None:
            return
        now_s, applied_index = record.now_s(), member.applied_index
        for path, bound_ms, index, extensions in bounds:
            key = (member.who, term, path, extensions)
            proposed = (member.who, path, extensions)
            if applied_index < index:
                continue
            if member.owner.is_paused or key not in self._since_s:
                self._since_s[key] = now_s
                continue
            late_s = now_s - self._since_s[key] - CLOCK_RATE_MOST * bound_ms / 1000
            if late_s > LATE_S and proposed not in record.ends_proposed:
                record.ends_proposed[proposed] = now_s  # once is enough
                record.violate(
                    "ends by itself in time",
                    f"{member.who} leads, and has not ended {path} of {bound_ms} ms that it "
                    f"counts since {self._since_s[key]:.4f}",
                )
