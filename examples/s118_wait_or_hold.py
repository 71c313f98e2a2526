"""S118 Slow because of the wait or because of the hold? Two numbers tell which, for each lock.

``client.lock(name)`` has both for one lock, /metrics has both as histograms for each class of them.
"""

from __future__ import annotations

import urllib.request

from coordinator.client import Client
from examples.stage import Stage, perform
from recipes import Lock


def diagnosis(client: Client, name: str) -> str:
    view = client.lock(name)
    assert view.waits is not None
    assert view.holds is not None
    wait_ms, hold_ms = view.waits.p95_ms, view.holds.p95_ms
    if wait_ms > 2 * hold_ms:
        return "the wait dominates: too many want the same lock"
    if wait_ms * 10 < hold_ms:
        return "never contended: the work itself takes the time"
    return "both matter"


def story(stage: Stage) -> None:
    with stage.connect("workers", lease=60) as client:

        def use(name: str, hold_s: float) -> None:
            with Lock(client, name, timeout=max(60, stage.seconds(60))):
                stage.wait(hold_s)  # the work; it writes with the grant's token

        stage.together(*[lambda: use("stock:shoes", 0.5)] * 12)
        for _ in range(2):
            use("video:42", 3)
        for name in ("stock:shoes", "video:42"):
            stage.say(f"{name}: {diagnosis(client, name)}")

        leader = stage.cluster.url(stage.cluster.leader)
        with urllib.request.urlopen(f"{leader}/metrics", timeout=5) as response:  # noqa: S310
            lines = response.read().decode().splitlines()
        for histogram in ("wait", "hold"):
            of_stock = [line for line in lines if histogram in line and '"stock"' in line]
            stage.say(f"/metrics has {histogram} times of the class stock: {bool(of_stock)}")


if __name__ == "__main__":
    perform(story)
