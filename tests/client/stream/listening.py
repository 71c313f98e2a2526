"""Scripted members behind real sockets, for clients of threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgpack  # type: ignore[import-untyped]

from coordinator.errors import CoordinatorError
from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient
from tests.client.stream.scripted import Peer, Respond, welcome

STAT = dict.fromkeys(
    (
        "czxid", "mzxid", "pzxid", "ctime_ms", "mtime_ms", "version", "cversion", "aversion",
        "data_length", "num_children",
    ),
    1,
)  # fmt: skip
STATUS = msgpack.packb({})


@contextmanager
def listening(make: Any) -> Iterator[str]:
    """Serve protocols in a thread of their own; yields the URL."""
    started: list[Any] = []
    is_started = threading.Event()

    async def main() -> None:
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        server = await loop.create_server(make, "127.0.0.1", 0)
        started.extend((loop, stop, server.sockets[0].getsockname()[1]))
        is_started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert is_started.wait(10)
    loop, stop, port = started
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)


def scripted(respond: Respond) -> Any:
    return listening(lambda: Peer(respond))


def written(number: int, path: str = "/a") -> frames.AnswerFrame:
    body = msgpack.packb({"path": path, "stat": {**STAT, "ephemeral_owner": None}})
    return frames.AnswerFrame(number, status=200, headers={"coordinator-index": "9"}, body=body)


def serve(peer: Peer, frame: FromClient) -> None:
    match frame:
        case frames.Hello():
            welcome(peer)
        case frames.RequestFrame(number, "GET"):
            peer.send(
                frames.AnswerFrame(
                    number, status=200, headers={"coordinator-index": "9"}, body=STATUS
                )
            )
        case frames.RequestFrame(number, _, target):
            peer.send(written(number, target))


def is_put(frame: FromClient) -> bool:
    return isinstance(frame, frames.RequestFrame) and frame.method == "PUT"


def silent(peer: Peer, frame: FromClient) -> None:
    if not is_put(frame):
        serve(peer, frame)


def in_threads(count: int, work: Any) -> list[Any]:
    found: list[Any] = []

    def run(number: int) -> None:
        try:
            found.append(work(number))
        except CoordinatorError as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found
