"""What every story needs: a cluster, a voice, a pace, and hands to do things at the same time."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from coordinator.testing import LocalCluster, WiredConnector, local_cluster

T = TypeVar("T")
SESSION_S_MIN = 1.0
"""Shorter leases would be lost to nothing but a busy machine."""


@dataclass
class Stage:
    """``pace`` is how long a second of the story takes here, in seconds."""

    cluster: LocalCluster
    pace: float = 1.0

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        print(text, flush=True)

    def seconds(self, story_seconds: float) -> float:
        """Return how long ``story_seconds`` of the story are here."""
        return story_seconds * self.pace

    def wait(self, story_seconds: float) -> None:
        """Let time pass: the work that somebody does."""
        threading.Event().wait(self.seconds(story_seconds))

    def connect(
        self, label: str, *, lease: float | None = None, timeout: float = 10.0
    ) -> WiredConnector:
        """Return a connector for one participant.

        ``lease`` is in seconds of the story, and given where it is to run out; else it is the
        usual one, whatever the pace.
        """
        session_timeout = 10.0 if lease is None else max(SESSION_S_MIN, self.seconds(lease))
        return self.cluster.connect(session_timeout=session_timeout, timeout=timeout, label=label)

    def command(self, *arguments: str) -> None:
        """Run ``coordinator`` with these arguments, and let it speak."""
        self.say(f"$ coordinator {' '.join(arguments)}")
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-m", "coordinator", *arguments],
            env={**os.environ, "COORDINATOR_ENDPOINTS": self.cluster.endpoints},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        self.say(done.stdout.rstrip())

    def together(self, *parts: Callable[[], T]) -> list[T]:
        """Do all of these at once, each in a thread; return what they returned, in order."""
        with ThreadPoolExecutor(len(parts)) as threads:
            return [future.result() for future in [threads.submit(part) for part in parts]]


def perform(story: Callable[[Stage], None], *, members: int = 3) -> None:
    """Tell ``story`` on a cluster of its own; for ``python -m examples.…``."""
    parser = argparse.ArgumentParser(description=story.__doc__)
    parser.add_argument(
        "--pace", type=float, default=1.0, metavar="P", help="0.2 tells it five times as fast"
    )
    options = parser.parse_args()
    with local_cluster(members=members) as cluster:
        story(Stage(cluster, options.pace))
