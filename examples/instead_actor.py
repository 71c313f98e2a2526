"""Instead of a lock: an actor. One elected owner works off a mailbox; all others write to that.

There is nothing to lock, because nobody else touches the account. The owner takes a message out and
writes what follows from it in one step, and only while it is elected: who was replaced is refused.
"""

from __future__ import annotations

from functools import partial

from coordinator.client import Client, Delete, SetData
from coordinator.errors import LockLostError
from coordinator.recipes import Election, Grant
from examples.stage import Stage, perform


def deposit(client: Client, amount: int) -> None:
    client.create("/mailbox/m-", str(amount).encode(), mode="persistent_sequential")


def work_one_off(client: Client, leadership: Grant[Client]) -> bool:
    """Work off the oldest message; False when there is none."""
    names = client.children("/mailbox", limit=1).names
    if not names:
        return False
    message = f"/mailbox/{names[0]}"
    balance = int(client.get("/account").data) + int(client.get(message).data)
    deposited = SetData("/account", str(balance).encode())
    client.multi([deposited, Delete(message)], if_held=leadership)
    return True


def story(stage: Stage) -> None:
    with stage.connect("first") as first, stage.connect("second") as second:
        first.create("/account", b"0")
        first.create("/mailbox")
        stage.together(*[partial(deposit, second, 10) for _ in range(6)])
        stage.say("Six deposits of 10, written at once by whoever; the owner works them off.")
        old = Election(first, "account-owner").campaign()
        work_one_off(first, old)
        stage.cluster.expire(first)  # the owner is replaced, and does not know
        new = Election(second, "account-owner").campaign(timeout=60)
        try:
            work_one_off(first, old)
            stage.say("THE OLD OWNER WROTE")
        except LockLostError:
            stage.say("The old owner is refused; the new one goes on where it stopped.")
        while work_one_off(second, new):
            pass
        stage.say(f"The account has {second.get('/account').data.decode()}.")


if __name__ == "__main__":
    perform(story)
