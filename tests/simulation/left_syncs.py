"""Syncs of a log that take their time, as those of the kernel: nobody has to wait for one.

In worlds from ``LEFT_FROM`` on most members have them. A leader leaves its sync and sends its
entries; it looks at it again when it must know. A power cut in between loses what is not synced.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.members import SimulatedMember

LEFT_FROM = 300_000
"""From this seed on; the worlds before are as they were."""
_HAVE_THEM = 0.75
_SYNC_MS_MAX = 3.0
"""Where the disk has no time of its own."""


class LeftSyncs:
    """Those of one member, if they ``are_there``: others are made in place, or elsewhere."""

    def __init__(self, member: SimulatedMember) -> None:
        self._member = member
        self._random = random.Random(f"left {member.world.seed} {member.member_id}")
        self.are_there = member.world.seed >= LEFT_FROM and self._random.random() < _HAVE_THEM

    def start(self, call: Callable[[], None]) -> _Sync:
        """Begin a sync, which the disk makes some time later."""
        member = self._member
        limit_ms = member.sync_ms_max or _SYNC_MS_MAX
        return _Sync(member, call, self._random.uniform(0.0, limit_ms) / 1000)


class _Sync:
    """One of them, under way."""

    def __init__(self, member: SimulatedMember, call: Callable[[], None], seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deeds = member.world.record.tally.deeds
        self._call = call
        self._ends = self._loop.time() + seconds
        self._is_done = False
        self._error: Exception | None = None

    def wait(self, seconds: float) -> bool:
        """Whether it is done within ``seconds``, which pass at once; raises why it failed."""
        if not self._is_done:
            if self._loop.time() + seconds < self._ends:
                self._deeds["sync_left" if seconds == 0 else "sync_not_awaited"] += 1
                return False
            self._is_done = True
            try:
                self._call()
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        return True

    async def done(self) -> None:
        """Return when it is done, or raise why it failed."""
        if not self._is_done:
            await asyncio.sleep(max(0.0, self._ends - self._loop.time()))
        self.wait(1.0)
