"""Two results for one job: the audit says who held the lock when, and what was refused.

The grants are in the replicated history; a refused write is in the log of the leader, under
``coordinator.audit``.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


class Told(logging.Handler):
    """Keeps what the members log; they run in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def clock(wall_ms: int | None) -> str:
    return datetime.fromtimestamp((wall_ms or 0) / 1000, UTC).strftime("%H:%M:%S")


def story(stage: Stage) -> None:
    told = Told()
    logging.getLogger("coordinator.audit").addHandler(told)
    try:
        two_results(stage)
    finally:
        logging.getLogger("coordinator.audit").removeHandler(told)
    stage.say("The leader's audit log:")
    for message in told.messages:
        stage.say(f"  {message}")


def two_results(stage: Stage) -> None:
    with (
        stage.connect("worker 1") as one,
        stage.connect("worker 2") as two,
        stage.connect("auditor") as auditor,
    ):
        auditor.create("/results/job-7", parents="persistent")
        first = Lock(one, "job-7", label="worker 1").acquire()
        stage.cluster.expire(one)  # it is paused for longer than its lease
        second = Lock(two, "job-7", label="worker 2").acquire()
        two.set("/results/job-7", b"42", if_held=second)
        try:
            one.set("/results/job-7", b"41", if_held=first)
            stage.say("BOTH WROTE")
        except LockLostError:
            stage.say("worker 1 wakes and writes 41: refused, it holds the lock no more")
        second.release()

        stage.say(f"The result is {auditor.get('/results/job-7').data.decode()}. The audit:")
        for each in auditor.grants("job-7"):
            until = f"until {clock(each.ended_ms)}, zxid {each.ended_zxid}: {each.how}"
            held = f"from {clock(each.granted_ms)}, zxid {each.granted_zxid}, {until}"
            stage.say(f"  {each.label}, token {each.fencing_token}, {held}")
        stage.command("why-lost", "job-7", first.grant_id)


if __name__ == "__main__":
    perform(story)
