"""Refused connections: the reasons, and a limit on how often they are logged."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from coordinator.clock import Clock

logger = logging.getLogger(__name__)

REFUSAL_LOG_INTERVAL_MS = 1_000
DISAGREEMENT_LOG_INTERVAL_MS = 60_000
DISAGREEMENT_KEPT_MS = 10_000
"""After the last try; members dial each other again at least once a second."""
DISAGREEING_MAX = 32


class RefusalLog:
    """Logs refused connections, at most one line a second, so that a stranger cannot flood it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_ms = 0
        self._dropped = 0

    def add(self, reason: str) -> None:
        """Count a refused connection; log it now and then."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_ms:
            self._dropped += 1
            return
        logger.warning("connection refused: %s (%d more not logged)", reason, self._dropped)
        self._next_ms = now_ms + REFUSAL_LOG_INTERVAL_MS
        self._dropped = 0


class Disagreements:
    """Members that know the secret, and differ in what must be equal on all (``agreement``)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, tuple[str, int]] = {}
        """The latest refusal by member: the sentence, and when it was last found."""
        self._logged: dict[str, tuple[str, int]] = {}

    def add(self, member_id: str, why: str) -> None:
        """Keep ``why`` for the status; say it in the log at once, then once a minute."""
        now_ms = self._clock.monotonic_ms()
        if member_id not in self._found and len(self._found) >= DISAGREEING_MAX:
            return
        self._found[member_id] = (why, now_ms)
        logged, logged_ms = self._logged.get(member_id, ("", 0))
        if logged != why or now_ms - logged_ms >= DISAGREEMENT_LOG_INTERVAL_MS:
            self._logged[member_id] = (why, now_ms)
            logger.error("member %s refused: %s", member_id, why, extra={"peer": member_id})

    def end(self, member_id: str) -> None:
        """Note that this member agrees now."""
        self._found.pop(member_id, None)
        self._logged.pop(member_id, None)

    def all(self) -> Mapping[str, str]:
        """Return why each member is refused that has called or was called lately."""
        oldest_ms = self._clock.monotonic_ms() - DISAGREEMENT_KEPT_MS
        self._found = {key: each for key, each in self._found.items() if each[1] >= oldest_ms}
        return {key: why for key, (why, _) in sorted(self._found.items())}
