"""What one operation costs the client: processor time by transport, client and requests in flight.

::

    python -m bench.client                # all rows, side by side in one run
    python -m bench.client --seconds 5 --work cycle stream

A ``write`` is 100 B; a ``cycle`` is an acquire of a lock of the worker's own and its release. The
members are a stub in another process that answers every request at once, always the same, so only
the client is measured. Processor time is the process's own (user and system), with its threads.
The thread that waits for the others takes no part; ``main`` is a client in the main thread.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import resource
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator import Lock, connect
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
        return Encoding.MSGPACK.value, WRITTEN
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


def cpu_s() -> float:
    """Return the processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(work: Callable[[], int]) -> tuple[float, float]:
    """Return µs of processor time for each operation, and operations in a second."""
    began_s, cpu_began_s = time.perf_counter(), cpu_s()
    count = work()
    used_s, took_s = cpu_s() - cpu_began_s, time.perf_counter() - began_s
    return used_s / count * 1e6, count / took_s


def by_asyncio(
    work: str, url: str, transport: Any, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Measure an AsyncClient with so many tasks."""

    async def main() -> tuple[float, float]:
        async with connect(url, transport=transport) as client:
            locks = [Lock(client, f"bench-{number}") for number in range(in_flight)]

            async def once(lock: Any) -> None:
                if work == "write":
                    await client.set("/bench", DATA)
                else:
                    async with lock:
                        pass

            await once(locks[0])
            await asyncio.gather(*[once(lock) for lock in locks])
            until_s = time.perf_counter() + seconds

            async def worker(lock: Any) -> int:
                for count in itertools.count(1):
                    await once(lock)
                    if time.perf_counter() > until_s:
                        return count
                raise AssertionError

            began_s, cpu_began_s = time.perf_counter(), cpu_s()
            count = sum(await asyncio.gather(*[worker(lock) for lock in locks]))
            used_s, took_s = cpu_s() - cpu_began_s, time.perf_counter() - began_s
            return used_s / count * 1e6, count / took_s

    return asyncio.run(main())


def by_threads(
    work: str, url: str, transport: Any, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Measure a Client with so many threads."""
    with connect(url, transport=transport) as client:
        counts: list[int] = []
        locks = [Lock(client, f"bench-{number}") for number in range(in_flight)]
        _once(work, client, locks[0])

        def worker(lock: Any) -> None:
            counts.append(_repeated(work, client, lock, seconds))

        def all_of_it() -> int:
            threads = [threading.Thread(target=worker, args=(lock,)) for lock in locks]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sum(counts)

        return measured(all_of_it)


def by_main(
    work: str, url: str, transport: Any, in_flight: int, seconds: float
) -> tuple[float, float]:
    """Measure a Client in the main thread, which Ctrl-C interrupts; one at a time."""
    with connect(url, transport=transport) as client:
        lock = Lock(client, "bench")
        _once(work, client, lock)
        return measured(lambda: _repeated(work, client, lock, seconds))


def _once(work: str, client: Any, lock: Any) -> None:
    if work == "write":
        client.set("/bench", DATA)
    else:
        with lock:
            pass


def _repeated(work: str, client: Any, lock: Any, seconds: float) -> int:
    count, until_s = 0, time.perf_counter() + seconds
    while time.perf_counter() < until_s:
        _once(work, client, lock)
        count += 1
    return count


def main() -> None:
    """Print a table: the medians of some interleaved rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("transports", nargs="*", default=["http", "stream"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--clients", default="asyncio,threads,main")
    parser.add_argument("--work", default="write,cycle")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    stub = context.Process(target=_serve, args=(theirs,), daemon=True)
    stub.start()
    url = ours.recv()
    clients = {"asyncio": by_asyncio, "threads": by_threads, "main": by_main}
    works, chosen = options.work.split(","), options.clients.split(",")
    rows = [
        row
        for row in itertools.product(works, chosen, options.transports, IN_FLIGHT)
        if row[1] != "main" or row[3] == 1
    ]
    found: dict[Any, list[tuple[float, float]]] = {row: [] for row in rows}
    for _ in range(options.rounds):
        for row in rows:
            work, client, transport, in_flight = row
            one = clients[client](work, url, transport, in_flight, options.seconds)
            found[row].append(one)
    print(f"work  client   transport {'in flight':>9} {'µs of CPU each':>15} {'1/s':>8}")
    for (work, client, transport, in_flight), results in found.items():
        cost_us, rate = (statistics.median(each) for each in zip(*results, strict=True))
        print(f"{work:5} {client:8} {transport:9} {in_flight:9} {cost_us:15.1f} {rate:8.0f}")
    stub.terminate()


if __name__ == "__main__":
    main()
