"""A lease of 10 s, 30 s of work: A comes late with its release, and must not free B's lock.

A release by the name of the lock frees whoever holds it now. Ours names the grant.
"""

from __future__ import annotations

import threading

from coordinator.recipes import Lock
from examples.stage import Stage, perform


class LockByName:
    """Do not build this one: it does not know whose release it gets."""

    def __init__(self) -> None:
        self.holder: str | None = None

    def release(self) -> None:
        self.holder = None


def story(stage: Stage) -> None:
    naive = LockByName()
    naive.holder = "B"  # A's lease had ended
    naive.release()  # A, at the end of its work
    stage.say(f"By name: A releases, and B's lock is gone; the holder is {naive.holder}.")

    with (
        stage.connect("A", lease=10) as a,
        stage.connect("B") as b,
        stage.connect("C") as c,
    ):
        of_a = Lock(a, "video", label="A").acquire()
        stage.cluster.freeze_heartbeats(a)
        of_b = Lock(b, "video", label="B", timeout=60).acquire()
        stage.say("A's lease has ended while it works; B holds.")
        waits = threading.Event()
        waiting = threading.Thread(
            target=lambda: Lock(c, "video", label="C", timeout=60).acquire(
                on_position=lambda position: waits.set()
            )
        )
        waiting.start()
        waits.wait(60)
        stage.say(f"A is done and releases: was it still A's? {of_a.release()}")
        view = b.lock("video")
        queue = [each.label for each in view.queue]
        stage.say(f"B holds: {of_b.is_held().is_held}. Waiting: {', '.join(queue)}.")
        b.create("/video", b"by B", if_held=of_b)  # A, with its token, would be refused
        of_b.release()
        waiting.join(60)
        stage.say("B is done: now C holds.")


if __name__ == "__main__":
    perform(story)
