"""The leader's wall time, as a client reads it: never the client's own clock.

1. The time is that of a write: the leader stamps each command that it proposes, and the stamp is
   the ``mtime`` of what was written. So it is replicated, and the same for all who read it.
2. It may jump: a clock is set, or another leader has another clock. What decides by it keeps the
   latest time that it accepted, and never accepts an earlier one (``Ledger.time_ms``).
3. A jump is noticed by the client's monotonic clock: between two readings both must have moved by
   the same, but for the time that the requests took.
4. A jump forward is doubted as long as this machine's clock contradicts it. Until then the time is
   that before the jump, and what has passed since: nothing begins early, and nothing stops. A
   client whose clock agrees with the leader goes on by the new time, for all.
5. A time that is a day beyond both the latest accepted one and this machine's clock is refused.
   One of the two clocks is wrong then; a job that believed it would not run again until that day.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.client import AsyncClient
from coordinator.errors import NodeExistsError, NoNodeError, UnavailableError
from recipes.job_ledger import time_text

CLOCK = "/schedules/clock"
AHEAD_MS_MAX = 86_400_000
_JUMP_MS_MIN = 2_000
"""Besides a hundredth of the time between: clocks are neither exact nor equally fast."""


@dataclass(frozen=True, slots=True)
class LeaderTime:
    """``jump_ms`` is how far it jumped since this client's reading before; 0 if not at all.

    ``doubted_ms`` is how far ahead of ``now_ms`` the leader's clock is; 0 if it is believed.
    """

    now_ms: int
    jump_ms: int
    doubted_ms: int = 0


class LeaderClock:
    """What one client knows of the leader's time: ``client.shared(LeaderClock)``."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None
        """The last reading: its time, when it was asked and when answered, by our clock."""
        self._doubted_ms = 0

    async def read(self, core: AsyncClient) -> LeaderTime:
        """Write, and return the time of the write.

        Raises:
            UnavailableError, OutcomeUnknownError: no member answered in time.
        """
        asked_ms = core.clock.monotonic_ms()
        now_ms = await _written(core)
        answered_ms = core.clock.monotonic_ms()
        before, self._before = self._before, (now_ms, asked_ms, answered_ms)
        if before is None:
            return LeaderTime(now_ms, 0)
        moved_ms = now_ms - before[0]
        most_ms = answered_ms - before[1]
        jump_ms = moved_ms - min(max(moved_ms, asked_ms - before[2]), most_ms)
        if abs(jump_ms) <= _JUMP_MS_MIN + most_ms // 100:
            jump_ms = 0
        self._doubted_ms = max(0, self._doubted_ms + jump_ms)
        own_ms = core.clock.wall_ms()
        if abs(own_ms - now_ms) <= abs(own_ms - (now_ms - self._doubted_ms)):
            self._doubted_ms = 0
        return LeaderTime(now_ms - self._doubted_ms, jump_ms, self._doubted_ms)


def refuse_far_ahead(core: AsyncClient, now_ms: int, accepted_ms: int) -> None:
    """Refuse a time that is more than a day beyond all that is known of it.

    Raises:
        UnavailableError: it is; nothing was decided.
    """
    own_ms = core.clock.wall_ms()
    if now_ms > max(own_ms, accepted_ms) + AHEAD_MS_MAX:
        raise UnavailableError(
            f"the leader's clock says {time_text(now_ms)}, this machine's {time_text(own_ms)}: "
            f"expected a difference below a day; nothing was run. Set the clock that is wrong"
        )


async def _written(core: AsyncClient) -> int:
    while True:
        try:
            return (await core.set(CLOCK, b"")).stat.mtime_ms
        except NoNodeError:
            pass
        try:
            return (await core.create(CLOCK, b"", parents="persistent")).stat.mtime_ms
        except NodeExistsError:
            continue
