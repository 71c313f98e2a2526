"""The watch over a session's grants: what acknowledged heartbeats say of them.

1. How much is left of a bounded hold (``max_hold``), counted like the lease from when the heartbeat
   was sent, less the margin. The latest end that any heartbeat promised counts: a new leader starts
   the count again, so a promise is only ever exceeded. A hold with no promise yet is not safe.
2. Which grants were revoked while the session lives: by force, or deleted over the tree. Each
   heartbeat repeats them, so it does not matter which of them arrives. Only the latest are listed:
   if none of a full list was seen before, others may have been cut off in between, and every
   grant of the session is doubted.
3. Only watched grants are remembered.
4. It changes only in the event loop, and may be asked in any thread. There is no guard: a signal
   handler may interrupt a question and wait for the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from coordinator.client.sessions.lease import margin_ms
from coordinator.clock import Clock
from coordinator.model.sessions import LOST_MAX, LostGrant, SessionLease

_REMEMBERED_MAX = 10 * LOST_MAX
_DOUBT = f"{LOST_MAX} or more grants of this session were taken at once; it may be one of them"


class _Watched:
    __slots__ = ("fencing_token", "loss_reason", "on_lost", "until_ms")

    def __init__(self, fencing_token: int) -> None:
        self.fencing_token = fencing_token
        self.until_ms = 0
        """Until when the bounded hold is safe, 0 while no heartbeat has said so."""
        self.loss_reason = ""
        """Why it was lost; empty while it is not."""
        self.on_lost: Callable[[str], None] | None = None


class GrantWatch:
    """The state of one session's grants as heartbeats report it, by their contenders' paths."""

    def __init__(self, clock: Clock, margin_ratio: float) -> None:
        self._clock = clock
        self._margin_ratio = margin_ratio
        self._watched: dict[str, _Watched] = {}
        self._lost: dict[tuple[str, int], None] = {}
        """The grants last reported as lost, by path and token."""
        self._is_idle: asyncio.Event | None = None
        """Set when nothing is watched; made when that is first waited for."""
        self.has_lost = False
        """Whether any that was watched was ever lost; mostly not."""

    def watch(
        self,
        paths: Iterable[str],
        fencing_token: int,
        on_lost: Callable[[str], None] | None = None,
    ) -> None:
        """Watch these contenders, which hold as one.

        ``on_lost(reason)`` is called in the event loop for each that a heartbeat reports as lost.
        """
        for path in paths:
            watched = self._watched.get(path)
            if watched is None:
                watched = self._watched[path] = _Watched(fencing_token)
            watched.on_lost = on_lost or watched.on_lost

    def stop_watching(self, paths: Iterable[str]) -> None:
        """Stop watching these contenders."""
        for path in paths:
            self._watched.pop(path, None)
        is_idle = None if self._watched else self._is_idle
        if is_idle is not None:
            is_idle.set()

    def is_watched(self, path: str) -> bool:
        """Whether the contender ``path`` holds for a recipe, or is being handed to one."""
        return path in self._watched

    def watches_below(self, directory: str) -> bool:
        """Whether a contender in ``directory`` holds for a recipe."""
        return any(path.startswith(f"{directory}/") for path in self._watched)

    async def nothing_watched(self) -> None:
        """Wait until no grant is watched: everything was released or given up; in the loop."""
        while True:
            if not self._watched:
                return
            if self._is_idle is None:
                self._is_idle = asyncio.Event()
            self._is_idle.clear()
            await self._is_idle.wait()

    def hold_remaining_ms(self, paths: Iterable[str]) -> int:
        """Return for how long the leader certainly lets all of ``paths`` hold, 0 when unknown.

        Contenders that hold as one end as one, so a promise for one of them is enough.
        """
        watched = self._watched.get
        known = [each.until_ms for path in paths if (each := watched(path)) is not None]
        promised = [until_ms for until_ms in known if until_ms]
        return max(0, min(promised) - self._clock.monotonic_ms()) if promised else 0

    def loss_reason(self, paths: Iterable[str]) -> str:
        """Return why one of ``paths`` was lost; empty when no heartbeat said that it was."""
        if not self.has_lost:
            return ""
        watched = self._watched.get
        reasons = [each.loss_reason for path in paths if (each := watched(path)) is not None]
        return next(filter(None, reasons), "")

    def on_heartbeat(self, sent_ms: int, lease: SessionLease) -> None:
        """Read the acknowledgement of the heartbeat sent at ``sent_ms``; in the event loop."""
        callbacks: list[tuple[Callable[[str], None], str]] = []
        for path, left_ms in lease.holds.items():
            watched = self._watched.get(path)
            if watched is not None:
                until_ms = sent_ms + left_ms - margin_ms(left_ms, self._margin_ratio)
                watched.until_ms = max(watched.until_ms, until_ms)
        reasons = {(lost.path, lost.fencing_token): _why(lost) for lost in lease.lost}
        is_cut = len(lease.lost) >= LOST_MAX and self._lost.keys().isdisjoint(reasons)
        self._remember(reasons)
        for path, watched in self._watched.items():
            reason = reasons.get((path, watched.fencing_token), _DOUBT if is_cut else "")
            if reason and not watched.loss_reason:
                watched.loss_reason, self.has_lost = reason, True
                if watched.on_lost is not None:
                    callbacks.append((watched.on_lost, reason))
        for callback, reason in callbacks:
            callback(reason)

    def _remember(self, lost: Iterable[tuple[str, int]]) -> None:
        """Members that restarted list fewer of the old ones, so keep what they listed before."""
        self._lost.update(dict.fromkeys(lost))
        for oldest in list(self._lost)[:-_REMEMBERED_MAX]:
            del self._lost[oldest]


def _why(lost: LostGrant) -> str:
    match lost.how:
        case "forced":
            return f"{lost.by} took it by force: {lost.reason}"
        case "max_hold":
            return "its time (max_hold) is over"
        case "deleted":
            return "its znode was deleted over the tree"
    return f"the cluster ended it ({lost.how})"
