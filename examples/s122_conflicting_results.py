"""S122 Two results for one job: the audit says who held the lock when; one write was refused."""

from __future__ import annotations

from coordinator.client import SetData
from coordinator.errors import CoordinatorError
from examples.stage import Stage, perform
from recipes import Lock


def story(stage: Stage) -> None:
    with (
        stage.connect("worker 1") as one,
        stage.connect("worker 2") as two,
        stage.connect("auditor") as auditor,
    ):
        auditor.create("/results/job-7", parents="persistent")
        first = Lock(one, "job-7", label="worker 1").acquire()
        stage.cluster.expire(one)  # it is paused for longer than its lease
        second = Lock(two, "job-7", label="worker 2").acquire()
        two.multi([second.condition(), SetData("/results/job-7", b"42")])
        try:
            one.multi([first.condition(), SetData("/results/job-7", b"41")])
            stage.say("BOTH WROTE")
        except CoordinatorError as error:
            stage.say(f"worker 1 wakes and writes 41: refused, {error.code}")
        second.release()

        stage.say(f"The result is {auditor.get('/results/job-7').data.decode()}. The audit:")
        for each in auditor.grants("job-7"):
            until = f"until zxid {each.ended_zxid}: {each.how}" if each.how else "still held"
            held = f"from zxid {each.granted_zxid} {until}"
            stage.say(f"  {each.label}, token {each.fencing_token}, {held}")


if __name__ == "__main__":
    perform(story)
