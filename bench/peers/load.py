"""One load in a process of its own: it waits for rounds, and says what each came to.

The runner starts it with a Spec in JSON, writes ``run SECONDS`` lines, and reads one line of JSON
for each: rate, latencies, processor time of the servers and of this process, both read from the
operating system at the beginning and at the end of the round. Between rounds it stands still.

    python -m bench.peers.load SPEC
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from bench.peers.figures import cpu_seconds, round_figures
from bench.peers.work import AsyncAdapter, AsyncWorker, Spec, SyncAdapter, SyncWorker

WARM_S = 0.3
THREADS_MAX = 64
CLOSE_S = 10.0
ENDING = threading.Event()
THREADS = {
    "ours-sync": "our_client.OurThreads",
    "zookeeper": "kazoo_client.KazooThreads",
    "etcd-sync": "etcd_client.EtcdThreads",
    "redis": "redis_client.RedisThreads",
}
TASKS = {
    "ours": "our_client.OurAsync",
    "ours-http": "our_client.OurHttp",
    "etcd": "etcd_client.EtcdAsync",
}


def system_of(adapter: str) -> str:
    """Return the name of the system whose client this is."""
    return adapter.partition("-")[0]


class Meter:
    """What finished when, and what it cost, from ``begin`` to ``end``."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._finished: list[tuple[float, float]] = []
        self.latest_s = 0.0

    def finish(self, began_s: float) -> None:
        """Note an operation; a hand-off's time is that since the one before, by anybody."""
        now_s = time.perf_counter()
        before_s = self.latest_s if self._spec.kind == "handoff" else began_s
        self._finished.append((now_s, now_s - before_s))
        self.latest_s = now_s

    def begin(self) -> None:
        gc.collect()
        self._servers_s, self._client_s = self._spent()
        self._finished.clear()
        self._began_s = time.perf_counter()

    def end(self) -> dict[str, float]:
        ended_s = time.perf_counter()
        servers_s, client_s = self._spent()
        each = self._spec.operations
        latencies = [took for at, took in self._finished if at <= ended_s for _ in range(each)]
        return round_figures(
            latencies, ended_s - self._began_s, servers_s - self._servers_s,
            client_s - self._client_s,
        )  # fmt: skip

    def _spent(self) -> tuple[float, float]:
        return cpu_seconds(self._spec.pids), cpu_seconds([os.getpid()])


def adapter_of(spec: Spec) -> Any:
    """Make the adapter; each is imported only in its own process."""
    module, _, name = {**THREADS, **TASKS}[spec.adapter].partition(".")
    return getattr(import_module(f"bench.peers.{module}"), name)(spec)


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def seconds_of(line: str) -> float | None:
    """Return how long the next round is; None when there is none."""
    words = line.split()
    return float(words[1]) if words and words[0] == "run" else None


def run_threads(spec: Spec) -> None:
    adapter: SyncAdapter = adapter_of(spec)
    meter, gate = Meter(spec), threading.Event()
    is_queue = spec.kind == "handoff"

    def repeat(worker: SyncWorker) -> None:
        while True:
            if not is_queue:
                gate.wait()
            began_s = time.perf_counter()
            try:
                worker(gate.wait)  # type: ignore[arg-type]
            except Exception as error:
                if ENDING.is_set():
                    return  # what was under way ends with its connection
                print(f"{spec.adapter}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            meter.finish(began_s)

    workers = [adapter.worker(number) for number in range(spec.workers)]
    for each in workers:
        threading.Thread(target=repeat, args=(each,), daemon=True).start()
    if is_queue:
        time.sleep(1.0)
    take_turns(meter, gate, adapter.close)


def take_turns(meter: Meter, gate: threading.Event, close: Callable[[], None]) -> None:
    """Run the rounds that the runner asks for, then end this process."""
    say({"ready": True})
    while (seconds := seconds_of(sys.stdin.readline())) is not None:
        gate.set()
        time.sleep(WARM_S)
        meter.begin()
        time.sleep(seconds)
        found = meter.end()
        gate.clear()
        time.sleep(0.1)
        say(found)
    ENDING.set()
    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(CLOSE_S)  # a client with waiting threads may never end by itself
    os._exit(0)


def run_kazoo_queue(spec: Spec) -> None:
    """Hand one lock on among more contenders than there can be threads."""
    from bench.peers.kazoo_client import KazooQueue

    meter, gate = Meter(spec), threading.Event()
    granted: queue.SimpleQueue[int] = queue.SimpleQueue()
    contenders = KazooQueue(spec, granted.put)

    def hand_on() -> None:
        while True:
            number = granted.get()
            gate.wait()
            contenders.leave(number)
            contenders.enter(number)
            meter.finish(0.0)

    for number in range(spec.workers):
        contenders.enter(number)
    threading.Thread(target=hand_on, daemon=True).start()
    time.sleep(1.0 + spec.workers / 1_000)
    take_turns(meter, gate, contenders.close)


async def run_tasks(spec: Spec) -> None:
    adapter: AsyncAdapter = adapter_of(spec)
    meter, gate = Meter(spec), asyncio.Event()
    is_queue = spec.kind == "handoff"

    async def pause() -> None:
        await gate.wait()

    async def repeat(worker: AsyncWorker) -> None:
        while True:
            if not is_queue:
                await gate.wait()
            began_s = time.perf_counter()
            try:
                await worker(pause)
            except Exception as error:
                if ENDING.is_set():
                    return  # what was under way ends with its connection
                print(f"{spec.adapter}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            meter.finish(began_s)

    workers = [await adapter.worker(number) for number in range(spec.workers)]
    tasks = [asyncio.create_task(repeat(each)) for each in workers]
    if is_queue:
        await asyncio.sleep(1.0 + spec.workers / 500)
    say({"ready": True})
    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        if (seconds := seconds_of(line)) is None:
            break
        gate.set()
        await asyncio.sleep(WARM_S)
        meter.begin()
        await asyncio.sleep(seconds)
        found = meter.end()
        gate.clear()
        await asyncio.sleep(0.1)
        say(found)
    ENDING.set()
    assert tasks, "they are kept until here"
    await asyncio.wait_for(adapter.close(), CLOSE_S)
    os._exit(0)


def main() -> None:
    said = json.loads(sys.argv[1])
    spec = Spec(**{**said, "endpoints": tuple(said["endpoints"]), "pids": tuple(said["pids"])})
    if spec.adapter in TASKS:
        asyncio.run(run_tasks(spec))
    elif spec.adapter == "zookeeper" and spec.kind == "handoff" and spec.workers > THREADS_MAX:
        run_kazoo_queue(spec)
    else:
        run_threads(spec)


if __name__ == "__main__":
    main()
