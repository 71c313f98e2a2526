"""S129 A payment is tried again after a crash: was it charged? A record in two steps knows.

"started" is written before the charge and "done", with the result, after it. The provider is given
the record's key each time, so a charge that was made already is found and not made again.
"""

from __future__ import annotations

from coordinator.client import Client, Create, SetData
from coordinator.errors import NoNodeError
from examples.stage import Stage, perform
from recipes import Lock


class Provider:
    """Charges once for each key, and says what it did (as payment providers do)."""

    def __init__(self) -> None:
        self.charges: dict[str, str] = {}

    def charge(self, key: str) -> str:
        return self.charges.setdefault(key, f"receipt {len(self.charges) + 1}")


class CrashError(Exception):
    """The process dies here."""


def pay(client: Client, provider: Provider, key: str, *, crash: str = "") -> str:
    path = f"/payments/{key}"
    with Lock(client, f"payment-{key}") as grant:
        try:
            record = client.get(path).data
        except NoNodeError:
            record = b""
        if record.startswith(b"done "):
            return record.removeprefix(b"done ").decode()
        if not record:
            client.multi([grant.condition(), Create(path, b"started")])
        if crash == "after the mark":
            raise CrashError
        receipt = provider.charge(key)
        if crash == "after the charge":
            raise CrashError
        client.multi([grant.condition(), SetData(path, f"done {receipt}".encode())])
        return receipt


def story(stage: Stage) -> None:
    with stage.connect("shop") as client:
        client.create("/payments")
        done: set[str] = set()
        stage.say('With one mark, "processed", set before the charge:')
        done.add("order-0")  # and here it crashes
        stage.say(f"  the retry sees the mark: charged {int('order-0' not in done)} times. Lost.")

        stage.say('With two steps, "started" and "done":')
        for number, crash in enumerate(("", "after the mark", "after the charge"), 1):
            provider, key = Provider(), f"order-{number}"
            try:
                pay(client, provider, key, crash=crash)
            except CrashError:
                pass
            receipt = pay(client, provider, key)  # the retry
            again = pay(client, provider, key)  # and one too many
            assert receipt == again
            stage.say(f"  crash {crash or 'nowhere'}: charged {len(provider.charges)} time")


if __name__ == "__main__":
    perform(story)
