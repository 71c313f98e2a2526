"""A watch delivers each change, in order, and is never behind what the watcher can read itself.

One program writes a price again and again. Another watches it at another member. When it is told of
a change it reads at once: it never finds an older price than the one it was told of. A change that
is told later was never read before without its turn: nothing is left out, nothing comes twice.
"""

from __future__ import annotations

import threading

from coordinator import Client
from examples.stage import Stage, perform

CHANGES = 20


def watch_and_read(watcher: Client, begun: threading.Event) -> list[tuple[int, int]]:
    """Return for each change the price that it told, and the one that was read after it."""
    found = []
    with watcher.watch("/price", values=True) as changes:
        begun.set()
        for change in changes:
            told = int(change.events[0].data or b"")
            found.append((told, int(watcher.get("/price").data)))
            if told == CHANGES:
                return found
    raise AssertionError("a stream of changes does not end")


def story(stage: Stage) -> None:
    with stage.connect("writer") as writer, stage.connect("watcher") as watcher:
        writer.create("/price", b"0")
        begun = threading.Event()

        def write() -> list[tuple[int, int]]:
            begun.wait()
            for price in range(1, CHANGES + 1):
                writer.set("/price", str(price).encode())
                stage.wait(0.05)
            return []

        _, found = stage.together(write, lambda: watch_and_read(watcher, begun))
    told = [price for price, _ in found]
    in_order = told == list(range(1, CHANGES + 1))
    stage.say(f"{CHANGES} prices written, {len(told)} told, each once and in order: {in_order}.")
    behind = [pair for pair in found if pair[1] < pair[0]]
    stage.say(f"Read after it was told, a price was older than told {len(behind)} times.")
    ahead = sum(read > price for price, read in found)
    stage.say(f"It was newer {ahead} times: the next change was made before the read.")


if __name__ == "__main__":
    perform(story)
