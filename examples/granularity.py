"""One lock for the table or one for each record? Work on different records need not wait."""

from __future__ import annotations

import threading
from functools import partial

from coordinator.recipes import Lock
from examples.stage import Stage, perform

RECORDS = 8


class Crowd:
    """Counts how many work at the same time."""

    def __init__(self) -> None:
        self.guard, self.now, self.most = threading.Lock(), 0, 0

    def __enter__(self) -> None:
        with self.guard:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *_: object) -> None:
        with self.guard:
            self.now -= 1


def story(stage: Stage) -> None:
    with stage.connect("workers") as client:
        for record in range(RECORDS):
            client.create(f"/orders/{record}", parents="persistent")

        def work(lock: str, record: int, crowd: Crowd) -> None:
            with Lock(client, lock, timeout=60) as grant, crowd:
                stage.wait(2)  # the work on one record
                client.set(f"/orders/{record}", b"packed", if_held=grant)

        for what, locks in (
            ("one lock for the table", ["orders"] * RECORDS),
            ("one lock for each record", [f"orders/{record}" for record in range(RECORDS)]),
        ):
            crowd = Crowd()
            stage.together(
                *[partial(work, lock, record, crowd) for record, lock in enumerate(locks)]
            )
            waits = [client.lock(lock).waits for lock in locks]
            longest_ms = max(each.p99_ms for each in waits if each is not None)
            stage.say(f"{what}: {crowd.most} at work at most, longest wait {longest_ms} ms")


if __name__ == "__main__":
    perform(story)
