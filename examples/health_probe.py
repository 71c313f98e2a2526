"""A holder that lives but does not work: its own probe shows it, and the next one takes over."""

from __future__ import annotations

import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coordinator import Client, HealthProbe
from coordinator.errors import LockLostError, LockTimeoutError
from coordinator.recipes import Lock
from examples.stage import Stage, perform


class Indexer:
    """Writes into a directory; it is well while the directory is there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.is_sick = threading.Event()

    def look(self) -> None:
        if not self.directory.is_dir():
            raise OSError(f"{self.directory.name} is gone")

    def work(self, stage: Stage, client: Client) -> None:
        stopped = threading.Event()
        try:
            with Lock(client, "indexer", lock_delay=1) as grant:
                grant.on_lost(stopped.set)
                stage.say(f"A indexes, with token {grant.fencing_token}.")
                self.directory.rmdir()
                stage.say("Its disk is gone. It lives on, and its heartbeats go out.")
                self.is_sick.set()
                stopped.wait(stage.seconds(4) + 2)
        except LockLostError as lost:
            stage.say(f"A stops by itself: {lost.message}")


def story(stage: Stage) -> None:
    with stage.connect("B") as b:
        stage.say("Without a probe:")
        hang(stage, b, probe=None)
        stage.say("With a probe:")
        hang(stage, b, probe=0.2)


def hang(stage: Stage, b: Client, *, probe: float | None) -> None:
    with TemporaryDirectory() as parent:
        indexer = Indexer(Path(parent) / "index")
        indexer.directory.mkdir()
        options: dict[str, Any] = {}
        if probe is not None:
            options["probe"] = HealthProbe(indexer.look, every=probe, failures=3)
        with stage.cluster.connect(label="A", **options) as a:
            working = threading.Thread(target=indexer.work, args=(stage, a))
            working.start()
            indexer.is_sick.wait(30)
            try:
                with Lock(b, "indexer", timeout=1 if probe is None else 30) as grant:
                    stage.say(f"B indexes, with token {grant.fencing_token}.")
            except LockTimeoutError:
                stage.say("B waits in vain: for the cluster, A is alive and holds.")
            working.join()
        for ended in b.grants("indexer", how="failed"):
            stage.say(f"The history says: {ended.how}, {ended.reason}.")


if __name__ == "__main__":
    perform(story)
