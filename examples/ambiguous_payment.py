"""A payment is tried again after a crash: was it charged? A record in two steps knows.

"started" is written before the charge and "done", with its receipt, after it. The provider is given
the payment's key each time, so a charge that was made already is found and not made again.
"""

from __future__ import annotations

from coordinator.client import Client
from coordinator.recipes.once import Attempt, Once
from examples.stage import Stage, perform


class Provider:
    """Charges once for each key, and says what it did (as payment providers do)."""

    def __init__(self) -> None:
        self.charges: dict[str, str] = {}

    def charge(self, key: str) -> str:
        return self.charges.setdefault(key, f"receipt {len(self.charges) + 1}")


class CrashError(Exception):
    """The process dies here."""


def pay(client: Client, provider: Provider, order: str, *, crash: str = "") -> str:
    def charge(attempt: Attempt) -> str:  # "started" has been written
        if crash == "after the mark":
            raise CrashError
        receipt = provider.charge(attempt.key)
        if crash == "after the charge":
            raise CrashError
        return receipt  # and is written as "done"

    return str(Once(client).run(order, charge).result)


def story(stage: Stage) -> None:
    with stage.connect("shop") as client:
        processed: set[str] = set()
        stage.say('With one mark, "processed", set before the charge:')
        processed.add("order-0")  # and here it crashes
        charged = int("order-0" not in processed)
        stage.say(f"  the retry sees the mark: charged {charged} times. The payment is lost.")

        stage.say('With two steps, "started" and "done":')
        for number, crash in enumerate(("", "after the mark", "after the charge"), 1):
            provider, order = Provider(), f"order-{number}"
            try:
                pay(client, provider, order, crash=crash)
            except CrashError:
                pass  # the customer tries again
            receipt = pay(client, provider, order)
            assert pay(client, provider, order) == receipt, "and one try too many"
            stage.say(f"  crash {crash or 'nowhere'}: charged {len(provider.charges)} time")


if __name__ == "__main__":
    perform(story)
