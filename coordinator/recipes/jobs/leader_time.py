"""The leader's wall time, as a client reads it: never the client's own clock.

1. The time is that of a write: the leader stamps each command that it proposes, and the stamp is
   the ``mtime`` of what was written. So it is replicated, and the same for all who read it.
2. It may jump: a clock is set, or another leader has another clock. What decides by it keeps the
   latest time that it accepted, and never accepts an earlier one (``Ledger.time_ms``).
3. A jump is noticed by a monotonic clock: between two readings both must have moved by the same,
   but for the time that the requests took. All processes of one boot of a machine share that clock,
   so each leaves its reading in the znode of its boot, below ``CLOCK``, for those that come later:
   a process that asks for the first time knows what the one before it on this machine has read.
4. A jump forward is doubted as long as this machine's clock contradicts it. Until then the time is
   that before the jump, and what has passed since: nothing begins early, and nothing stops. A
   client whose clock agrees with the leader goes on by the new time, for all.
5. A time that is a day beyond both the latest accepted one and this machine's clock is refused.
   One of the two clocks is wrong then; a job that believed it would not run again until that day.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from coordinator.client import AsyncClient
from coordinator.errors import UnavailableError
from coordinator.recipes.base.maybe_there import put, read
from coordinator.recipes.jobs.ledger import time_text

CLOCK = "/schedules/clock"
AHEAD_MS_MAX = 86_400_000
BOOT_TTL_MS = 30 * 86_400_000
"""For so long a reading is kept after its machine has stopped asking."""
_JUMP_MS_MIN = 2_000
"""Besides a thousandth of the time between: clocks are neither exact nor equally fast."""
_PART_MAX = 1_000


@dataclass(frozen=True, slots=True)
class LeaderTime:
    """``jump_ms`` is how far it jumped since this client's reading before; 0 if not at all.

    ``doubted_ms`` is how far ahead of ``now_ms`` the leader's clock is; 0 if it is believed.
    """

    now_ms: int
    jump_ms: int
    doubted_ms: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """The leader's time, asked for and answered at these times of our monotonic clock."""

    time_ms: int
    asked_ms: int
    answered_ms: int

    def jump_from(self, before: Reading) -> int:
        """Return how far the leader's time jumped since the reading before; 0 if not at all."""
        moved_ms = self.time_ms - before.time_ms
        least_ms = self.asked_ms - before.answered_ms
        most_ms = self.answered_ms - before.asked_ms
        jump_ms = moved_ms - min(max(moved_ms, least_ms), most_ms)
        return jump_ms if abs(jump_ms) > _JUMP_MS_MIN + most_ms // _PART_MAX else 0


class LeaderClock:
    """What one client knows of the leader's time: ``client.shared(LeaderClock)``."""

    def __init__(self) -> None:
        self._last: Reading | None = None
        self._doubted_ms = 0

    async def read(self, core: AsyncClient) -> LeaderTime:
        """Write, and return the time of the write.

        Raises:
            UnavailableError, OutcomeUnknownError: no member answered in time.
        """
        boot = _boot_of(core)
        path = f"{CLOCK}/{boot}" if boot else CLOCK
        if self._last is None and boot:
            await self._recall(core, path)
        asked_ms = core.clock.monotonic_ms()
        note = self._note(asked_ms, core.settings.timeout_ms) if boot else b""
        now_ms = (await put(core, path, note, ttl_ms=BOOT_TTL_MS if boot else None)).stat.mtime_ms
        jump_ms = self._follow(Reading(now_ms, asked_ms, core.clock.monotonic_ms()))
        own_ms = core.clock.wall_ms()
        if abs(own_ms - now_ms) <= abs(own_ms - (now_ms - self._doubted_ms)):
            self._doubted_ms = 0
        return LeaderTime(now_ms - self._doubted_ms, jump_ms, self._doubted_ms)

    def _follow(self, reading: Reading) -> int:
        """Take the next reading; return how far the time jumped."""
        jump_ms = 0 if self._last is None else reading.jump_from(self._last)
        self._last = reading
        self._doubted_ms = max(0, self._doubted_ms + jump_ms)
        return jump_ms

    def _note(self, asked_ms: int, within_ms: int) -> bytes:
        """Return what a reading leaves: when it was asked for, and what was known before it.

        The time that it reads is the znode's mtime, so the next one can look for a jump itself."""
        last = self._last
        before = None if last is None else [last.time_ms, last.asked_ms, last.answered_ms]
        known = {"before": before, "doubted_ms": self._doubted_ms}
        return json.dumps({"asked_ms": asked_ms, "within_ms": within_ms, **known}).encode()

    async def _recall(self, core: AsyncClient, path: str) -> None:
        """Go on from the last reading of this boot, if there is one."""
        znode = await read(core, path)
        if znode is None:
            return
        try:
            said = json.loads(znode.data)
            asked_ms, within_ms = said["asked_ms"], said["within_ms"]
            before = None if said["before"] is None else Reading(*said["before"])
            reading = Reading(znode.stat.mtime_ms, asked_ms, asked_ms + within_ms)
            doubted_ms = said["doubted_ms"]
            numbers: list[Any] = [asked_ms, within_ms, doubted_ms, *(said["before"] or ())]
            if not all(type(each) is int and each >= 0 for each in numbers):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            return  # not ours
        if asked_ms <= core.clock.monotonic_ms():
            self._last, self._doubted_ms = before, doubted_ms
            self._follow(reading)


def _boot_of(core: AsyncClient) -> str:
    """Return the boot since which the client's clock counts, "" if that is not known."""
    name = getattr(core.clock, "boot_id", None)
    return "" if name is None else name()


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
