"""A session of 2 s, a partition of 3 s: the holder learns "expired", never "still held"."""

from __future__ import annotations

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with (
        stage.connect("old", lease=2, timeout=2) as old,
        stage.connect("next") as following,
    ):
        grant = Lock(old, "shard-7").acquire()
        stage.say(f"old holds with token {grant.fencing_token}; its session lasts 2 s")
        with stage.cluster.cut_off(old):
            stage.say("old is cut off for 3 s")
            after = Lock(following, "shard-7", timeout=60).acquire()
            stage.say("its session has ended at the cluster: next holds")
            stage.wait(1)
        assert after.fencing_token > grant.fencing_token
        try:
            grant.verify()
            stage.say("old is told: STILL HELD")
        except LockLostError as error:
            stage.say(
                f"old, connected again, is told that it lost the lock: {type(error).__name__}"
            )
        view = old.lock("shard-7", fencing_token=grant.fencing_token)
        stage.say(f"old asks whether token {grant.fencing_token} is current: {view.is_current}")


if __name__ == "__main__":
    perform(story)
