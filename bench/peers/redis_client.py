"""Redis' client: its Lock, sets and gets. One server decides, and it waits for no replica."""

from __future__ import annotations

from collections.abc import Callable

import redis

from bench.peers.work import IN_FLIGHT, VALUE, Spec, SyncWorker


class RedisThreads:
    """One pool of connections, to the master. Its Lock polls, and is not fair."""

    def __init__(self, spec: Spec) -> None:
        host, _, port = spec.endpoints[spec.leader].rpartition(":")
        self._spec = spec
        self._client = redis.Redis(host=host, port=int(port), max_connections=1_000)

    def worker(self, number: int) -> SyncWorker:
        client, key, kind = self._client, f"bench-{number}", self._spec.kind
        if kind in ("lock", "handoff"):
            name = self._spec.lock_name(number)

            def cycle(pause: Callable[[], None]) -> None:
                with client.lock(name, timeout=600, sleep=0.001):
                    pause()

            return cycle
        client.set(key, VALUE)
        if kind == "write":
            return lambda _pause: client.set(key, VALUE)
        if kind == "pipeline":
            return lambda _pause: self._pipelined(key)
        return lambda _pause: client.get(key)

    def _pipelined(self, key: str) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for _ in range(IN_FLIGHT):
            pipeline.set(key, VALUE)
        pipeline.execute()

    def close(self) -> None:
        self._client.close()
