"""Leases given with an acquire, over plain HTTP, while members of a real cluster die."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from coordinator.testing import LocalCluster, local_cluster

LEASE_MS = 1_500


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    """Acquire and return the grant."""
    request = urllib.request.Request(
        f"{url}/v1/locks/daily", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        grant: dict[str, Any] = json.load(response)["grant"]
        return grant


def queue_of(cluster: LocalCluster) -> list[str]:
    """Return the labels of who holds and who waits, as a running member says."""
    url = cluster.url(cluster.running[0])
    with urllib.request.urlopen(f"{url}/v1/locks/daily", timeout=30) as response:
        view = json.load(response)
    return [each["label"] for each in (*view["holders"], *view["queue"])]


def until(condition: Callable[[], bool]) -> None:
    """Return once ``condition`` holds."""
    for _ in range(600):
        try:
            if condition():
                return
        except urllib.error.URLError:
            pass  # there is no leader for a moment
        time.sleep(0.1)
    pytest.fail("it never came to be so")


class Waiting:
    """A client that waits, in a thread; ``grant`` is what it got."""

    def __init__(self, url: str) -> None:
        self.grant: dict[str, Any] | None = None
        self.is_broken = False
        body = {"lease_ms": LEASE_MS, "timeout_ms": 100_000, "label": "waiting"}

        def wait() -> None:
            try:
                self.grant = ask(url, body)
            except OSError:
                self.is_broken = True

        self._thread = threading.Thread(target=wait, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_wait_outlasts_its_lease_and_the_leader() -> None:
    """The leader is killed while a client of another member waits for many leases."""
    with local_cluster() as cluster:
        door = cluster.followers[0]
        held = ask(cluster.url(door), {"lease_ms": 600_000, "label": "first"})
        waiting = Waiting(cluster.url(door))
        until(lambda: queue_of(cluster) == ["first", "waiting"])

        cluster.kill(cluster.leader)
        until(lambda: cluster.leader in cluster.running)
        time.sleep(2 * LEASE_MS / 1_000)
        assert queue_of(cluster) == ["first", "waiting"]
        release = urllib.request.Request(
            f"{cluster.url(door)}/v1/locks/daily/grants/{held['grant_id']}", method="DELETE"
        )
        urllib.request.urlopen(release, timeout=30).close()
        waiting.end()

        assert waiting.grant is not None
        assert waiting.grant["lease_ms"] == LEASE_MS
        assert waiting.grant["safe_ms"] > 0


def test_a_lease_runs_out_with_the_member_that_kept_it() -> None:
    """The member at which a client waits is killed: nobody renews it, and its place is left."""
    with local_cluster() as cluster:
        door = cluster.followers[0]
        ask(cluster.url(cluster.leader), {"lease_ms": 600_000, "label": "first"})
        waiting = Waiting(cluster.url(door))
        until(lambda: queue_of(cluster) == ["first", "waiting"])

        cluster.kill(door)
        waiting.end()

        assert waiting.is_broken
        until(lambda: queue_of(cluster) == ["first"])
