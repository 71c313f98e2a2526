"""A unit of work from a stream comes twice. The mark that it is done can be made only once.

Result and mark are one write, on the condition that there is no mark yet: the second worker is
refused as a whole, sees why, and goes on with the next unit. No lock is needed.
"""

from __future__ import annotations

import threading

from coordinator.client import Client, Create, SetData
from coordinator.errors import NodeExistsError
from examples.stage import Stage, perform


def add(client: Client, unit: str, amount: int, both_have_looked: threading.Barrier) -> str:
    total = client.get("/total")
    both_have_looked.wait()
    added = str(int(total.data) + amount).encode()
    try:
        client.multi([Create(f"/done/{unit}"), SetData("/total", added, total.stat.version)])
    except NodeExistsError:
        return f"{unit} is marked as done already: skipped"
    return f"{unit} is added"


def story(stage: Stage) -> None:
    with stage.connect("worker 1") as one, stage.connect("worker 2") as two:
        one.create("/total", b"0")
        one.create("/done")
        barrier = threading.Barrier(2)
        for told in sorted(
            stage.together(
                lambda: add(one, "unit 7", 40, barrier), lambda: add(two, "unit 7", 40, barrier)
            )
        ):
            stage.say(told)
        stage.say(f"Delivered twice, the total is {one.get('/total').data.decode()}.")


if __name__ == "__main__":
    perform(story)
