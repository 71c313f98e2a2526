"""2:47 AM: two workers see the same pending job. Without a lock both run it; with a lock one does.

The claim is a lock for the job; "done" is written only if the claim still holds in that very write.
"""

from __future__ import annotations

import threading

from coordinator.client import Client
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def work_without_claim(client: Client, job: str, everybody_looked: threading.Barrier) -> bool:
    if client.get(job).data != b"pending":
        return False
    everybody_looked.wait()  # as it happens at 2:47 AM
    client.set(job, b"done")
    return True


def work_with_claim(stage: Stage, client: Client, name: str, job: str) -> bool:
    claim = job.strip("/")  # a lock's name is no path
    grant = Lock(client, claim, label=name).try_acquire()
    if grant is None:
        holder = client.lock(claim).holder
        stage.say(f"  {name}: {holder.label if holder else 'somebody'} has it, I take another job")
        return False
    if client.get(job).data != b"pending":
        grant.release()
        stage.say(f"  {name}: it was done before I came")
        return False
    stage.wait(1)
    client.set(job, b"done", if_held=grant)  # only while the claim holds
    grant.release()
    stage.say(f"  {name}: done, with token {grant.fencing_token}")
    return True


def story(stage: Stage) -> None:
    with stage.connect("worker 1") as one, stage.connect("worker 2") as two:
        one.create("/jobs/41", b"pending", parents="persistent")
        one.create("/jobs/42", b"pending")
        everybody_looked = threading.Barrier(2)
        ran = stage.together(
            lambda: work_without_claim(one, "/jobs/41", everybody_looked),
            lambda: work_without_claim(two, "/jobs/41", everybody_looked),
        )
        stage.say(f"Looking, then running: job 41 ran {sum(ran)} times.")

        ran = stage.together(
            lambda: work_with_claim(stage, one, "worker 1", "/jobs/42"),
            lambda: work_with_claim(stage, two, "worker 2", "/jobs/42"),
        )
        stage.say(f"Claiming it first: job 42 ran {sum(ran)} time.")


if __name__ == "__main__":
    perform(story)
