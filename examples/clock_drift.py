"""Clocks that run 1 % fast or slow: the holder still stops before anybody else may begin.

The client counts its lease from when it sent the heartbeat, and takes a margin off for the drift.
Far beyond 1 % no margin helps, and the holder believes too long: then only the token protects data.
"""

from __future__ import annotations

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def still_believes(stage: Stage, rate: float) -> bool:
    """Return whether the holder believes to hold when the next one has just been granted."""
    with stage.connect("holder", lease=5) as holder, stage.connect("next") as following:
        stage.cluster.set_clock_rate(holder, rate)
        grant = Lock(holder, f"drift-{rate}").acquire()
        stage.cluster.freeze_heartbeats(holder)
        after = Lock(following, f"drift-{rate}", timeout=60).acquire()
        still_believes = not grant.is_lost
        following.create(f"/drift-{rate}", b"by next", if_held=after)
        try:
            holder.set(f"/drift-{rate}", b"by holder", if_held=grant)
            stage.say("WRITTEN WITH AN OLD TOKEN")
        except LockLostError:
            return still_believes
    raise AssertionError("the late write was taken")


def story(stage: Stage) -> None:
    for rate in (0.99, 1.01):
        order = "only after" if still_believes(stage, rate) else "before"
        stage.say(f"The holder's clock at {rate}: it stops {order} the next one is granted.")
    order = "only after" if still_believes(stage, 0.25) else "before"
    stage.say(f"At 0.25, far beyond the margin: it stops {order} the next one is granted.")
    stage.say("Each time its late write was refused by its token, whatever it believed.")


if __name__ == "__main__":
    perform(story)
