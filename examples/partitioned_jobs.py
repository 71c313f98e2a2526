"""Jobs partitioned by hash: a worker joins, one dies; nothing moves without need.

Each partition has one owner with one fencing token. A new owner waits until the old one has stopped
and released, or its lease has ended, so no job is processed under two valid tokens. Nobody is in
charge: each worker computes from the list of workers which partitions are its own.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from coordinator.client import Client
from coordinator.errors import ClientClosedError
from coordinator.recipes import Owned, Partitioner
from coordinator.recipes.partitioner import owners_of
from examples.stage import Stage, perform

PARTITIONS = 12


class Worker:
    """A program that processes the jobs of the partitions that it owns."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.jobs = Partitioner(client, "jobs", PARTITIONS, member=name)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Take part until stopped, or until the client is closed."""
        with suppress(ClientClosedError):
            self.jobs.run(self.process)

    def process(self, owned: Owned[Client]) -> None:
        """Process the jobs of one partition; every write carries ``owned.fencing_token``."""
        owned.stopping.wait()


def settled(stage: Stage, workers: list[Worker]) -> dict[int, tuple[str, int]]:
    """Wait until each partition is with the worker that all compute for it; return who owns it."""
    names = [worker.name for worker in workers]
    expected = dict(enumerate(owners_of(PARTITIONS, names)))
    while True:
        owners = workers[0].jobs.owners()
        if {number: name for number, (name, _) in owners.items()} == expected:
            return owners
        stage.wait(0.5)


def shares(owners: dict[int, tuple[str, int]]) -> dict[str, int]:
    """Return how many partitions each worker owns."""
    names = [name for name, _ in owners.values()]
    return {name: names.count(name) for name in sorted(set(names))}


def tell(
    stage: Stage,
    what: str,
    before: dict[int, tuple[str, int]],
    after: dict[int, tuple[str, int]],
    gone: str = "",
) -> None:
    """Say who owns how many, and what moved from one living worker to another."""
    moved = [n for n in before if before[n][0] not in (gone, after[n][0])]
    said = ", ".join(f"{name} {count}" for name, count in shares(after).items())
    stage.say(f"{what}: {said}; moved between the living: {len(moved)} of {PARTITIONS}")
    for number, (name, token) in before.items():
        has_moved = name != after[number][0]
        assert (after[number][1] > token) == has_moved, "a new owner has a higher token"


def story(stage: Stage) -> None:
    with (
        stage.connect("w1") as one,
        stage.connect("w2") as two,
        stage.connect("w3", lease=20, timeout=1) as three,
    ):
        workers = [Worker("w1", one), Worker("w2", two)]
        two_workers = settled(stage, workers)
        tell(stage, "Two workers", two_workers, two_workers)
        third = Worker("w3", three)
        three_workers = settled(stage, [*workers, third])
        tell(stage, "A third joins", two_workers, three_workers)
        stage.cluster.cut_off(three)  # it dies
        left = settled(stage, workers)
        tell(stage, "The third dies", three_workers, left, gone="w3")
        stage.say("Each partition's new owner has a higher token than its old one.")
        for worker in workers:
            worker.jobs.stop()
            worker.thread.join()


if __name__ == "__main__":
    perform(story)
