"""A report for each day, exactly once: five nodes start at midnight, one late, one crashes.

The job's ledger says which days are done; the report is written in the same command. So a crash
leaves neither, the next node takes the run over, and who comes late finds the day done.
"""

from __future__ import annotations

import threading

from coordinator.client import Client, Create
from coordinator.errors import CoordinatorError
from coordinator.recipes import Job, Run
from examples.stage import Stage, perform

REPORTS = "/reports"
LATE_S = 20
"""By so much the last node comes late: long after the others are done."""


class CrashError(Exception):
    """The node dies in the midst of its work."""


def report(stage: Stage, client: Client, node: str, *, crashes: bool = False) -> str:
    def work(run: Run[Client]) -> None:
        stage.wait(2)
        if crashes:
            stage.cluster.cut_off(client)  # nothing comes from this node any more
            raise CrashError(node)
        run.also(Create(f"{REPORTS}/{run.interval}", f"by {node}".encode()))

    job = Job(client, "daily-report", every="1d", tz="Europe/Berlin", timeout=60, label=node)
    for run in job.run(work).runs:
        return f"{node}: reported, with token {run.fencing_token}, in attempt {run.attempt}"
    return f"{node}: it is done for today"


def story(stage: Stage) -> None:
    started = threading.Event()

    def node(name: str, *, late: float = 0.0, crashes: bool = False) -> str:
        with stage.connect(
            name, lease=5 if crashes else None, timeout=1 if crashes else 10
        ) as client:
            if not crashes:
                started.wait()
            stage.wait(late)
            try:
                if crashes:
                    client.session()
                    started.set()
                return report(stage, client, name, crashes=crashes)
            except CrashError:
                return f"{name}: crashed in the midst of it"
            except CoordinatorError as error:
                return f"{name}: {error.message}"

    with stage.connect("setup") as client:
        client.create(REPORTS)
        for told in stage.together(
            lambda: node("node 1", crashes=True),
            lambda: node("node 2", late=1),
            lambda: node("node 3", late=1),
            lambda: node("node 4", late=1),
            lambda: node(f"node 5, {LATE_S} s late", late=LATE_S),
        ):
            stage.say(told)
        reports = client.children(REPORTS).names
        stage.say(f"Reports of that day: {len(reports)}. Not twice, and not zero times.")
        stage.command("jobs")


if __name__ == "__main__":
    perform(story)
