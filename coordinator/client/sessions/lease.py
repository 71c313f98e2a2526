"""The client's side of a lease: how long it may still be relied upon. Pure: time is an argument.

1. The lease is counted from when the heartbeat (or the opening) was *sent*: the server counts from
   when it arrived, which is later, so the client always gives up first.
2. From that the margin is taken off: ``max(2.5 % of the timeout, 50 ms)`` by default. If the
   client's clock runs at 0.99 and the server's at 1.01 of the true rate, the server ends a lease of
   T after T / 1.01 true ms, while the client has measured 0.99 of them: it must give up after
   0.9802 T of its own, so a margin of 2 % is needed; the half percent and the floor are slack.
3. In the worst case trouble begins just before a heartbeat is due and ends just after one was
   sent and lost. So it may last for T less a third (the interval), a sixth (that one is given up),
   a twelfth (the pause before the next) and the margin: 0.39 T, which docs/locks.md reckons with.
4. Once the safe time has run out the lease is never renewed again, whatever arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coordinator.model.sessions import MARGIN_RATIO as MARGIN_RATIO
from coordinator.model.sessions import margin_ms as margin_ms

ATTEMPT_MS_MIN = 200


@dataclass(frozen=True, slots=True)
class Lease:
    """Safe from ``sent_ms`` for ``timeout_ms`` less ``margin_ms``."""

    sent_ms: int
    timeout_ms: int
    margin_ms: int

    safe_until_ms: int = field(init=False)
    """When the client gives up, on its monotonic clock."""
    interval_ms: int = field(init=False)
    """How often to send a heartbeat: three chances in each lease."""
    ride_from_ms: int = field(init=False)
    """From when on a request that is sent anyway should renew it, and so save a heartbeat."""

    def __post_init__(self) -> None:
        safe_until_ms = self.sent_ms + self.timeout_ms - self.margin_ms
        object.__setattr__(self, "safe_until_ms", safe_until_ms)
        interval_ms = max(1, self.timeout_ms // 3)
        object.__setattr__(self, "interval_ms", interval_ms)
        object.__setattr__(self, "ride_from_ms", self.sent_ms + (interval_ms + 1) // 2)

    def is_due(self, now_ms: int) -> bool:
        """Whether it is time for a heartbeat."""
        return now_ms - self.sent_ms >= self.interval_ms

    @property
    def attempt_ms(self) -> int:
        """How long one heartbeat is waited for."""
        return max(ATTEMPT_MS_MIN, self.timeout_ms // 6)

    @property
    def pause_ms_max(self) -> int:
        """How long at most to wait after one that failed: a longer wait wastes the lease."""
        return max(1, self.timeout_ms // 12)

    def remaining_ms(self, now_ms: int) -> int:
        """Return the safe time left, 0 when there is none."""
        return max(0, self.safe_until_ms - now_ms)

    def renewed(self, sent_ms: int) -> Lease:
        """Return the lease after the heartbeat sent at ``sent_ms`` was acknowledged."""
        return replace(self, sent_ms=max(self.sent_ms, sent_ms))
