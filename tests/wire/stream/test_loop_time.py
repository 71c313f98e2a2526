"""No request holds the loop for more than 20 ms through the stream either, nor do many at once.

The rows are those of HTTP (``tests/wire/test_loop_time.py``): each is asked as often as one read of
a connection can bring it, up to the hundred frames that are taken in a pass.
"""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import msgspec
import pytest

from coordinator.wire.stream import frames
from tests import put_aside
from tests.loop_meter import HELD_MS_MAX
from tests.wire.crowded import Crowded, crowded
from tests.wire.test_loop_time import ROWS

_READ_BYTES = 256 * 1024
"""What one read brings."""
_WINDOW_BYTES = 8 * 1024 * 1024
"""Room for the longest line."""
_LINES = {"accept": "application/x-ndjson"}


TIMES = {"set_data": 10, "get_session": 5}
"""Not as often as fits: a hundred changes that 900 streams are told of are one entry here, and
hold the loop however they came. A hundred sessions of 20 MB take as long to read as a client may
say nothing, and are made one after the other."""


@pytest.fixture(scope="module")
def scene() -> Iterator[Crowded]:
    with crowded() as running:
        gc.collect()
        gc.freeze()  # as a member does with what it has restored: ``coordinator.node.garbage``
        put_aside.is_more = True
        yield running


class Streamed:
    """The scene, asked through the stream; each request as often as fits into one read."""

    def __init__(self, scene: Crowded) -> None:
        self._scene = scene
        self.loop = scene.loop
        self.member = scene.member
        self.made = scene.made
        self.made_at_once = scene.made_at_once
        self.enter = scene.enter
        self.times_max = frames.FRAMES_AT_ONCE - 1

    def watching(self, count: int, path: str) -> AbstractContextManager[None]:
        return self._scene.watching(count, path)

    def call(self, method: str, path: str, body: Any = None, **_given: Any) -> bytes:
        raw = None if body is None else msgspec.msgpack.encode(body)
        return self._asked(method, path, raw, {})[0]

    def stream(
        self, method: str, path: str, body: Any = None, *, lines: int = 0, **_given: Any
    ) -> list[bytes]:
        """Ask as often as fits; of one that asks for ``lines``, for these and once."""
        raw = None if body is None else msgspec.msgpack.encode(body)
        if lines:
            return self._asked(method, path, raw, _LINES, times_max=1, lines=lines)
        return self._asked(method, path, raw, _LINES)

    def _asked(
        self,
        method: str,
        path: str,
        raw: bytes | None,
        headers: dict[str, str],
        *,
        times_max: int | None = None,
        lines: int = 0,
    ) -> list[bytes]:
        server = self._scene.server
        assert server is not None
        one = frames.encoded(
            frames.RequestFrame(1, method=method, target=path, headers=headers, body=raw)
        )
        times_max = times_max or self.times_max
        count = max(1, min(times_max, _READ_BYTES // len(one)))
        asked = [
            frames.RequestFrame(number + 1, method=method, target=path, headers=headers, body=raw)
            for number in range(count)
        ]
        with socket.create_connection(("127.0.0.1", server.port), 20) as connection:
            connection.settimeout(20)
            settings = frames.HelloSettings(window_bytes=_WINDOW_BYTES)
            hello = frames.encoded(frames.Hello(frames.VERSION, settings))
            connection.sendall(frames.PREFACE + hello)
            reader = frames.from_server(64 * 1024 * 1024)
            _next(connection, reader, 1)
            connection.sendall(b"".join(map(frames.encoded, asked)))
            return _next(connection, reader, count, lines)


def _next(
    connection: socket.socket,
    reader: frames.FrameReader[frames.FromServer],
    count: int,
    lines: int = 0,
) -> list[bytes]:
    """Read until so many requests were answered, or have begun to be, and so many lines came;
    return the lines, or the first body."""
    first, came = b"", list[bytes]()
    while count > 0 or len(came) < lines:
        data = connection.recv(1024 * 1024)
        assert data, "the member has hung up"
        reader.feed(data)
        while taken := reader.take():
            for each in taken:
                count -= isinstance(each, frames.Welcome | frames.AnswerFrame | frames.Head)
                if isinstance(each, frames.Line):
                    came.append(each.body)
                if isinstance(each, frames.AnswerFrame):
                    assert each.status != 500, each
                    first = first or each.body
    return came[:lines] or [first]


@pytest.mark.check
@pytest.mark.parametrize("operation_id", ROWS)
def test_no_route_holds_the_loop(scene: Crowded, operation_id: str) -> None:
    """At its largest request, as many as one pass takes: 20 ms."""
    streamed: Any = Streamed(scene)
    streamed.times_max = TIMES.get(operation_id, streamed.times_max)
    held_ms = scene.loop.held_ms(lambda repetition: ROWS[operation_id](streamed, repetition))

    assert held_ms <= HELD_MS_MAX, f"{operation_id} holds the loop for {held_ms:.1f} ms"


def test_a_hundred_writes_in_one_packet_do_not_hold_the_loop(scene: Crowded) -> None:
    """What clients send most, as much as one pass takes."""
    streamed = Streamed(scene)

    def act(repetition: int) -> None:
        body = {"data": b"x" * 100}
        streamed.call("PUT", f"/v1/tree/many{repetition}?create", body)

    assert scene.loop.held_ms(act) <= HELD_MS_MAX
    assert json.loads(scene.call("GET", "/v1/tree/many0"))["stat"]["version"] > 0
