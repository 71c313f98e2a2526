"""The daily report without waiting: a node that finds another one at work exits at once, with 0."""

from __future__ import annotations

import threading

from coordinator.client import Client, Create
from coordinator.recipes import Job, Run
from examples.stage import Stage, perform


def report(stage: Stage, client: Client, node: str, both_tried: threading.Barrier) -> None:
    def work(run: Run[Client]) -> None:
        both_tried.wait()
        stage.wait(1)
        run.also(Create(f"/report-by-{node[-1]}"))

    reply = Job(client, "daily-report", every="1d", label=node).run(work)
    if reply.state == "busy":
        stage.say(f"{node}: another node is processing")
        both_tried.wait()
        return
    stage.say(f"{node}: reported, and stored it with token {reply.runs[0].fencing_token}")


def story(stage: Stage) -> None:
    with stage.connect("node 1") as one, stage.connect("node 2") as two:
        both_tried = threading.Barrier(2)
        stage.together(
            lambda: report(stage, one, "node 1", both_tried),
            lambda: report(stage, two, "node 2", both_tried),
        )


if __name__ == "__main__":
    perform(story)
