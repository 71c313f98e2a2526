"""The daily report without waiting: who does not get the lock at once leaves, and exits 0."""

from __future__ import annotations

import threading

from coordinator.client import Client
from examples.stage import Stage, perform
from recipes import Lock


def report(stage: Stage, client: Client, node: str, both_tried: threading.Barrier) -> None:
    grant = Lock(client, "daily-report", label=node).try_acquire()
    both_tried.wait()
    if grant is None:
        stage.say(f"{node}: another node is processing")
        return
    stage.wait(1)
    client.create(f"/report-by-{node[-1]}", if_held=grant)
    stage.say(f"{node}: reported, and stored it with token {grant.fencing_token}")
    grant.release()


def story(stage: Stage) -> None:
    with stage.connect("node 1") as one, stage.connect("node 2") as two:
        both_tried = threading.Barrier(2)
        stage.together(
            lambda: report(stage, one, "node 1", both_tried),
            lambda: report(stage, two, "node 2", both_tried),
        )


if __name__ == "__main__":
    perform(story)
