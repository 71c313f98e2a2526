"""A lock and, under it, idempotency: each catches what the other one lets through.

The lock keeps two from working at the same time, and the work from being done in vain. It cannot
undo what a holder did that was lost before it could say so: the next holder would charge again.
``Once`` can: it finds the first one's record, or asks the provider with the same key.
"""

from __future__ import annotations

from collections import Counter

from coordinator.client import Client
from coordinator.errors import LockLostError
from coordinator.recipes import Lock
from coordinator.recipes.once import Attempt, Once
from examples.stage import Stage, perform


class Provider:
    """Knows the keys of its charges, as payment providers do; counts what it was asked."""

    def __init__(self) -> None:
        self.charged: dict[str, int] = {}
        self.asked: Counter[str] = Counter()

    def charge(self, key: str, amount: int) -> str:
        self.asked[key] += 1
        self.charged.setdefault(key, amount)
        return f"receipt of {key}"


def settle(stage: Stage, client: Client, provider: Provider, order: str, *, is_lost: bool) -> str:
    """Charge one order, under the lock of its account."""

    def charge(attempt: Attempt) -> str:
        receipt = provider.charge(attempt.key, 17)
        if is_lost:  # paused here for longer than its lease: charged, and nobody knows
            stage.cluster.expire(client)
        return receipt

    with Lock(client, "account-ada", timeout=60) as grant:
        receipt = str(Once(client).run(order, charge).result)
        client.set("/accounts/ada", receipt.encode(), if_held=grant)
        return receipt


def story(stage: Stage) -> None:
    provider = Provider()
    with stage.connect("worker 1") as one, stage.connect("worker 2") as two:
        one.create("/accounts/ada", parents="persistent")
        try:
            settle(stage, one, provider, "order-1", is_lost=True)
            stage.say("WORKER 1 BOOKED IT")
        except LockLostError:
            stage.say("Worker 1 charged, lost the lock, and was refused: it booked nothing.")
        receipt = settle(stage, two, provider, "order-1", is_lost=False)
        stage.say(f"Worker 2 holds the lock now, does it again, and books: {receipt}")
        again = settle(stage, two, provider, "order-1", is_lost=False)
        assert again == receipt
    asked, charged = provider.asked["order-1"], len(provider.charged)
    stage.say(f"The provider was asked {asked} times and charged {charged} time.")


if __name__ == "__main__":
    perform(story)
