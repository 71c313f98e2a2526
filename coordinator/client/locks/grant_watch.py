"""What acknowledged heartbeats tell of the grants of a session, besides that it lives.

1. How much is left of a bounded hold (``max_hold``), counted like the lease from when the heartbeat
   was sent, less the margin. The latest end that any of them promised counts: a new leader begins
   the count anew, so a promise is only ever exceeded. A hold not heard of is not safe.
2. Which grants were taken while the session lives: by force, or deleted over the tree. Each
   heartbeat tells them again, so it does not matter which of them is heard. Only the latest are
   told: if none of a full list was heard before, others may have been cut off in between, and every
   grant of the session is doubted.
3. Only grants that somebody attends to are remembered. Safe to ask from any thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from coordinator.client.lease import margin_ms
from coordinator.clock import Clock
from coordinator.model.sessions import LOST_MAX, LostGrant, SessionLease

_HEARD_MAX = 10 * LOST_MAX
_DOUBT = f"{LOST_MAX} or more grants of this session were taken at once; it may be one of them"


@dataclass(slots=True)
class _Attended:
    fencing_token: int
    until_ms: int = 0
    """Until when the bounded hold is safe, 0 while nothing was told."""
    taken: str = ""
    """Why it was taken; empty while it was not."""
    on_taken: Callable[[str], None] | None = None


class Tidings:
    """What one session has heard of its grants, by the paths of their contenders."""

    def __init__(self, clock: Clock, margin_ratio: float) -> None:
        self._clock = clock
        self._margin_ratio = margin_ratio
        self._attended: dict[str, _Attended] = {}
        self._heard: dict[tuple[str, int], None] = {}
        """What was told as lost so far, by path and token; the latest of it."""
        self._is_unattended = asyncio.Event()
        self._is_unattended.set()
        self._guard = threading.Lock()

    def attend(
        self,
        paths: Iterable[str],
        fencing_token: int,
        on_taken: Callable[[str], None] | None = None,
    ) -> None:
        """Listen from now on for these contenders, which hold as one.

        ``on_taken(reason)`` is called in the event loop for each that is told to have been taken.
        """
        with self._guard:
            for path in paths:
                attended = self._attended.setdefault(path, _Attended(fencing_token))
                attended.on_taken = on_taken or attended.on_taken
        self._is_unattended.clear()

    def forget(self, paths: Iterable[str]) -> None:
        """Listen no more for these contenders; in the event loop, as ``attend``."""
        with self._guard:
            for path in paths:
                self._attended.pop(path, None)
        if not self._attended:
            self._is_unattended.set()

    def is_attended(self, path: str) -> bool:
        """Whether somebody holds by the contender ``path``, or is being given it."""
        with self._guard:
            return path in self._attended

    async def unattended(self) -> None:
        """Wait until nobody listens for any grant: all who held have let go."""
        await self._is_unattended.wait()

    def hold_remaining_ms(self, paths: Iterable[str]) -> int:
        """Return for how long the leader certainly lets all of ``paths`` hold, 0 when unknown.

        Contenders that hold as one end as one, so it is enough to have heard of one of them.
        """
        with self._guard:
            known = [self._attended[path].until_ms for path in paths if path in self._attended]
        told = [until_ms for until_ms in known if until_ms]
        return max(0, min(told) - self._clock.monotonic_ms()) if told else 0

    def taken(self, paths: Iterable[str]) -> str:
        """Return why one of ``paths`` was taken, empty when that was not told."""
        with self._guard:
            reasons = [self._attended[path].taken for path in paths if path in self._attended]
        return next(filter(None, reasons), "")

    def hear(self, sent_ms: int, told: SessionLease) -> None:
        """Take in the acknowledgement of the heartbeat sent at ``sent_ms``; in the event loop."""
        callbacks: list[tuple[Callable[[str], None], str]] = []
        with self._guard:
            for path, left_ms in told.holds.items():
                attended = self._attended.get(path)
                if attended is not None:
                    until_ms = sent_ms + left_ms - margin_ms(left_ms, self._margin_ratio)
                    attended.until_ms = max(attended.until_ms, until_ms)
            reasons = {(lost.path, lost.fencing_token): _why(lost) for lost in told.lost}
            is_cut = len(told.lost) >= LOST_MAX and self._heard.keys().isdisjoint(reasons)
            self._remember(reasons)
            for path, attended in self._attended.items():
                reason = reasons.get((path, attended.fencing_token), _DOUBT if is_cut else "")
                if reason and not attended.taken:
                    attended.taken = reason
                    if attended.on_taken is not None:
                        callbacks.append((attended.on_taken, reason))
        for callback, reason in callbacks:
            callback(reason)

    def _remember(self, told: Iterable[tuple[str, int]]) -> None:
        """Members that were restarted tell fewer of the old ones: what was heard stays heard."""
        self._heard.update(dict.fromkeys(told))
        for oldest in list(self._heard)[:-_HEARD_MAX]:
            del self._heard[oldest]


def _why(lost: LostGrant) -> str:
    match lost.how:
        case "forced":
            return f"{lost.by} took it by force: {lost.reason}"
        case "max_hold":
            return "its time (max_hold) is over"
        case "deleted":
            return "its znode was deleted over the tree"
    return f"the cluster ended it ({lost.how})"
