"""A rate limit for each user: a lock for each request throttles by itself; a bucket does not.

A lock around reading, adding and writing is four requests, one after the other. The bucket looks
and takes in one. Where even that is too much, a worker takes a chunk and hands it out by itself:
with N workers up to N chunks can be out at once, which is how far the limit can then be overrun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from coordinator.client import Client
from coordinator.clock import SystemClock
from coordinator.recipes import Lock, TokenBucket
from examples.stage import Stage, perform

LIMIT, WORKERS, TRIES_EACH = 20, 4, 10


def take_under_lock(client: Client) -> bool:
    with Lock(client, "limit-ada", timeout=60) as grant:
        taken = int(client.get("/limits/ada").data)
        if taken >= LIMIT:
            return False
        client.set("/limits/ada", str(taken + 1).encode(), if_held=grant)
        return True


def in_all(stage: Stage, ways: Sequence[Callable[[], bool]]) -> int:
    """Let all try their way many times, at once; return how often they were let through."""

    def work(take: Callable[[], bool]) -> int:
        return sum(take() for _ in range(TRIES_EACH))

    return sum(stage.together(*[partial(work, take) for take in ways]))


def story(stage: Stage) -> None:
    clock = SystemClock()
    with stage.connect("api") as client:
        client.create("/limits/ada", b"0", parents="persistent")
        of_ada = [TokenBucket(client, "ada", rate=0.001, burst=LIMIT) for _ in range(WORKERS)]
        for what, ways in (
            ("A lock for each request", [partial(take_under_lock, client)] * WORKERS),
            ("A bucket", [each.take for each in of_ada]),
        ):
            let_through = in_all(stage, ways)
            stage.say(f"{what}: {let_through} of {WORKERS * TRIES_EACH} let through.")

        client.set("/limits/ada", b"0")
        of_bob = TokenBucket(client, "bob", rate=0.001, burst=LIMIT)
        for what, take in (("lock", partial(take_under_lock, client)), ("bucket", of_bob.take)):
            began_ms = clock.monotonic_ms()
            for _ in range(LIMIT):
                take()
            stage.say(f"One after the other, with a {what}: {clock.monotonic_ms() - began_ms} ms.")


if __name__ == "__main__":
    perform(story)
