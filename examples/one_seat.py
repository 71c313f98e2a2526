"""Two people want seat 1A. Checking before booking sells it twice; under a lock it does not.

Who gets the lock second looks again, because what it knew before it waited is the past.
"""

from __future__ import annotations

import threading

from coordinator.client import Client
from coordinator.recipes import Lock
from examples.stage import Stage, perform


def book_unlocked(client: Client, who: str, both_saw_it_free: threading.Barrier) -> str:
    if client.get("/seats/1A").data == b"free":
        both_saw_it_free.wait()
        client.set("/seats/1A", who.encode())
        return f"{who} has a ticket for 1A"
    return f"{who} is told: sold out"


def book(client: Client, who: str) -> str:
    with Lock(client, "seat-1A", label=who) as grant:
        if client.get("/seats/1A").data != b"free":
            return f"{who} is told: sold out"
        client.set("/seats/1A", who.encode(), if_held=grant)
        return f"{who} has a ticket for 1A, booked with token {grant.fencing_token}"


def story(stage: Stage) -> None:
    with stage.connect("Ada") as ada, stage.connect("Bob") as bob:
        ada.create("/seats/1A", b"free", parents="persistent")
        barrier = threading.Barrier(2)
        stage.say("Check, then book:")
        for told in stage.together(
            lambda: book_unlocked(ada, "Ada", barrier), lambda: book_unlocked(bob, "Bob", barrier)
        ):
            stage.say(f"  {told}")
        stage.say("  Two tickets, one seat.")

        ada.set("/seats/1A", b"free")
        stage.say("Check and book under the seat's lock:")
        told_all = stage.together(lambda: book(ada, "Ada"), lambda: book(bob, "Bob"))
        for told in told_all:
            stage.say(f"  {told}")
        sold = sum("ticket" in told for told in told_all)
        stage.say(f"  {sold} ticket, one seat.")


if __name__ == "__main__":
    perform(story)
