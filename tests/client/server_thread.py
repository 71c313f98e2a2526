"""A real member behind a real socket on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from coordinator.clock import SystemClock
from coordinator.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer


@contextmanager
def serving() -> Iterator[str]:
    """Serve until the block ends; yields the URL."""
    started = threading.Event()
    stopping: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    urls: list[str] = []

    async def main() -> None:
        clock = SystemClock()
        config = replace(Config(), http=HttpConfig(bind_port=0))
        member = Member(config, LoopbackEngine(), clock)
        await member.start()
        server = HttpServer(served(member, config.http, clock), config.http)
        await server.start()
        urls.append(server.url)
        stop = asyncio.Event()
        stopping.append((asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await server.stop()
        await member.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="member", daemon=True)
    thread.start()
    assert started.wait(10), "the member did not start"
    try:
        yield urls[0]
    finally:
        loop, stop = stopping[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
