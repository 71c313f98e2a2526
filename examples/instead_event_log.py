"""Instead of a lock: an event log. All clients append, and none waits for another.

What is true is what follows from all events in their order. Two who say things that do not go
together are both in the log, and the order decides, for every reader alike.
"""

from __future__ import annotations

from functools import partial

from coordinator.client import Client
from examples.stage import Stage, perform

SEATS = ("1A", "1B")


def ask_for(client: Client, seat: str, who: str) -> None:
    client.create("/events/e-", f"{seat} {who}".encode(), mode="persistent_sequential")


def who_sits_where(client: Client) -> dict[str, str]:
    """Fold the log: the first who asked for a seat has it."""
    plan: dict[str, str] = {}
    for name in client.children("/events").names:
        seat, _, who = client.get(f"/events/{name}").data.decode().partition(" ")
        plan.setdefault(seat, who)
    return plan


def story(stage: Stage) -> None:
    with stage.connect("Ada") as ada, stage.connect("Bob") as bob:
        ada.create("/events")
        stage.together(
            *[partial(ask_for, ada, seat, "Ada") for seat in SEATS],
            *[partial(ask_for, bob, seat, "Bob") for seat in SEATS],
        )
        seen_by_ada, seen_by_bob = who_sits_where(ada), who_sits_where(bob)
        stage.say(f"Asked four times at once; nobody waited. {len(seen_by_ada)} seats are given.")
        stage.say(f"Both read the same plan from the log: {seen_by_ada == seen_by_bob}")


if __name__ == "__main__":
    perform(story)
