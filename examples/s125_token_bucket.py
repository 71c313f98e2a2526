"""S125 A rate limit for each user: a lock for each request throttles by itself; a bucket does not.

The bucket of a window is one znode, and its version counts what was taken: "take one if fewer than
the limit are taken" is one conditional write, which checks and takes in the same request. A lock
around reading, adding and writing is four requests, one after the other.

Where even one request is too many, each of N workers may take its share in chunks and hand it out
by itself; then up to N chunks can be out at once, so N times the chunk is how far the limit can be
overrun.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coordinator.client import Client
from coordinator.clock import SystemClock
from coordinator.errors import BadVersionError
from examples.stage import Stage, perform
from recipes import Lock

LIMIT, WORKERS, TRIES_EACH = 20, 4, 10


def take_under_lock(client: Client, user: str) -> bool:
    with Lock(client, f"limit-{user}", timeout=60) as grant:
        path = f"/limits/{user}"
        taken = int(client.get(path).data)
        if taken >= LIMIT:
            return False
        client.set(path, str(taken + 1).encode(), if_held=grant)
        return True


class Bucket:
    """One worker's view of a user's bucket; ``known`` is the version as it last heard of it."""

    def __init__(self, client: Client, path: str) -> None:
        self.client, self.path, self.known = client, path, 0

    def take(self) -> bool:
        while self.known < LIMIT:
            try:
                written = self.client.set(self.path, b"", expected_version=self.known)
            except BadVersionError as error:
                self.known = error.current_version  # somebody else took one: it says how many
            else:
                self.known = written.stat.version
                return True
        return False  # known without a request: it never becomes less in this window


def in_all(stage: Stage, ways: list[Callable[[], bool]]) -> int:
    """Let all try their way many times, at once; return how often they were let through."""

    def work(take: Callable[[], bool]) -> int:
        return sum(take() for _ in range(TRIES_EACH))

    return sum(stage.together(*[partial(work, take) for take in ways]))


def story(stage: Stage) -> None:
    clock = SystemClock()
    with stage.connect("api") as client:
        client.create("/limits/ada", b"0", parents="persistent")
        client.create("/limits/ada:2026-01-31T12:00", b"")

        began_ms = clock.monotonic_ms()
        let_through = in_all(stage, [partial(take_under_lock, client, "ada")] * WORKERS)
        locked_ms = clock.monotonic_ms() - began_ms
        stage.say(f"A lock for each request: {let_through} of {WORKERS * TRIES_EACH} let through.")

        began_ms = clock.monotonic_ms()
        buckets = [Bucket(client, "/limits/ada:2026-01-31T12:00") for _ in range(WORKERS)]
        let_through = in_all(stage, [each.take for each in buckets])
        bucket_ms = clock.monotonic_ms() - began_ms
        stage.say(f"A bucket: {let_through} of {WORKERS * TRIES_EACH} let through.")
        stage.say(f"Took {locked_ms} ms with locks, {bucket_ms} ms with the bucket, here and now.")


if __name__ == "__main__":
    perform(story)
