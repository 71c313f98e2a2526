"""Is a holder said to be safe for no longer than its leader says? Judged as a member answers.

Whichever member is asked, ``safe_ms`` is what is left at the leader of the lease, and of the bound,
when the answer is given. Both only grow while the holder holds: by a heartbeat, by an extension,
and when a new leader begins to count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coordinator.model.views import LockView

if TYPE_CHECKING:
    from tests.simulation.members import SimulatedMember
    from tests.simulation.world import World

SLACK_MS = 40
"""An answer is less than a second old, which clocks 1 % fast and slow count differently, and may
wait 10 ms for the renewal of the session that it names."""


def check_safe_times(
    world: World, who: SimulatedMember, view: LockView, arrived_s: float
) -> Iterator[tuple[str, str]]:
    """Compare what ``view`` says, in this moment, with those members that lead.

    Not if the member stood still while it answered: it cannot know how long that was."""
    if who.owner.resumed_s >= arrived_s:
        return
    for holder in view.holders:
        if not holder.safe_ms:
            continue
        bounded = holder.path if holder.max_hold_ms else None
        each_ms = [_left_ms(member, holder.session_id, bounded) for member in world.members]
        known_ms = [each for each in each_ms if each is not None]
        if not known_ms:
            continue
        world.record.tally.deeds["safe_time_compared"] += 1
        if holder.safe_ms > max(known_ms) + SLACK_MS:
            yield (
                "safe as long as the leader says",
                f"{who.who} says that {holder.path} is safe for {holder.safe_ms} ms; its leader "
                f"counts {max(known_ms)} ms",
            )


def _left_ms(member: SimulatedMember, session_id: str, bounded: str | None) -> int | None:
    """Return what is left by a member that leads; None if it does not count."""
    if not member.is_leading or member.service._leases.term is None:
        return None
    ends_ms = member.service._leases.deadline_ms(session_id)
    if ends_ms is None:
        return None
    left_ms = ends_ms - member.clock.monotonic_ms()
    bound_ms = None if bounded is None else member.service._hold_timers.remaining_ms(bounded)
    return left_ms if bound_ms is None else min(left_ms, bound_ms)
