"""Jobs partitioned by hash: a worker joins, one leaves; only what must move moves.

A partition is a lock. Its new owner waits until the old one has given it back, or its lease has
ended, so no job is processed under two valid tokens. Which worker should own what is computed by
everybody alike (rendezvous hashing) from the list of workers, which are ephemeral znodes.
"""

from __future__ import annotations

import hashlib

from coordinator.client import Client
from examples.stage import Stage, perform
from recipes import Grant, Lock

PARTITIONS = 12


def owner_of(partition: int, workers: list[str]) -> str:
    """Return who should own it: of all workers the one with the highest hash for it."""
    return max(workers, key=lambda name: hashlib.sha256(f"{partition}/{name}".encode()).digest())


class Worker:
    def __init__(self, name: str, client: Client) -> None:
        self.name, self.client = name, client
        self.grants: dict[int, Grant[Client]] = {}
        client.create(f"/workers/{name}", mode="ephemeral", parents="persistent")

    def give_up(self) -> None:
        """First give back what is not ours any more: this is the confirmation that we stopped."""
        workers = list(self.client.children("/workers").names)
        for partition in [each for each in self.grants if owner_of(each, workers) != self.name]:
            self.grants.pop(partition).release()

    def take(self) -> None:
        """Then take what is ours; waits for its old owner, or for the end of that one's lease."""
        workers = list(self.client.children("/workers").names)
        for partition in range(PARTITIONS):
            if owner_of(partition, workers) == self.name and partition not in self.grants:
                lock = Lock(self.client, f"partition-{partition}", label=self.name, timeout=60)
                self.grants[partition] = lock.acquire()


def rebalance(stage: Stage, workers: list[Worker], what: str) -> None:
    """What each worker does by itself when a watch on /workers tells it of a change."""
    before = {each: w.name for w in workers for each in w.grants}
    for worker in workers:
        worker.give_up()
    stage.together(*(worker.take for worker in workers))
    after = {each: w.name for w in workers for each in w.grants}
    assert sorted(after) == list(range(PARTITIONS)), "each partition has exactly one owner"
    moved = [each for each in after if each in before and before[each] != after[each]]
    shares = ", ".join(f"{w.name} {len(w.grants)}" for w in workers)
    stage.say(f"{what}: {shares}; moved between the living: {len(moved)} of {PARTITIONS}")


def story(stage: Stage) -> None:
    with (
        stage.connect("w1") as one,
        stage.connect("w2") as two,
        stage.connect("w3", lease=20, timeout=1) as three,
    ):
        first, second = Worker("w1", one), Worker("w2", two)
        rebalance(stage, [first, second], "Two workers")
        third = Worker("w3", three)
        rebalance(stage, [first, second, third], "A third joins")
        tokens_of_third = {each: grant.fencing_token for each, grant in third.grants.items()}
        stage.cluster.cut_off(three)  # it dies
        with one.watch("/workers", kind="children") as changes:
            next(iter(changes))  # its lease has ended, and its znode with it
        rebalance(stage, [first, second], "The third dies")
        for partition, token in tokens_of_third.items():
            now = (first.grants | second.grants)[partition].fencing_token
            assert now > token, "the store refuses what the dead one might still write"
        stage.say("Each partition's new owner has a higher token than its old one.")


if __name__ == "__main__":
    perform(story)
