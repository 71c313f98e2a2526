"""The kept order of long queues decides exactly as the recipe does over all names."""

from __future__ import annotations

import random

import pytest

from coordinator.service.order import Order
from coordinator.service.replica import MachineReplica
from coordinator.state.codec import encode_command
from coordinator.state.commands import Command, Create, CreateMode, Delete, Operation
from coordinator.state.machine import StateMachine
from recipes.contention import holder, standing


class Queue:
    """One queue whose contenders come and go."""

    def __init__(self) -> None:
        self.replica = MachineReplica(StateMachine())
        self.order = Order(self.replica)
        self.replica.add_listener(self.order)
        self._index = 0
        self.do(Create("/q"))

    def do(self, operation: Operation) -> None:
        self._index += 1
        command = Command(operation, wall_ms=0)
        outcome = self.replica.apply(self._index, 1, encode_command(command))
        outcome.unwrap()

    @property
    def names(self) -> list[str]:
        return self.replica.machine.children("/q") or []


@pytest.mark.parametrize("seed", range(5))
def test_the_kept_order_agrees_with_the_recipe(seed: int) -> None:
    """Through growth, departures anywhere, names of other recipes and names without a number."""
    chosen, queue = random.Random(seed), Queue()
    queue.do(Create("/q/README"))
    for _ in range(400):
        if chosen.random() < (0.8 if len(queue.names) < 60 else 0.35) or len(queue.names) < 2:
            prefix = chosen.choice(["lock-", "guid-", "a-"])
            queue.do(Create(f"/q/{prefix}", mode=CreateMode.PERSISTENT_SEQUENTIAL))
        else:
            gone = chosen.choice([each for each in queue.names if each != "README"])
            queue.do(Delete(f"/q/{gone}"))
        mine = chosen.choice([*queue.names, "lock-9999999999"])

        assert queue.order.standing("/q", mine) == standing(queue.names, mine), f"seed {seed}"
        assert queue.order.holder("/q") == holder(queue.names), f"seed {seed}"


def test_a_queue_that_is_gone_has_nobody() -> None:
    """After a recursive delete of a long queue nothing of it is remembered."""
    queue = Queue()
    for _ in range(50):
        queue.do(Create("/q/lock-", mode=CreateMode.PERSISTENT_SEQUENTIAL))
    assert queue.order.holder("/q") == "lock-0000000000"

    queue.do(Delete("/q", is_recursive=True))

    assert queue.order.holder("/q") is None
    assert not queue.order.standing("/q", "lock-0000000007").is_queued
