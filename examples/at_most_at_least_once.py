"""Notifications: at most once or at least once? A crash shows what each of them costs.

A lock keeps two runs apart; it cannot make "send" and "mark as sent" one step. Which of them comes
first decides on which side a crash fails. A receiver that knows duplicates makes at
least once look like exactly once (ambiguous_payment).
"""

from __future__ import annotations

from coordinator.client import Client
from coordinator.errors import CoordinatorError
from examples.stage import Stage, perform
from recipes import Grant, Lock

SENT: list[str] = []


def at_most_once(client: Client, grant: Grant[Client], who: str, *, crashes: bool) -> None:
    client.create(f"/sent/{who}", if_held=grant)  # first the mark
    if crashes:
        raise RuntimeError("crash")
    SENT.append(who)


def at_least_once(client: Client, grant: Grant[Client], who: str, *, crashes: bool) -> None:
    SENT.append(who)  # first the deed
    if crashes:
        raise RuntimeError("crash")
    client.create(f"/sent/{who}", if_held=grant)


def run(client: Client, policy: object, who: str, *, crashes: bool) -> None:
    assert callable(policy)
    with Lock(client, "notifications") as grant:
        if client.exists(f"/sent/{who}") is None:
            policy(client, grant, who, crashes=crashes)


def story(stage: Stage) -> None:
    with stage.connect("notifier") as client:
        client.create("/sent")
        for policy in (at_most_once, at_least_once):
            SENT.clear()
            for who, crashes in (("quiet night", False), ("bad night", True)):
                name = f"{policy.__name__} {who}".replace(" ", "-")
                try:
                    run(client, policy, name, crashes=crashes)
                except (RuntimeError, CoordinatorError):
                    stage.say(f"  {policy.__name__}: crashed between the deed and the mark")
                run(client, policy, name, crashes=False)  # the next run, after the restart
                stage.say(f"{policy.__name__}, {who}: sent {SENT.count(name)} times")


if __name__ == "__main__":
    perform(story)
