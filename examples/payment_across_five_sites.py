"""A payment needs 3 of 5 sites: with two dead it goes through, with three it fails in time.

Without the lock there is no charge: an error from ``acquire`` means "not entered", always.
"""

from __future__ import annotations

from coordinator.client import Client
from coordinator.errors import LockTimeoutError, OutcomeUnknownError, UnavailableError
from coordinator.testing import local_cluster
from examples.stage import Stage, perform
from recipes import Lock

CHARGED: list[str] = []


def pay(client: Client, order: str) -> str:
    try:
        with Lock(client, f"order-{order}", timeout=1) as grant:
            CHARGED.append(f"{order}, token {grant.fencing_token}")  # the provider gets the token
            return "paid"
    except (LockTimeoutError, UnavailableError, OutcomeUnknownError) as error:
        return f"not paid, try later ({type(error).__name__})"


def story(stage: Stage) -> None:
    CHARGED.clear()
    with local_cluster(members=5) as sites, sites.connect(timeout=1) as client:
        stage.say(f"Five sites: {pay(client, 'A')}")
        sites.kill("1")
        sites.kill("2")
        stage.say(f"Two sites dead, three left: {pay(client, 'B')}")
        sites.kill("3")
        stage.say(f"Three sites dead, two left: {pay(client, 'C').partition(' (')[0]}")
        stage.say(f"Charged: {', '.join(each[0] for each in CHARGED)}. No endless wait, no charge.")


if __name__ == "__main__":
    perform(story)
