"""What a client leaves behind when it has gone: nothing that only the collector can find.

A member puts aside what has stayed for a while, and then looks for no cycles in it
(``coordinator.node.garbage``): what is long alive here must end without.
"""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from coordinator.wire.http import openapi as openapi  # else loaded, with cycles, by one test
from coordinator.wire.stream import frames
from tests.loop_meter import Metered
from tests.patience import patient
from tests.wire.crowded import Crowded

EACH = 15
CROWD = ThreadPoolExecutor(EACH)
"""Those who come side by side: most of their time they wait whether more is answered."""
_LEASE_MS = 60_000
HOLDERS = 2
"""Connections of those who hold, in which others wait their turn."""
_LINES = "application/x-ndjson"


@pytest.fixture(scope="module")
def scene() -> Iterator[Crowded]:
    loop = Metered()
    running = Crowded(loop)
    loop.run(running.open())
    holders = [
        _asked(running, "POST", f"/v1/{each}/held", _wish(20_000), waits=0.1)
        for each in ("locks", "elections")
    ]
    try:
        yield running
    finally:
        for each in holders:
            each.close()
        loop.run(running.stop())
        loop.close()


def _asked(
    scene: Crowded, method: str, path: str, body: Any = None, *, accept: str = "*/*", waits: float
) -> socket.socket:
    """Send one request, read what comes within ``waits`` seconds; return the open connection."""
    assert scene.server is not None
    connection = socket.create_connection(("127.0.0.1", scene.server.port), timeout=10)
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n"
    if body is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
    connection.sendall(head.encode() + b"\r\n" + data)
    connection.settimeout(max(waits, 0.001))
    try:
        while connection.recv(65_536) and waits:
            pass
    except TimeoutError:
        pass
    return connection


def _sent(scene: Crowded, raw: bytes) -> socket.socket:
    """Send these bytes and read nothing; return the open connection."""
    assert scene.server is not None
    connection = socket.create_connection(("127.0.0.1", scene.server.port), timeout=10)
    connection.sendall(raw)
    time.sleep(0.02)
    return connection


def _post(path: str, length: int, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {length}\r\n\r\n".encode() + body


def _streamed(
    scene: Crowded, method: str, path: str, body: Any = None, *, accept: str = "", waits: float
) -> socket.socket:
    """Send one request through the stream, as ``_asked`` does."""
    assert scene.server is not None
    connection = socket.create_connection(("127.0.0.1", scene.server.port), timeout=10)
    data = None if body is None else msgspec.msgpack.encode(body)
    headers = {"accept": accept} if accept else {}
    asked = (
        frames.Hello(frames.VERSION, frames.HelloSettings()),
        frames.RequestFrame(1, method=method, target=path, headers=headers, body=data),
    )
    connection.sendall(frames.PREFACE + b"".join(map(frames.encoded, asked)))
    connection.settimeout(max(waits, 0.001))
    try:
        while connection.recv(65_536) and waits:
            pass
    except TimeoutError:
        pass
    return connection


def _wish(timeout_ms: int) -> dict[str, int]:
    return {"lease_ms": _LEASE_MS, "timeout_ms": timeout_ms}


Part = Callable[[Crowded], socket.socket]

ROWS: dict[str, Part] = {
    "a read": lambda scene: _asked(scene, "GET", "/v1/tree?children", waits=0.02),
    "a refused read": lambda scene: _asked(scene, "GET", "/v1/tree/none", waits=0.02),
    "a session": lambda scene: _asked(
        scene, "POST", "/v1/sessions", {"timeout_ms": _LEASE_MS}, waits=0.02
    ),
    "a watch": lambda scene: _asked(scene, "GET", "/v1/watch?path=/a", accept=_LINES, waits=0.02),
    "an observation": lambda scene: _asked(
        scene, "GET", "/v1/elections/e?observe", accept=_LINES, waits=0.02
    ),
    "a grant": lambda scene: _asked(scene, "POST", "/v1/locks/g", _wish(20_000), waits=0.02),
    "a try that is refused": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", _wish(0), waits=0.02
    ),
    "a wait that is left": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", _wish(20_000), waits=0.02
    ),
    "a told wait that is left": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", _wish(20_000), accept=_LINES, waits=0.02
    ),
    "a wait that is over": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", _wish(40), waits=0.1
    ),
    "a told wait that is over": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", _wish(40), accept=_LINES, waits=0.1
    ),
    "no request": lambda scene: _sent(scene, b"\x16\x03\x01\x02\x00\x01" * 20),
    "half a head": lambda scene: _sent(scene, b"GET /v1/tree HTTP/1.1\r\nHost: 127"),
    "half a body": lambda scene: _sent(scene, _post("/v1/multi", 5_000, b'{"operations": [')),
    "a body that is no JSON": lambda scene: _sent(scene, _post("/v1/multi", 9, b"{" * 9)),
    "a body in bad chunks": lambda scene: _sent(
        scene, b"POST /v1/multi HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "a head that is too long": lambda scene: _sent(
        scene, b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 100_000
    ),
    "deep JSON": lambda scene: _sent(scene, _post("/v1/multi", 40_000, b"[" * 40_000)),
    "another host": lambda scene: _sent(scene, b"GET /v1/status HTTP/1.1\r\nHost: evil\r\n\r\n"),
    "no route": lambda scene: _asked(scene, "GET", "/v9/none", waits=0.02),
    "another method": lambda scene: _asked(scene, "PATCH", "/v1/tree/a", waits=0.02),
    "a refused multi": lambda scene: _asked(
        scene, "POST", "/v1/multi", {"operations": [{"op": "delete", "path": "/no"}]}, waits=0.02
    ),
    "a refused condition": lambda scene: _asked(
        scene,
        "POST",
        "/v1/tree/x",
        {"data": "", "if_held": [{"lock": "none", "fencing_token": 1}]},
        waits=0.02,
    ),
    "a session that is none": lambda scene: _asked(
        scene, "POST", "/v1/sessions/none/heartbeat", {}, waits=0.02
    ),
    "an attempt of no session": lambda scene: _asked(
        scene, "POST", "/v1/locks/held", {"session_id": "none", "timeout_ms": 50}, waits=0.1
    ),
    "an answer that nobody reads": lambda scene: _sent(
        scene, b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 30
    ),
    "a read by the stream": lambda scene: _streamed(scene, "GET", "/v1/tree?children", waits=0.02),
    "a watch by the stream": lambda scene: _streamed(
        scene, "GET", "/v1/watch?path=/a", accept=_LINES, waits=0.02
    ),
    "a wait by the stream that is left": lambda scene: _streamed(
        scene, "POST", "/v1/locks/held", _wish(20_000), waits=0.02
    ),
    "a told wait by the stream that is over": lambda scene: _streamed(
        scene, "POST", "/v1/locks/held", _wish(40), accept=_LINES, waits=0.1
    ),
    "a campaign that is left": lambda scene: _asked(
        scene, "POST", "/v1/elections/held", _wish(20_000), accept=_LINES, waits=0.02
    ),
}


_NO_ROUTE = (
    "aiohttp.web_urldispatcher.SystemRoute",
    "builtins.method",
    "builtins.dict",
    "builtins.tuple",
    "builtins.set",
    "multidict._multidict.CIMultiDict",
)
_OF_AIOHTTP = {
    "no route": ("aiohttp.web_exceptions.HTTPNotFound", *_NO_ROUTE),
    "another method": ("aiohttp.web_exceptions.HTTPMethodNotAllowed", *_NO_ROUTE),
}
"""The route of a request that has none is a cycle in itself, of six objects, and dies young."""


_OF_ONE_EXCEPTION = ("builtins.traceback", "builtins.frame")
"""One exception has as many as its stack was deep; it is counted itself."""


@pytest.mark.parametrize("part", ROWS)
def test_who_has_gone_leaves_no_cycle(scene: Crowded, part: str) -> None:
    """Of many, less is found than one object each."""
    alone = _tasks_of(scene)
    ROWS[part](scene).close()  # what is made once, for all of a kind, is no part of it
    _let_end(scene, alone)
    gc.collect()
    gc.disable()
    try:
        for each in CROWD.map(ROWS[part], [scene] * EACH):
            each.close()
        _let_end(scene, alone)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()

    for kind in (*_OF_AIOHTTP.get(part, ()), *_OF_ONE_EXCEPTION):
        found.pop(kind, None)
    assert max(found.values(), default=0) < EACH, f"in cycles: {found.most_common(12)}"


def _tasks_of(scene: Crowded) -> int:
    async def count() -> int:
        return len(asyncio.all_tasks())

    return scene.loop.run(count())


def _let_end(scene: Crowded, alone: int) -> None:
    """Return when the member has noticed that everybody has gone, but those who hold."""
    assert scene.server is not None
    deadline_s = time.monotonic() + patient(10)
    while (
        scene.member.metrics.contenders_waiting.value > 0
        or scene.server.connection_count > HOLDERS
        or _tasks_of(scene) > alone
    ):
        assert time.monotonic() < deadline_s, "they have not ended"
        time.sleep(0.02)
