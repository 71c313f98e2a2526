"""The holder is cut off and cannot release: the others wait for its lease, not for ever."""

from __future__ import annotations

from coordinator.errors import CoordinatorError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with (
        stage.connect("holder", lease=5, timeout=0.5) as holder,
        stage.connect("waiter") as waiter,
    ):
        lock = Lock(holder, "warehouse")
        grant = lock.acquire()
        stage.cluster.cut_off(holder)
        try:
            lock.release()
        except CoordinatorError as error:
            stage.say(f"The holder cannot release: {error.code}. It does not count as released.")
        following = Lock(waiter, "warehouse", timeout=60).acquire()
        stage.say(f"The waiter goes on when the lease has ended, token {following.fencing_token}.")
        assert following.fencing_token > grant.fencing_token
        stage.say(f"The old holder knows by its own clock: lost = {grant.is_lost}.")


if __name__ == "__main__":
    perform(story)
