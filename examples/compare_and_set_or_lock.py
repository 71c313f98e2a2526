"""Compare-and-set or a lock? It depends on how many clients compete, and on what a try costs.

A profile is touched by its owner alone: a conditional write meets no other one, and needs half the
requests of a lock. Everybody wants the same shoes: of those who looked at the same moment only one
may write, and the others have calculated in vain. A lock lets them in one by one, in order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from coordinator.client import Client
from coordinator.clock import SystemClock
from coordinator.recipes import Lock
from examples.stage import Stage, perform

WORKERS, UPDATES = 6, 3
Change = Callable[[bytes], bytes]


def by_compare_and_set(client: Client, path: str, change: Change) -> None:
    client.update(path, change, max_retries=1_000)


def by_lock(client: Client, path: str, change: Change) -> None:
    with Lock(client, path.strip("/"), timeout=60) as grant:
        client.set(path, change(client.get(path).data), if_held=grant)


def measured(
    stage: Stage, client: Client, paths: list[str], way: Callable[[Client, str, Change], None]
) -> tuple[int, list[int]]:
    """Let each worker update its path some times.

    Returns how often something was calculated, and how long each update took, sorted, in ms.
    """
    clock = SystemClock()
    calculated: list[int] = []
    took_ms: list[int] = []
    all_are_ready = threading.Barrier(WORKERS)

    def change(data: bytes) -> bytes:
        stage.wait(0.2)  # a price is calculated
        calculated.append(1)
        return str(int(data) + 1).encode()

    def work(path: str) -> None:
        all_are_ready.wait()
        for _ in range(UPDATES):
            began_ms = clock.monotonic_ms()
            way(client, path, change)
            took_ms.append(clock.monotonic_ms() - began_ms)

    stage.together(*[partial(work, path) for path in paths])
    return len(calculated), sorted(took_ms)


def story(stage: Stage) -> None:
    with stage.connect("shop") as client:
        client.create("/stock", b"0")
        own = [f"/profiles/{worker}" for worker in range(WORKERS)]
        for path in own:
            client.create(path, b"0", parents="persistent")
        needed = WORKERS * UPDATES
        for what, paths in (("each its own profile", own), ("all the same stock", ["/stock"] * 6)):
            for way in (by_compare_and_set, by_lock):
                calculated, took_ms = measured(stage, client, paths, way)
                in_vain = f"{calculated - needed} tries in vain"
                latency = f"half within {took_ms[needed // 2]} ms, the slowest {took_ms[-1]} ms"
                stage.say(f"{what}, {way.__name__}: {needed} updates, {in_vain}; {latency}")
        stage.say(
            "Compare-and-set while trying again is rare or cheap; a lock where it is neither."
        )


if __name__ == "__main__":
    perform(story)
