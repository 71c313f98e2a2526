"""Crowds in a process of their own: sessions that only live, and watchers of one znode.

    python -m bench.peers.crowd sessions|watchers SYSTEM COUNT SECONDS ENDPOINT...

It prints one line of JSON when all are there, and another with what it measured after ``SECONDS``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.peers.figures import Spread
from bench.peers.work import VALUE

SESSION_MS = 10_000
CONNECTIONS = 10
WRITES = 15
AT_ONCE = 50
OPEN_S = 60.0


async def _gathered(makers: list[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """Make all of them, some at once."""
    found: list[Any] = []
    for start in range(0, len(makers), AT_ONCE):
        found += await asyncio.gather(*[each() for each in makers[start : start + AT_ONCE]])
    return found


# --- sessions


async def our_sessions(count: int, endpoints: list[str]) -> list[Any]:
    """Open one client, with its own connection and session, for each."""
    from coordinator import connect

    async def one(number: int) -> Any:
        turn = number % len(endpoints)
        client = await connect(
            [*endpoints[turn:], *endpoints[:turn]],
            session_timeout=SESSION_MS / 1000,
            timeout=OPEN_S,
        )
        await client.session()
        return client

    return await _gathered([lambda number=each: one(number) for each in range(count)])  # type: ignore[misc]


async def zookeeper_sessions(count: int, endpoints: list[str]) -> list[Any]:
    from bench.peers.zookeeper_wire import keep_session

    return await _gathered(
        [lambda at=each: keep_session(endpoints[at % 3], SESSION_MS) for each in range(count)]  # type: ignore[misc]
    )


async def etcd_sessions(count: int, endpoints: list[str]) -> list[Any]:
    """Leases on three connections, each kept every third of its time on one stream."""
    import grpc

    from bench.peers.etcd_client import LEASE, pb, unary

    channels = [grpc.aio.insecure_channel(each) for each in endpoints]
    leases: list[list[int]] = [[] for _ in channels]

    async def one(number: int) -> None:
        at = number % len(channels)
        granted = await unary(channels[at], LEASE)(pb.LeaseGrantRequest(TTL=SESSION_MS // 1000))
        leases[at].append(granted.ID)

    async def keep(channel: Any, ids: list[int]) -> None:
        stream = channel.stream_stream(
            "/etcdserverpb.Lease/LeaseKeepAlive",
            request_serializer=pb.LeaseKeepAliveRequest.SerializeToString,
            response_deserializer=pb.LeaseKeepAliveResponse.FromString,
        )()
        while True:
            began_s = time.monotonic()
            for lease in ids:
                await stream.write(pb.LeaseKeepAliveRequest(ID=lease))
                await stream.read()
            await asyncio.sleep(max(SESSION_MS / 3_000 - (time.monotonic() - began_s), 0))

    await _gathered([lambda number=each: one(number) for each in range(count)])  # type: ignore[misc]
    return [asyncio.create_task(keep(*each)) for each in zip(channels, leases, strict=True)]


# --- watchers: each returns what writes once and waits until all have seen it


async def our_watchers(count: int, endpoints: list[str]) -> Callable[[], Awaitable[None]]:
    from coordinator import connect

    clients = [await connect(endpoints) for _ in range(CONNECTIONS)]
    await clients[0].create("/watched", VALUE)
    streams = [await clients[number % CONNECTIONS].watch("/watched") for number in range(count)]

    async def see() -> None:
        seen = [asyncio.ensure_future(anext(aiter(each))) for each in streams]
        await asyncio.sleep(0.05)
        global BEGAN_S
        BEGAN_S = time.perf_counter()
        await clients[0].set("/watched", VALUE)
        await asyncio.gather(*seen)

    return see


async def etcd_watchers(count: int, endpoints: list[str]) -> Callable[[], Awaitable[None]]:
    import grpc

    from bench.peers.etcd_client import PUT, pb, unary

    channels = [grpc.aio.insecure_channel(endpoints[at % 3]) for at in range(CONNECTIONS)]
    streams = []
    for channel in channels:
        stream = channel.stream_stream(
            "/etcdserverpb.Watch/Watch",
            request_serializer=pb.WatchRequest.SerializeToString,
            response_deserializer=pb.WatchResponse.FromString,
        )()
        create = pb.WatchCreateRequest(key=b"watched")
        for _ in range(count // CONNECTIONS):
            await stream.write(pb.WatchRequest(create_request=create))
            await stream.read()
        streams.append(stream)

    async def told(stream: Any) -> None:
        left = count // CONNECTIONS
        while left:
            left -= bool((await stream.read()).events)

    async def see() -> None:
        seen = [asyncio.ensure_future(told(each)) for each in streams]
        await asyncio.sleep(0.05)
        global BEGAN_S
        BEGAN_S = time.perf_counter()
        await unary(channels[0], PUT)(pb.PutRequest(key=b"watched", value=VALUE))
        await asyncio.gather(*seen)

    return see


async def zookeeper_watchers(count: int, endpoints: list[str]) -> Callable[[], Awaitable[None]]:
    from kazoo.client import KazooClient

    clients = [
        KazooClient(hosts=endpoints[at % 3], timeout=30.0, randomize_hosts=False)
        for at in range(CONNECTIONS)
    ]
    for each in clients:
        each.start(timeout=30)
    clients[0].create("/watched", VALUE)
    for each in clients:
        each.sync("/watched")

    def once() -> None:
        left, all_told = [count], threading.Event()
        lock = threading.Lock()

        def told(_event: Any) -> None:
            with lock:
                left[0] -= 1
            if not left[0]:
                all_told.set()

        for number in range(count):  # a client keeps a set of watchers: each is one of its own
            clients[number % CONNECTIONS].get("/watched", watch=lambda event: told(event))
        time.sleep(0.05)
        global BEGAN_S
        BEGAN_S = time.perf_counter()
        clients[0].set("/watched", VALUE)
        all_told.wait(30)

    return lambda: asyncio.to_thread(once)


BEGAN_S = 0.0
"""When the last write was begun; setting watchers up does not count."""
SESSIONS = {"ours": our_sessions, "etcd": etcd_sessions, "zookeeper": zookeeper_sessions}
WATCHERS = {"ours": our_watchers, "etcd": etcd_watchers, "zookeeper": zookeeper_watchers}


async def run(kind: str, system: str, count: int, seconds: float, endpoints: list[str]) -> None:
    if kind == "sessions":
        kept = await SESSIONS[system](count, endpoints)
        print(json.dumps({"there": len(kept)}), flush=True)
        await asyncio.sleep(seconds)
        print(json.dumps({}), flush=True)
        return
    see = await WATCHERS[system](count, endpoints)
    print(json.dumps({"there": count}), flush=True)
    took_ms: list[float] = []
    for _ in range(WRITES):
        await see()
        took_ms.append((time.perf_counter() - BEGAN_S) * 1e3)
    spread = Spread.of(took_ms[3:])  # the first ones warm it up
    print(json.dumps({"median_ms": spread.median, "greatest_ms": spread.greatest}), flush=True)


def main() -> None:
    kind, system, count, seconds, *endpoints = sys.argv[1:]
    asyncio.run(_run_and_end(kind, system, int(count), float(seconds), endpoints))


async def _run_and_end(
    kind: str, system: str, count: int, seconds: float, endpoints: list[str]
) -> None:
    try:
        await run(kind, system, count, seconds, endpoints)
    except Exception as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)  # thousands of clients are not closed one by one


if __name__ == "__main__":
    main()
