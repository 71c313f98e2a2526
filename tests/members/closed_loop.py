"""Clients that repeat an operation for ever, each with the next request once it is answered."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import msgspec

from coordinator.wire.stream import frames

KINDS = ["write", "lock", "read", "list"]
LISTED = 100
DATA = b"x" * 100
_ANSWER_BYTES_MAX = 64 * 1024 * 1024

Asked = tuple[str, str, Any]
"""Method, target and body of a request."""
Program = Generator[Asked, tuple[int, bytes], None]
"""What one client repeats: it is sent the status and the body of each answer."""


def repeated(kind: str, name: str, counts: Counter[str]) -> Program:
    """Repeat an operation for ever, and count it as ``done`` or by its status.

    ``fill`` makes what is read and listed, once, and is counted as ``filled``."""
    if kind == "fill":
        for target in ("fair", "fair/listed", *(f"fair/listed/c{n}" for n in range(LISTED))):
            status, _ = yield "POST", f"/v1/tree/{target}", {"data": b"x"}
            assert status == 201, status
        counts["filled"] += 1
        return
    path = f"/v1/tree/fair/{name}"
    opened: dict[str, Any] = {}
    if kind == "lock":
        while not opened:
            status, body = yield "POST", "/v1/sessions", {"timeout_ms": 600_000}
            if status == 201:
                opened = msgspec.msgpack.decode(body)
    elif kind == "write":
        status = 0
        while status not in (201, 409):
            status, _ = yield "POST", path, {"data": DATA, "parents": "persistent"}
    while True:
        if kind == "lock":
            target = f"/v1/locks/{name}"
            wish = {"session_id": opened["session_id"], "timeout_ms": 10_000}
            status, body = yield "POST", target, wish | {"on_disconnect": "stay"}
            if status == 200:
                grant = msgspec.msgpack.decode(body)["grant"]
                status, _ = yield "DELETE", f"{target}/grants/{grant['grant_id']}", None
        elif kind == "write":
            status, _ = yield "PUT", path, {"data": DATA}
        elif kind == "read":
            status, _ = yield "GET", "/v1/tree/fair/listed", None
        else:
            status, _ = yield "GET", "/v1/tree/fair/listed?children&stat", None
        counts["done" if status < 300 else str(status)] += 1


def counted(program: Program, counts: Counter[str]) -> Program:
    """Count each of its requests that was done, as ``answered``: of a lock there are several."""
    asked = next(program)
    while True:
        answer = yield asked
        counts["answered"] += answer[0] < 300
        try:
            asked = program.send(answer)
        except StopIteration:
            return


class Connected(asyncio.Protocol):
    """One connection of the stream with a number of programs, each with one request under way.

    Of a stream of lines the head is the answer; the lines go on, and are not looked at."""

    def __init__(self, name: str, programs: list[Program], authorization: str = "") -> None:
        self._name = name
        self._authorization = authorization
        self._programs = programs
        self._reader = frames.from_server(_ANSWER_BYTES_MAX)
        self._waiting: dict[int, Program] = {}
        self._last_id = 0
        self._out = frames.FrameWriter()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        hello = frames.encoded(frames.Hello(frames.VERSION, frames.HelloSettings()))
        transport.write(frames.PREFACE + hello)
        if self._authorization:
            transport.write(frames.encoded(frames.Credential(self._authorization)))

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while taken := self._reader.take():
            for frame in taken:
                if isinstance(frame, frames.AnswerFrame | frames.Head):
                    program = self._waiting.pop(frame.id)
                    body = frame.body if isinstance(frame, frames.AnswerFrame) else b""
                    with suppress(StopIteration):  # it was not to be repeated
                        self._ask(program, program.send((frame.status, body)))
                elif isinstance(frame, frames.Welcome):
                    for program in self._programs:
                        self._ask(program, next(program))
        if len(self._out):
            self._transport.write(self._out.take())

    def _ask(self, program: Program, asked: Asked) -> None:
        method, target, body = asked
        self._last_id += 1
        self._waiting[self._last_id] = program
        headers = {}
        if method != "GET":
            headers["coordinator-client-id"] = self._name
            headers["coordinator-request-number"] = str(self._last_id)
        raw = None if body is None else msgspec.msgpack.encode(body)
        self._out.add(
            frames.RequestFrame(
                self._last_id, method=method, target=target, headers=headers, body=raw
            )
        )

    def close(self) -> None:
        """Ask nothing more, and go away."""
        self._waiting.clear()
        self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)
