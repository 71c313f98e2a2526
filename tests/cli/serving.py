"""One member over the loopback engine behind a real socket, in a thread of its own.

The command line runs an event loop of its own in the test's thread, as it does for a user; the
member answers from this one. ``python serving.py`` serves until its standard input ends, for tests
that need the member to be another process; its first line of output is its URL.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from dataclasses import replace
from typing import Any

from coordinator.clock import SystemClock
from coordinator.node.config import Config, HttpConfig
from coordinator.raft.loopback import LoopbackEngine
from coordinator.service.member import Member
from coordinator.wire.http.served import served
from coordinator.wire.http.server import HttpServer


class ServedMember:
    """Serves from ``start`` to ``stop``; ``url`` is where, ``member`` who."""

    def __init__(self, http: HttpConfig | None = None) -> None:
        self.url = ""
        self.member: Member
        self._http = http or HttpConfig()
        self._is_up = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(10), "the member did not come up"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(20)
        assert not self._thread.is_alive(), "the member did not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._is_up.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        config = Config()
        http = replace(self._http, bind_port=0, shutdown_grace_ms=200)
        clock = SystemClock()
        member = Member(config, LoopbackEngine(), clock)
        await member.start()
        self.member = member
        server = HttpServer(served(member, http, clock), http)
        await server.start()
        self.url = server.url
        self._is_up.set()
        await self._stopping.wait()
        await server.stop()
        await member.stop()


def main() -> Any:
    served = ServedMember()
    served.start()
    print(served.url, flush=True)
    sys.stdin.read()
    served.stop()


if __name__ == "__main__":
    main()
