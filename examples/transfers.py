"""Transfers from A to B and from B to A at the same time: both locks at once, without deadlock."""

from __future__ import annotations

from coordinator.client import Client, SetData
from coordinator.recipes import MultiLock
from examples.stage import Stage, perform

TRANSFERS = 5


def transfer(client: Client, source: str, target: str, amount: int) -> None:
    with MultiLock(client, source, target, timeout=60) as (of_source, of_target):
        left = int(client.get(f"/accounts/{source}").data) - amount
        there = int(client.get(f"/accounts/{target}").data) + amount
        client.multi(
            [
                SetData(f"/accounts/{source}", str(left).encode()),
                SetData(f"/accounts/{target}", str(there).encode()),
            ],
            if_held=[of_source, of_target],
        )


def story(stage: Stage) -> None:
    with stage.connect("bank 1") as one, stage.connect("bank 2") as two:
        one.create("/accounts/A", b"100", parents="persistent")
        one.create("/accounts/B", b"100")

        def many(client: Client, source: str, target: str) -> None:
            for _ in range(TRANSFERS):
                transfer(client, source, target, 10)

        stage.together(lambda: many(one, "A", "B"), lambda: many(two, "B", "A"))
        a, b = (int(one.get(f"/accounts/{name}").data) for name in "AB")
        stage.say(f"{TRANSFERS} transfers each way, at the same time: all are done.")
        stage.say(
            f"A has {a}, B has {b}, together {a + b}: nothing was lost, nobody waited for ever."
        )


if __name__ == "__main__":
    perform(story)
