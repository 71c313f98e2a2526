"""Slow because of the wait or because of the hold? Two numbers tell which, for each lock.

``coordinator diagnose`` puts them into words; /metrics has both as histograms for each class of
locks, which is the part of the name before the first ":" or "/".
"""

from __future__ import annotations

import urllib.request
from functools import partial

from coordinator.recipes import Lock
from examples.stage import Stage, perform


def story(stage: Stage) -> None:
    with stage.connect("workers") as client:
        client.create("/result")

        def use(name: str, hold_s: float) -> None:
            with Lock(client, name, timeout=max(60, stage.seconds(60))) as grant:
                stage.wait(hold_s)  # the work
                client.set("/result", name.encode(), if_held=grant)

        stage.together(*[partial(use, "stock:shoes", 0.5)] * 12)
        for _ in range(6):
            use("video:42", 1)
        stage.command("diagnose", "stock:shoes")
        stage.command("diagnose", "video:42")

        leader = stage.cluster.url(stage.cluster.leader)
        with urllib.request.urlopen(f"{leader}/metrics", timeout=5) as response:  # noqa: S310
            lines = response.read().decode().splitlines()
        for histogram in ("wait", "hold"):
            of_stock = [line for line in lines if histogram in line and '"stock"' in line]
            stage.say(f"/metrics has {histogram} times of the class stock: {bool(of_stock)}")


if __name__ == "__main__":
    perform(story)
