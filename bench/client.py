"""What one operation costs the client: processor time by transport, client and requests in flight.

::

    python -m bench.client                # all rows, side by side in one run
    python -m bench.client --seconds 5 --work cycle stream
    python -m bench.client --at . --at ../other stream    # two revisions, in turns
    python -m bench.client --frames stream                # calls of Python functions instead
    python -m bench.client --endpoints http://127.0.0.1:7071,... stream    # real members

A ``write`` is 100 B, a ``read`` the same; a ``cycle`` is an acquire of a lock of the worker's own
and its release, a ``handoff`` one of a lock that all workers want. Without ``--endpoints`` the
members are a stub in another process that answers every request at once, always the same, so only
the client is measured. Processor time is the process's own (user and system), with its threads.
The thread that waits for the others takes no part; ``main`` is a client in the main thread. With
``--at`` each figure is from a process of its own, which imports that revision.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator import Lock, connect
from coordinator.errors import NodeExistsError
from coordinator.wire.encoding import Encoding, encode
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import PREFACE

ROUNDS = 3
IN_FLIGHT = (1, 64)
DATA = bytes(100)
_STAT = dict.fromkeys(
    (
        "czxid", "mzxid", "pzxid", "ctime_ms", "mtime_ms", "version", "cversion", "aversion",
        "data_length", "num_children",
    ),
    1,
)  # fmt: skip
WRITTEN = msgpack.packb({"path": "/bench", "zxid": 7, "stat": {**_STAT, "ephemeral_owner": None}})
READ = msgpack.packb(
    {"path": "/bench", "zxid": 7, "data": DATA, "stat": {**_STAT, "ephemeral_owner": None}}
)
_HTTP = (
    b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nCoordinator-Zxid: 7\r\n"
    b"Coordinator-Index: 9\r\nCoordinator-Member: n1\r\nContent-Length: %d\r\n\r\n%b"
)
_HEADERS = {"coordinator-zxid": "7", "coordinator-index": "9"}
_LEASE = {"session_id": "5e55104a5e55104a", "timeout_ms": 10_000}
_RELEASED = {"grant_id": "c-0000000007", "released": True}
_GRANT = {
    "lock": "bench", "grant_id": "c-0000000007", "fencing_token": 7, "zxid": 7, "kind": "exclusive",
    "session_id": _LEASE["session_id"], "path": "/locks/bench/c-0000000007", "max_hold_ms": 0,
    "previous": None,
}  # fmt: skip
_NUMBERS = itertools.count(1)


def answer(method: str, target: str, accept: str) -> tuple[str, bytes]:
    """Return media type and body of the stub's answer."""
    if target.startswith("/v1/tree"):
        return Encoding.MSGPACK.value, READ if method == "GET" else WRITTEN
    is_packed = not accept or accept.startswith(Encoding.MSGPACK.value)
    encoding = Encoding.MSGPACK if is_packed else Encoding.JSON
    body: Any = _LEASE
    if "/grants/" in target:
        body = _RELEASED
    elif target.startswith("/v1/locks"):
        path, lock = f"/locks/bench/c-{next(_NUMBERS):010}", target.rpartition("/")[2]
        body = {"grant": {**_GRANT, "lock": lock, "path": path}}
    return encoding.value, encode(body, encoding)


class Stub(asyncio.Protocol):
    """Answers every request at once, in the protocol in which it was asked."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._reader: Any = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if self._reader is None and not self._rest and data.startswith(PREFACE):
            self._reader = frames.from_client(1 << 20)
            data = data[len(PREFACE) :]
        if self._reader is None:
            self._answer_http(data)
        else:
            self._answer(data)

    def _answer(self, data: bytes) -> None:
        self._reader.feed(data)
        writer = frames.FrameWriter()
        while taken := self._reader.take():
            for frame in taken:
                if isinstance(frame, frames.RequestFrame):
                    accept = frame.headers.get("accept", "")
                    kind, body = answer(frame.method, frame.target, accept)
                    headers = _HEADERS
                    if kind != Encoding.MSGPACK.value:
                        headers = {**_HEADERS, "content-type": kind}
                    writer.add(frames.AnswerFrame(frame.id, 200, headers, body))
                elif isinstance(frame, frames.Hello):
                    settings = frames.WelcomeSettings("n1", self._url)
                    writer.add(frames.Welcome(frames.VERSION, settings))
                elif isinstance(frame, frames.PingFrame):
                    writer.add(frames.Pong(frame.number))
        if len(writer):
            self._transport.write(writer.take())

    def _answer_http(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n")[0]) if at >= 0 else 0
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            method, target, *_ = head.decode().split()
            accept = head.partition(b"\r\naccept:")[2].split(b"\r\n")[0].strip().decode()
            kind, body = answer(method.upper(), target, accept or "application/json")
            self._transport.write(_HTTP % (kind.encode(), len(body), body))


def _serve(pipe: Pipe) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        urls: list[str] = []
        server = await loop.create_server(lambda: Stub(urls[0]), "127.0.0.1", 0, backlog=512)
        urls.append(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        pipe.send(urls[0])
        await server.serve_forever()

    with suppress(KeyboardInterrupt):
        asyncio.run(main())


class Calls:
    """Calls of Python functions in all threads that begin from now on, in place of seconds."""

    def __init__(self) -> None:
        self.counted = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            self.counted += event == "call"

        threading.setprofile(count)
        sys.setprofile(count)

    def so_far(self) -> float:
        """Return them as if each took a µs."""
        return self.counted / 1e6


def cpu_s() -> float:
    """Return the processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Load:
    """What the workers of one client do, and for how long."""

    def __init__(self, work: str, urls: str, transport: Any, in_flight: int) -> None:
        self.work = work
        self.urls = urls
        self.transport = transport
        self.in_flight = in_flight

    def names(self) -> list[str]:
        """Return the lock of each worker."""
        shared = self.work == "handoff"
        numbers = [0 if shared else number for number in range(self.in_flight)]
        return [f"bench-{os.getpid()}-{number}" for number in numbers]

    def cost(self, work: Callable[[], int], spent_s: Callable[[], float]) -> tuple[float, float]:
        """Return µs of processor time for each operation, and operations in a second."""
        began_s, cpu_began_s = time.perf_counter(), spent_s()
        count = work()
        used_s, took_s = spent_s() - cpu_began_s, time.perf_counter() - began_s
        return used_s / count * 1e6, count / took_s

    async def by_asyncio(self, seconds: float, counts: bool) -> tuple[float, float]:
        """Measure an AsyncClient with so many tasks."""
        async with connect(self.urls, transport=self.transport, timeout=60) as client:
            locks: list[Any] = [
                Lock(client, name, owner=f"w{number}", timeout=60)
                for number, name in enumerate(self.names())
            ]
            with suppress(NodeExistsError):
                await client.create("/bench", DATA)

            async def once(lock: Any) -> None:
                if self.work == "write":
                    await client.set("/bench", DATA)
                elif self.work == "read":
                    await client.get("/bench")
                else:
                    async with lock:
                        pass

            async def worker(lock: Any, until_s: float) -> int:
                for count in itertools.count(1):
                    await once(lock)
                    if time.perf_counter() > until_s:
                        return count
                raise AssertionError

            await asyncio.gather(*[worker(lock, 0) for lock in locks])
            spent_s = Calls().so_far if counts else cpu_s
            began_s, cpu_began_s = time.perf_counter(), spent_s()
            until_s = began_s + seconds
            count = sum(await asyncio.gather(*[worker(lock, until_s) for lock in locks]))
            used_s, took_s = spent_s() - cpu_began_s, time.perf_counter() - began_s
            sys.setprofile(None)
            return used_s / count * 1e6, count / took_s

    def by_threads(self, seconds: float, counts: bool, *, in_main: bool) -> tuple[float, float]:
        """Measure a Client with so many threads, or in the main thread; that one is alone."""
        with connect(self.urls, transport=self.transport, timeout=60) as client:
            totals: list[int] = []
            locks: list[Any] = [
                Lock(client, name, owner=f"w{number}", timeout=60)
                for number, name in enumerate(self.names())
            ]
            with suppress(NodeExistsError):
                client.create("/bench", DATA)
            self._once(client, locks[0])

            def worker(lock: Any) -> None:
                count, until_s = 0, time.perf_counter() + seconds
                while time.perf_counter() < until_s:
                    self._once(client, lock)
                    count += 1
                totals.append(count)

            def all_of_it() -> int:
                if in_main:
                    worker(locks[0])
                    return totals[0]
                threads = [threading.Thread(target=worker, args=(lock,)) for lock in locks]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                return sum(totals)

            found = self.cost(all_of_it, Calls().so_far if counts else cpu_s)
            threading.setprofile(None)
            sys.setprofile(None)
            return found

    def _once(self, client: Any, lock: Any) -> None:
        if self.work == "write":
            client.set("/bench", DATA)
        elif self.work == "read":
            client.get("/bench")
        else:
            with lock:
                pass

    def measured(self, client: str, seconds: float, *, counts: bool) -> tuple[float, float]:
        """Return what an operation costs in ``client``, and how many there are in a second."""
        if client == "asyncio":
            return asyncio.run(self.by_asyncio(seconds, counts))
        return self.by_threads(seconds, counts, in_main=client == "main")


def in_turn(root: Path, row: tuple[str, str, str, int], urls: str, options: Any) -> Any:
    """Measure one row in a process that imports the revision at ``root``."""
    command = [sys.executable, __file__, "--row", ",".join(map(str, row)), "--endpoints", urls]
    command += ["--seconds", str(options.seconds)] + ["--frames"] * options.frames
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return tuple(float(each) for each in done.stdout.split())


def main() -> None:
    """Print a table: the medians of some interleaved rounds, and the least cost."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("transports", nargs="*", default=["http", "stream"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", default="asyncio,threads,main")
    parser.add_argument("--work", default="write,cycle")
    parser.add_argument("--in-flight", default=",".join(map(str, IN_FLIGHT)))
    parser.add_argument("--at", action="append", help="a checked-out revision; again for another")
    parser.add_argument("--frames", action="store_true", help="count calls of Python functions")
    parser.add_argument("--endpoints", help="of members; a stub if there are none")
    parser.add_argument("--row", help="measure this one only, in this process")
    options = parser.parse_args()
    if options.row:
        work, client, transport, in_flight = options.row.split(",")
        load = Load(work, options.endpoints, transport, int(in_flight))
        print(*load.measured(client, options.seconds, counts=options.frames))
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stub = context.Process(target=_serve, args=(theirs,), daemon=True)
    if options.endpoints is None:
        stub.start()
    urls = options.endpoints or ours.recv()
    roots = [Path(root).resolve() for root in options.at or ["."]]
    numbers = [int(each) for each in options.in_flight.split(",")]
    works, clients = options.work.split(","), options.clients.split(",")
    rows = [
        row
        for row in itertools.product(works, clients, options.transports, numbers)
        if row[1] != "main" or row[3] == 1
    ]
    found: dict[Any, list[tuple[float, float]]] = {}
    for _ in range(options.rounds):
        for row, root in itertools.product(rows, roots):
            one = in_turn(root, row, urls, options)
            found.setdefault((*row, root.name), []).append(one)
    unit = "calls each" if options.frames else "µs of CPU each"
    head = f"work    client   transport {'in flight':>9} {'at':>10}"
    print(f"{head} {unit:>15} {'least':>8} {'1/s':>8}")
    for (work, client, transport, in_flight, root), results in found.items():
        cost_us, rate = (statistics.median(each) for each in zip(*results, strict=True))
        row_said = f"{work:7} {client:8} {transport:9} {in_flight:9} {root:>10}"
        least = min(cost for cost, _ in results)
        print(f"{row_said} {cost_us:15.1f} {least:8.1f} {rate:8.0f}")
    if options.endpoints is None:
        stub.terminate()


if __name__ == "__main__":
    main()
