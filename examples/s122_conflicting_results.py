"""S122 Two results for one job: the audit says who held the lock when; one write was refused."""

from __future__ import annotations

from coordinator.errors import LockLostError
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
        two.set("/results/job-7", b"42", if_held=second)
        try:
            one.set("/results/job-7", b"41", if_held=first)
            stage.say("BOTH WROTE")
        except LockLostError:
            stage.say("worker 1 wakes and writes 41: refused, it holds the lock no more")
        second.release()

        stage.say(f"The result is {auditor.get('/results/job-7').data.decode()}. The audit:")
        for each in auditor.grants("job-7"):
            until = f"until zxid {each.ended_zxid}: {each.how}" if each.how else "still held"
            held = f"from zxid {each.granted_zxid} {until}"
            stage.say(f"  {each.label}, token {each.fencing_token}, {held}")
        stage.command("why-lost", "job-7", first.grant_id)


if __name__ == "__main__":
    perform(story)
