"""ZooKeeper's client in Python, kazoo: its Lock recipe, sets and gets, from threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from bench.peers.work import IN_FLIGHT, VALUE, Spec, SyncWorker


class KazooThreads:
    """One connection, to the leader. A linearizable read is a sync and a get, as its pages say."""

    def __init__(self, spec: Spec) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._spec = spec
        self._client = KazooClient(
            hosts=spec.endpoints[spec.leader], timeout=30.0, handler=None, randomize_hosts=False
        )
        self._client.start(timeout=30)

    def worker(self, number: int) -> SyncWorker:
        client, path, kind = self._client, f"/bench-{number}", self._spec.kind
        if kind in ("lock", "handoff"):
            return self._cycle(f"/{self._spec.lock_name(number)}")
        try:
            client.create(path, VALUE)
        except NodeExistsError:
            pass
        if kind == "write":
            return lambda _pause: client.set(path, VALUE)
        if kind == "pipeline":
            return lambda _pause: self._pipelined(path)
        if kind == "stale":
            return lambda _pause: client.get(path)

        def read(_pause: Callable[[], None]) -> None:
            synced = client.sync_async(path)
            found = client.get_async(path)  # the same connection: it is answered after the sync
            synced.get()
            found.get()

        return read

    def _pipelined(self, path: str) -> None:
        for each in [self._client.set_async(path, VALUE) for _ in range(IN_FLIGHT)]:
            each.get()

    def _cycle(self, path: str) -> SyncWorker:
        lock = self._client.Lock(path, "bench")

        def cycle(pause: Callable[[], None]) -> None:
            lock.acquire()
            pause()
            lock.release()

        return cycle

    def close(self) -> None:
        self._client.stop()


class KazooQueue:
    """Thousands of contenders by the recipe, without a thread for each: callbacks of one client.

    A contender is a sequential ephemeral that watches the one before it, as in kazoo's Lock; but it
    knows that one, as all of them are here, and does not list the queue. That is in its favour.
    """

    def __init__(self, spec: Spec, on_granted: Callable[[int], None]) -> None:
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._client = KazooClient(hosts=spec.endpoints[spec.leader], timeout=60.0)
        self._client.start(timeout=30)
        self._path = f"/{spec.lock_name(0)}"
        self._client.ensure_path(self._path)
        self._on_granted = on_granted
        self._nodes: dict[int, str] = {}
        self._last = ""

    def enter(self, number: int) -> None:
        """Queue once more."""
        made = self._client.create_async(f"{self._path}/n-", b"", ephemeral=True, sequence=True)
        made.rawlink(lambda result: self._entered(number, result.get()))

    def leave(self, number: int) -> None:
        """Give the lock back."""
        self._client.delete_async(self._nodes.pop(number))

    def _entered(self, number: int, node: str) -> None:
        """Watch the one before; answers come in the order of the numbers."""
        before, self._last = self._last, node
        self._nodes[number] = node
        if not before:
            self._on_granted(number)
            return
        found = self._client.exists_async(before, watch=lambda _event: self._on_granted(number))
        found.rawlink(lambda result: self._watched(number, result))

    def _watched(self, number: int, result: Any) -> None:
        if result.get() is None:  # it went before it was watched; the watch tells of nothing
            self._on_granted(number)

    def close(self) -> None:
        self._client.stop()
