"""A holds 1 and wants 2, B holds 2 and wants 1: the second request is refused, both continue.

The cluster sees who waits for whom. Without that, both wait until they give up.
"""

from __future__ import annotations

import threading

from coordinator.client import Client
from coordinator.errors import DeadlockError, LockTimeoutError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def both(
    stage: Stage,
    client: Client,
    who: str,
    locks: tuple[str, str],
    first_is_had: threading.Barrier,
    *,
    owner: str | None = None,
) -> bool:
    """Take two locks one after the other, as programs do that know nothing of each other."""
    timeout = max(1.0, stage.seconds(10))
    with Lock(client, locks[0], label=who, owner=owner, timeout=timeout):
        first_is_had.wait()
        try:
            with Lock(client, locks[1], label=who, owner=owner, timeout=timeout) as second:
                stage.say(f"  {who} has both, and writes with token {second.fencing_token}")
                return True
        except LockTimeoutError:
            stage.say(f"  {who} waited in vain")
        except DeadlockError as error:
            holds = ", ".join(each["holds"] for each in error.cycle)
            stage.say(f"  {who} is told of a circle of {len(error.cycle)} over {holds}: gives way")
        return False


def story(stage: Stage) -> None:
    with stage.connect("A") as a, stage.connect("B") as b:
        barrier = threading.Barrier(2)
        stage.say('Nobody says on whose behalf it asks (owner=""), so nobody can see the circle:')
        stage.together(
            lambda: both(stage, a, "A", ("old-1", "old-2"), barrier, owner=""),
            lambda: both(stage, b, "B", ("old-2", "old-1"), barrier, owner=""),
        )
        stage.say("As it is by default, each thread or task is an owner:")
        had = stage.together(
            lambda: both(stage, a, "A", ("1", "2"), barrier),
            lambda: both(stage, b, "B", ("2", "1"), barrier),
        )
        stage.say(f"{sum(had)} of 2 went through at once; the other one may begin again.")


if __name__ == "__main__":
    perform(story)
