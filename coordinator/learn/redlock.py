"""Redis locks in simulated time: one master or five of them (Redlock), and a store beside them.

Small and pure: every time is an argument, in ms. A master keeps a key until a time of its *own wall
clock*, as Redis does (``SET key value NX PX ttl``), so a jump of that clock ends it early. Redlock:
https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DRIFT_PER_MILLE = 10
DRIFT_MS = 2
"""What Redlock takes off for clocks that drift: 1 % of the time to live, and 2 ms."""


@dataclass
class Master:
    """One Redis master; ``clock_ahead_ms`` is how far its wall clock is ahead of true time."""

    name: str
    clock_ahead_ms: int = 0
    is_up: bool = True
    holder: str = ""
    expires_ms: int = 0
    """The time by the master's own wall clock."""

    def held_by(self, now_ms: int) -> str:
        """Return who has the key now, "" if nobody has."""
        if self.holder and now_ms + self.clock_ahead_ms >= self.expires_ms:
            self.holder = ""
        return self.holder

    def set_if_absent(self, holder: str, ttl_ms: int, now_ms: int) -> bool:
        """Take the key for ``ttl_ms``, unless another client has it or the master is down."""
        if not self.is_up or self.held_by(now_ms):
            return False
        self.holder, self.expires_ms = holder, now_ms + self.clock_ahead_ms + ttl_ms
        return True

    def delete_if_held(self, holder: str) -> None:
        """Give the key back, if it is still that holder's."""
        if self.holder == holder:
            self.holder = ""

    def restart(self, *, keeps_data: bool) -> None:
        """Come up again, with or without what it held (appendfsync no, or everysec)."""
        self.is_up = True
        if not keeps_data:
            self.holder = ""


@dataclass(frozen=True, slots=True)
class RedlockAttempt:
    """What an attempt came to: which masters said yes, and for how long the lock is valid."""

    holder: str
    granted_by: tuple[str, ...]
    needed: int
    asked_ms: int
    answered_ms: int
    validity_ms: int

    @property
    def is_holder(self) -> bool:
        """A majority said yes, and some of the time is left: what Redlock demands."""
        return len(self.granted_by) >= self.needed and self.validity_ms > 0

    @property
    def until_ms(self) -> int:
        """Until when its client believes that it holds, if it looks."""
        return self.answered_ms + self.validity_ms


@dataclass
class Redlock:
    """The lock over ``masters``: one is a plain Redis lock, five are Redlock."""

    masters: tuple[Master, ...]
    ttl_ms: int

    def acquire(
        self, holder: str, now_ms: int, round_trips_ms: Mapping[str, int | None]
    ) -> RedlockAttempt:
        """Ask every master, one after the other; give back what was taken in vain.

        Args:
            round_trips_ms: how long each answer takes; None: neither packet arrives.
        """
        granted, time_ms = [], now_ms
        for master in self.masters:
            round_trip_ms = round_trips_ms.get(master.name)
            if round_trip_ms is None:
                continue
            if master.set_if_absent(holder, self.ttl_ms, time_ms + round_trip_ms // 2):
                granted.append(master.name)
            time_ms += round_trip_ms
        drift_ms = self.ttl_ms * DRIFT_PER_MILLE // 1_000 + DRIFT_MS
        validity_ms = self.ttl_ms - (time_ms - now_ms) - drift_ms
        needed = len(self.masters) // 2 + 1
        found = RedlockAttempt(holder, tuple(granted), needed, now_ms, time_ms, validity_ms)
        if not found.is_holder:
            for master in self.masters:
                if round_trips_ms.get(master.name) is not None:
                    master.delete_if_held(holder)
        return found

    def holders(self, now_ms: int) -> dict[str, str]:
        """Return who has the key at each master now."""
        return {master.name: master.held_by(now_ms) for master in self.masters}


@dataclass
class LeaseLock:
    """Our lock with the same schedule: leases on a monotonic clock, tokens, a quorum's log.

    A wall clock takes no part in it, so ``wall clock jumps`` is no event here. A member that loses
    its memory has the log of a quorum; it is an event that changes nothing either.
    """

    lease_ms: int
    zxid: int = 32
    holder: str = ""
    token: int = 0
    renewed_ms: int = 0
    queue: list[tuple[str, int]] = field(default_factory=list)

    def enter(self, who: str, now_ms: int) -> int:
        """Queue ``who`` and return its token; it is granted when it is the first."""
        self.zxid += 1
        token = self.zxid
        self.queue.append((who, token))
        self._grant(now_ms)
        return token

    def release(self, now_ms: int) -> None:
        """Give back; the next in the queue is granted in the same entry of the log."""
        self.zxid += 1
        self.holder = ""
        self._grant(now_ms)

    def expire(self, now_ms: int) -> bool:
        """End the holder's lease if its time is over; return whether it was."""
        if not self.holder or now_ms < self.renewed_ms + self.lease_ms:
            return False
        self.zxid += 1
        self.holder = ""
        self._grant(now_ms)
        return True

    def _grant(self, now_ms: int) -> None:
        if not self.holder and self.queue:
            self.holder, self.token = self.queue.pop(0)
            self.renewed_ms = now_ms


@dataclass
class Store:
    """A value, and the highest token that was written with; without fencing it checks nothing."""

    value: str = "empty"
    highest_token: int = 32

    def write(self, value: str, token: int | None) -> bool:
        """Write, unless a higher token has been seen; return whether it was written."""
        if token is not None:
            if token < self.highest_token:
                return False
            self.highest_token = token
        self.value = value
        return True
