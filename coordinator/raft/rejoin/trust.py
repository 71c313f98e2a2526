"""The trust of a member in the others, and its alarms about members it does not believe.

1. A member that differs in what must be equal on all gets no connection (``agreement``).
2. A member that sent something that cannot be true is disconnected for a while. An alarm is raised
   in the log, the status and the metrics.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from coordinator.clock import Clock
from coordinator.raft.network.transport import MemberTransport

logger = logging.getLogger(__name__)

LOG_INTERVAL_MS = 60_000
KEPT_MS = 600_000
"""How long the status shows an alarm after it was last raised."""


class Trust:
    """The trust of one member in the others."""

    def __init__(self, transport: MemberTransport, clock: Clock, member_count: int) -> None:
        self._transport = transport
        self._member_count = member_count
        self.alarms = Alarms(clock)

    def distrust(self, member_id: str, why: str) -> None:
        """Raise an alarm about a member's message, and drop its connection."""
        self.alarms.add(member_id, why)
        self._transport.drop(member_id)

    def refused(self) -> Mapping[str, str]:
        """Return the members, of the list or not, that differ from this one, and in what."""
        return self._transport.disagreements()

    @property
    def is_refused(self) -> bool:
        """Whether those are a quorum: then this member neither campaigns nor votes."""
        return len(self.refused()) > self._member_count // 2


class Alarms:
    """The alarms of one member: the last one about each other member."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._raised: dict[str, tuple[str, int]] = {}
        self._logged_ms: dict[str, int] = {}
        self.raised_total = 0

    def add(self, member_id: str, why: str) -> None:
        """Raise an alarm; it is logged at once, then once a minute for each member."""
        now_ms = self._clock.monotonic_ms()
        self.raised_total += 1
        self._raised[member_id] = (why, now_ms)
        logged_ms = self._logged_ms.get(member_id)
        if logged_ms is None or now_ms - logged_ms >= LOG_INTERVAL_MS:
            self._logged_ms[member_id] = now_ms
            logger.error(
                "ALARM: member %s %s; its connection was dropped",
                member_id,
                why,
                extra={"peer": member_id},
            )

    def all(self) -> Mapping[str, str]:
        """Return the last alarm about each member, of the last ten minutes."""
        oldest_ms = self._clock.monotonic_ms() - KEPT_MS
        return {
            member_id: f"member {member_id} {why}"
            for member_id, (why, raised_ms) in sorted(self._raised.items())
            if raised_ms >= oldest_ms
        }
