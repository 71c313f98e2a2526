"""The wall clock jumps, by NTP or by hand. A lease written as a time of day breaks; ours not.

First a lock as it is often built: an expiry as wall time, compared with one's own clock. Then the
same jumps on the real cluster: on its leader, on a follower, on the holder.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.errors import LockTimeoutError
from coordinator.recipes import Lock
from coordinator.testing import AdjustableClock
from examples.stage import Stage, perform

JUMPS_MS = (5_000, -10_000, 3_600_000, -7_200_000)


@dataclass
class WallClockLock:
    """Do not build this one: whoever's clock is ahead takes it from a living holder."""

    holder: str = ""
    expires_ms: int = 0

    def acquire(self, who: str, clock: AdjustableClock, lease_ms: int) -> bool:
        if self.holder and clock.wall_ms() < self.expires_ms:
            return False
        self.holder, self.expires_ms = who, clock.wall_ms() + lease_ms
        return True


def story(stage: Stage) -> None:
    lock, of_ada, of_bob = WallClockLock(), AdjustableClock(), AdjustableClock()
    lock.acquire("Ada", of_ada, lease_ms=5_000)
    of_bob.step_wall(6_000)
    stage.say("Expiry as wall time: Ada holds for 5 s; Bob's clock steps forward by 6 s.")
    stage.say(f"  Bob acquires at once: {lock.acquire('Bob', of_bob, 5_000)}. Two holders.")

    with stage.connect("Ada") as ada, stage.connect("Bob", timeout=5) as bob:
        grant = Lock(ada, "ledger").acquire()
        leader, follower = stage.cluster.leader, stage.cluster.followers[0]
        for who, name in ((leader, "the leader"), (follower, "a follower"), (ada, "the holder")):
            for by_ms in JUMPS_MS:
                stage.cluster.step_clock(who, by_ms)
                held = grant.is_held()
                try:
                    Lock(bob, "ledger").acquire(timeout=0)
                    stage.say(f"  {name} steps by {by_ms} ms: BOB GOT IT")
                except LockTimeoutError:
                    assert held.is_held
            stage.say(f"The clock of {name} steps forward and back: Ada holds, Bob is refused.")
        ada.create("/ledger", b"by Ada", if_held=grant)
        stage.say(f"Ada writes with token {grant.fencing_token}: a number, not a time.")


if __name__ == "__main__":
    perform(story)
