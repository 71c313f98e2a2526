"""Half a second under a lock, and fifty clients: the last one waits for 25 seconds.

It is not slow work, it is a queue. ``coordinator diagnose`` says so from the history of the grants.
"""

from __future__ import annotations

from coordinator.client import Client
from coordinator.recipes import Lock
from examples.stage import Stage, perform

WAITERS, HOLD_S = 50, 0.5


def story(stage: Stage) -> None:
    with stage.connect("workers") as client:
        client.create("/checkout")

        def one_of_them(client: Client = client) -> None:
            with Lock(client, "checkout", timeout=max(60, stage.seconds(60))) as grant:
                stage.wait(HOLD_S)  # the work
                client.set("/checkout", b"one more", if_held=grant)

        stage.together(*[one_of_them] * WAITERS)

        stage.command("diagnose", "checkout")


if __name__ == "__main__":
    perform(story)
