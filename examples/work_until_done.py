"""A queue of mails: a worker dies before it has acknowledged one, and the mail comes again.

What is acknowledged never comes again. The mail of the worker that died goes to another one when
its session has ended, with a higher token: so a store refuses what the first one writes too late.
"""

from __future__ import annotations

from coordinator import Client
from coordinator.recipes import Delivery, WorkQueue
from examples.stage import Stage, perform


def expect(delivery: Delivery[Client] | None) -> Delivery[Client]:
    """Return a delivery that must have come."""
    assert delivery is not None, "nothing was delivered in time"
    return delivery


def story(stage: Stage) -> None:
    with (
        stage.connect("shop") as shop,
        stage.connect("worker 1", lease=5, timeout=2) as first,
        stage.connect("worker 2") as second,
    ):
        WorkQueue(shop, "mails").put(b"to Ann", b"to Bob", b"to Cy")
        stage.say("Three mails are put.")

        one, two = WorkQueue(first, "mails"), WorkQueue(second, "mails")
        done = expect(one.take(timeout=60))
        done.ack()
        stage.say(f"Worker 1 sends the mail {done.body.decode()}, and acknowledges it.")
        lost = expect(one.take(timeout=60))
        stage.say(f"It takes the one {lost.body.decode()}, token {lost.fencing_token}, and dies.")
        stage.cluster.cut_off(first)

        with expect(two.take(timeout=60)) as other:
            stage.say(f"Worker 2 sends the one {other.body.decode()}.")
        with expect(two.take(timeout=60)) as again:
            stage.say(
                f"When the session of worker 1 has ended, worker 2 gets the mail "
                f"{again.body.decode()}, attempt {again.attempt}, token {again.fencing_token}."
            )
            assert again.fencing_token > lost.fencing_token, "a later delivery, a higher token"
        left = two.stats()
        stage.say(f"Left: {left.ready + left.in_flight + left.delayed} mails, {left.dead} dead.")


if __name__ == "__main__":
    perform(story)
