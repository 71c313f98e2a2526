"""Do leaders end in time what ends by itself: bounded holds, lock-delays, and sessions?

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
SESSION_LATE_S = 0.8
"""Ticks are 100 ms apart, and a leader that stood still for a second begins all leases anew."""

Bound = tuple[str, int, int, int]
"""A path, the ms it may stand, the index of the entry from which they count, its extensions."""


class Overdue:
    """Looks at each leader of a world, regularly."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.record.history_changes_max = world.config_of("1").limits.watch_history_changes
        self._since_s: dict[tuple[str, int, str, int], float] = {}
        """From when on a leader certainly counts a bound: by member's life, term, path and
        how often it was extended."""
        self._late_s: dict[tuple[str, str], float] = {}
        """Since when a session's lease is over and its end not proposed: by life and session."""

    def look(self) -> None:
        for member in self._world.members:
            self._look_at_sessions(member)
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

    def _look_at_sessions(self, member: SimulatedMember) -> None:
        """Whether a leader proposes the end of each session in time, and promises none too much.

        Each heartbeat extends a lease, also one whose answer is lost, so the leader says until when
        it lasts: never longer than the timeout from now on."""
        record, late_s = self._world.record, self._late_s
        leases = member.service._leases if member.is_leading and member.failure is None else None
        if leases is None or member.owner.is_paused or leases._starting or leases.term is None:
            for key in [each for each in late_s if each[0] == member.who]:
                del late_s[key]
            return
        now_s, now_ms = record.now_s(), member.clock.monotonic_ms()
        for session in member.machine().sessions():
            session_id = session.session_id
            key, ends_ms = (member.who, session_id), leases.deadline_ms(session_id)
            if ends_ms is not None and ends_ms > now_ms + session.timeout_ms:
                record.violate(
                    "sessions end in time",
                    f"{member.who} keeps {session_id} for {ends_ms - now_ms} ms more, of "
                    f"{session.timeout_ms} at most",
                )
            if (ends_ms is not None and ends_ms > now_ms) or session_id in leases._expiring:
                late_s.pop(key, None)
            elif now_s - record.expiries_proposed.get(key, 0.0) <= SESSION_LATE_S:
                late_s.pop(key, None)  # it was refused, by a disk without room: again soon
            elif now_s - late_s.setdefault(key, now_s) > SESSION_LATE_S:
                late_s[key] = now_s + 3_600  # once is enough
                record.violate(
                    "sessions end in time",
                    f"{member.who} leads, and has not ended {session_id} though its lease has been "
                    f"over for {SESSION_LATE_S} s",
                )
