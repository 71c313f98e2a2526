"""The folding of refusals: of one caller the first few in a minute have a line each, the rest one.

A caller is an identity, or else an address. So a caller that is refused by the thousand, by chance
or on purpose, writes little, and the count of it is on record all the same.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Final

from coordinator.audit.event import FOLDED, REFUSED, AuditEvent
from coordinator.clock import Clock

EACH_MAX: Final = 8
"""The refusals of a caller in a minute that have a line of their own."""
CALLERS_MAX: Final = 1_000
"""The callers that are told apart in a minute; the others count as one."""
_MINUTE_MS: Final = 60_000


class _Repeats:
    """What one caller was refused since its minute began."""

    __slots__ = ("began_ms", "count", "last")

    def __init__(self, began_ms: int, last: AuditEvent) -> None:
        self.began_ms = began_ms
        self.count = 0
        self.last = last


class Folding:
    """The refusals of the present minute, by caller. Two threads may use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_caller: dict[tuple[str, str], _Repeats] = {}

    def takes(self, event: AuditEvent) -> bool:
        """Count ``event``; return whether it has no line of its own, but a share of one later."""
        if event.event != REFUSED:
            return False
        caller = event.identity, "" if event.identity else event.address
        with self._lock:
            if caller not in self._by_caller and len(self._by_caller) >= CALLERS_MAX:
                caller = "", ""
            repeats = self._by_caller.get(caller)
            if repeats is None:
                now_ms = self._clock.monotonic_ms()
                repeats = self._by_caller[caller] = _Repeats(now_ms, event)
            repeats.count += 1
            repeats.last = event
            return repeats.count > EACH_MAX

    def due(self, *, is_end: bool = False) -> list[AuditEvent]:
        """Return what has to be written of the minutes that are over, or of all: a line for each
        caller that was refused more often than it has lines."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            over = [
                caller
                for caller, each in self._by_caller.items()
                if is_end or now_ms - each.began_ms >= _MINUTE_MS
            ]
            ended = [self._by_caller.pop(caller) for caller in over]
        return [_folded(each) for each in ended if each.count > EACH_MAX]


def _folded(repeats: _Repeats) -> AuditEvent:
    detail = {**repeats.last.detail, "count": repeats.count - EACH_MAX}
    return replace(repeats.last, event=FOLDED, detail=detail)
