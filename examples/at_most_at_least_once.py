"""Notifications: at most once or at least once? A crash shows what each of them costs.

A job keeps two runs apart; it cannot make "send" and "mark as sent" one step. What it does about a
run that has not come to its end decides on which side a crash fails. A receiver that knows
duplicates by ``run.key`` makes at least once look like exactly once (ambiguous_payment).
"""

from __future__ import annotations

from coordinator.client import Client
from coordinator.recipes import Job, Jobs, Run
from coordinator.recipes.job import Guarantee
from examples.stage import Stage, perform


class CrashError(BaseException):
    """The process dies here: nothing is recorded of it, as of Ctrl-C."""


def notify(client: Client, guarantee: Guarantee, night: str, sent: list[str], crash: str) -> str:
    def work(run: Run[Client]) -> None:
        if crash == "before":
            raise CrashError
        sent.append(run.key)
        if crash == "after":
            raise CrashError

    job = Job(client, f"{guarantee}, {night}", every="1d", guarantee=guarantee)
    try:
        return job.run(work).state
    except CrashError:
        return "crashed"


def story(stage: Stage) -> None:
    crashes: tuple[tuple[Guarantee, str], ...]
    crashes = (("at_most_once", "before"), ("at_least_once", "after"))
    with stage.connect("notifier") as client:
        for guarantee, moment in crashes:
            for night, crash in (("quiet night", ""), ("bad night", moment)):
                sent: list[str] = []
                if notify(client, guarantee, night, sent, crash) == "crashed":
                    stage.say(f"  {guarantee}: crashed {crash} sending")
                notify(client, guarantee, night, sent, "")  # the next run, after the restart
                stage.say(f"{guarantee}, {night}: sent {len(sent)} times")
        for view in Jobs(client).list():
            stage.say(f"{view.name}: {view.trouble or 'no trouble'}")


if __name__ == "__main__":
    perform(story)
