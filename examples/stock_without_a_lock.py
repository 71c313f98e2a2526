"""A stock that may not fall below zero: a conditional write is enough, and cheaper than a lock."""

from __future__ import annotations

import threading

from coordinator.client import Client
from examples.stage import Stage, perform

STOCK, BUYERS = 5, 8


class SoldOutError(Exception):
    """Nothing is left."""


def one_less(data: bytes) -> bytes:
    left = int(data)
    if left == 0:
        raise SoldOutError
    return str(left - 1).encode()


def buy(client: Client) -> bool:
    try:
        client.update("/stock", one_less, max_retries=100)  # read, compute, write if unchanged
    except SoldOutError:
        return False
    return True


def buy_carelessly(client: Client, everybody_looked: threading.Barrier) -> bool:
    left = int(client.get("/stock").data)
    everybody_looked.wait()
    client.set("/stock", str(left - 1).encode())
    return True


def story(stage: Stage) -> None:
    with stage.connect("shop") as client:
        client.create("/stock", str(STOCK).encode())
        barrier = threading.Barrier(BUYERS)
        sold = sum(stage.together(*[lambda: buy_carelessly(client, barrier)] * BUYERS))
        left = client.get("/stock").data.decode()
        stage.say(f"Read, then write: {sold} sold of {STOCK}, and the book says {left} are left.")

        client.set("/stock", str(STOCK).encode())
        sold = sum(stage.together(*[lambda: buy(client)] * BUYERS))
        left = client.get("/stock").data.decode()
        stage.say(
            f"Write only if unchanged: {sold} sold of {STOCK}, {left} left, the rest refused."
        )


if __name__ == "__main__":
    perform(story)
