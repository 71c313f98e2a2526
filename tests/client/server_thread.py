"""A real member behind a real socket on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from coordinator.clock import Clock, SystemClock
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer
from tests.patience import patient


@dataclass(frozen=True)
class ServedMember:
    """A member that serves at ``url``, in its own thread."""

    url: str
    _member: Member
    _loop: asyncio.AbstractEventLoop
    _clock: Clock

    def tick(self) -> None:
        """Let it look at its clock now; returns when it has."""

        async def look() -> None:
            self._member.tick(self._clock.monotonic_ms())

        asyncio.run_coroutine_threadsafe(look(), self._loop).result()


@contextmanager
def serving() -> Iterator[str]:
    """Serve until the block ends; yields the URL."""
    with serving_by(SystemClock()) as served_member:
        yield served_member.url


@contextmanager
def serving_by(clock: Clock) -> Iterator[ServedMember]:
    """Serve until the block ends, by ``clock``."""
    started = threading.Event()
    stopping: list[asyncio.Event] = []
    serves: list[ServedMember] = []

    async def main() -> None:
        config = replace(Config(), http=HttpConfig(bind_port=0))
        member = Member(config, LoopbackEngine(), clock)
        await member.start()
        server = HttpServer(served(member, config.http, clock), config.http)
        await server.start()
        stop = asyncio.Event()
        stopping.append(stop)
        serves.append(ServedMember(server.url, member, asyncio.get_running_loop(), clock))
        started.set()
        await stop.wait()
        await server.stop()
        await member.stop()

    thread = threading.Thread(target=lambda: asyncio.run(main()), name="member", daemon=True)
    thread.start()
    assert started.wait(patient(10)), "the member did not start"
    try:
        yield serves[0]
    finally:
        serves[0]._loop.call_soon_threadsafe(stopping[0].set)
        thread.join(10)
