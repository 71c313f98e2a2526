"""Syncs of a log that take their time, as those of the kernel: nobody has to wait for one.

In worlds from ``LEFT_FROM`` on most members have them. A leader leaves its sync and sends its
entries; it looks at it again when it must know. A power cut in between loses what is not synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.raft.left_syncs import LeftSync

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

    def start(self, call: Callable[[], None]) -> LeftSync:
        """Begin a sync, which the disk makes some time later."""
        member = self._member
        limit_ms = member.sync_ms_max or _SYNC_MS_MAX
        seconds = self._random.uniform(0.0, limit_ms) / 1000
        return LeftSync(call, seconds, member.world.record.tally.deeds)
