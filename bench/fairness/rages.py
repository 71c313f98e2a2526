"""The rages of a client: what it repeats without end, each a program for a connection."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.wire.stream import frames
from tests.members.closed_loop import Asked, Program

LISTED = 200
_VALUES = 40
_VALUE = b"x" * (1024 * 1024)
_SOME_BYTES = 4_096

Ask = Callable[[int], Asked]
"""Returns what the program of this number asks next."""


@dataclass(frozen=True, slots=True)
class Rage:
    """What is asked, over how many connections, how often at once on each."""

    ask: Ask
    connections: int = 48
    depth: int = 64
    needs: str = ""
    """What is there before: ``session`` of the client, holding the lock."""


def _value(number: int) -> Asked:
    return "PUT", f"/v1/tree/raging/value-{number % _VALUES}", {"data": _VALUE}


def _wait(_number: int) -> Asked:
    body = {"session_id": SESSION[0], "timeout_ms": 60_000, "on_disconnect": "leave"}
    return "POST", "/v1/locks/raging", body


def _end(_number: int) -> Asked:
    return "DELETE", f"/v1/sessions/{random.getrandbits(128):032x}", None


RAGES = {
    "values": Rage(_value, depth=1),
    "waits": Rage(_wait, depth=210, needs="session"),
    "sessions": Rage(lambda _: ("POST", "/v1/sessions", {"timeout_ms": 3_000})),
    "ends": Rage(_end),
    "refused": Rage(lambda _: ("PUT", "/v1/tree/other", {"data": b"mine"})),
    "lists": Rage(lambda _: ("GET", "/v1/tree/raging/listed?children&stat", None), depth=16),
    "watches": Rage(lambda number: ("GET", f"/v1/watch?path=/raging/{number}", None)),
    "junk": Rage(_end, depth=0),
}
"""By name, in the order in which they are tried."""

SESSION = [""]
"""The session that waits, once it is open."""


def repeating(rage: Rage, number: int, counts: Counter[str]) -> Program:
    """Ask without end, and count the answers by their status."""
    while True:
        status, _ = yield rage.ask(number)
        counts[str(status)] += 1


class Junk(asyncio.Protocol):
    """A connection that says what is no frame, no request, or the begin of a long one."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._counts["begun"] += 1
        noise = os.urandom(_SOME_BYTES)
        hello = frames.encoded(frames.Hello(frames.VERSION, frames.HelloSettings()))
        begin = (frames.PREFACE + hello, frames.PREFACE, b"GET /v1/tree/", b"")[noise[0] % 4]
        transport.write(begin + noise)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(None)
