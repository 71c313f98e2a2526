"""S117 Half a second under a lock and fifty who want it: the last one waits for 25 seconds."""

from __future__ import annotations

from coordinator.client import Client
from examples.stage import Stage, perform
from recipes import Lock

WAITERS, HOLD_S = 50, 0.5


def story(stage: Stage) -> None:
    with stage.connect("workers", lease=60) as client:

        def one_of_them(client: Client = client) -> None:
            with Lock(client, "checkout", timeout=max(60, stage.seconds(60))):
                stage.wait(HOLD_S)  # the work; it writes with the grant's token

        stage.together(*[one_of_them] * WAITERS)

        view = client.lock("checkout")
        assert view.waits is not None
        assert view.holds is not None
        stage.say(f"{view.holds.count} grants. Held for {view.holds.p50_ms} ms (p50).")
        stage.say(f"Waited for {view.waits.p50_ms} ms (p50), {view.waits.p99_ms} ms (p99).")
        if view.waits.p99_ms > 10 * view.holds.p50_ms:
            stage.say("The wait dominates: the lock is the bottleneck, not the work under it.")
        stage.say("Holding it for less, or locking something smaller (S128), shortens every wait.")


if __name__ == "__main__":
    perform(story)
