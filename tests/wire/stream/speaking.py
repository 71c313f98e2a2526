"""A client of the stream that a test moves by hand: it sends what it likes, and reads all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from coordinator.wire.stream import frames
from coordinator.wire.stream.frames import FromClient, FromServer
from tests.patience import patient

FrameT = TypeVar("FrameT")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return msgspec.msgpack.decode(self.raw)


class Speaker:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._frames = frames.from_server(64 * 1024 * 1024)
        self._read: list[FromServer] = []
        self.welcome: frames.Welcome | None = None
        self.last_id = 0

    @classmethod
    async def to(cls, port: int, *, hello: bool = True, window_bytes: int = 0) -> Speaker:
        """Connect; say HELLO and read WELCOME unless told not to."""
        speaker = cls(*await asyncio.open_connection("127.0.0.1", port))
        if hello:
            settings = frames.HelloSettings(window_bytes=window_bytes or frames.WINDOW_BYTES)
            speaker.send(frames.Hello(frames.VERSION, settings), before=frames.PREFACE)
            speaker.welcome = await speaker.expect(frames.Welcome)
        return speaker

    def send(self, *sent: FromClient, before: bytes = b"") -> None:
        """Send frames, all in one packet."""
        self.writer.write(before + b"".join(map(frames.encoded, sent)))

    def request(
        self, method: str, target: str, body: Any = None, **headers: str
    ) -> frames.RequestFrame:
        """Return a request with the next id."""
        self.last_id += 1
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        raw = body if body is None or isinstance(body, bytes) else msgspec.msgpack.encode(body)
        return frames.RequestFrame(
            self.last_id, method=method, target=target, headers=named, body=raw
        )

    async def next(self) -> FromServer | None:
        """Return the next frame; None when the server has closed."""
        async with asyncio.timeout(patient(10)):
            while not self._read:
                try:
                    data = await self.reader.read(256 * 1024)
                except ConnectionResetError:
                    return None
                if not data:
                    return None
                self._frames.feed(data)
                while taken := self._frames.take():
                    self._read += taken
        return self._read.pop(0)

    async def expect(self, kind: type[FrameT]) -> FrameT:
        """Return the next frame, which must be of this kind."""
        frame = await self.next()
        assert isinstance(frame, kind), frame
        return frame

    async def call(self, method: str, target: str, body: Any = None, **headers: str) -> Reply:
        """Send one request and return its whole answer."""
        request = self.request(method, target, body, **headers)
        self.send(request)
        answer = await self.expect(frames.AnswerFrame)
        assert answer.id == request.id
        return Reply(answer.status, answer.headers, answer.body)

    async def rest(self) -> list[FromServer]:
        """Return all frames until the server closes."""
        found = []
        while (frame := await self.next()) is not None:
            found.append(frame)
        return found

    def close(self) -> None:
        """Hang up."""
        self.writer.close()

    def break_off(self) -> None:
        """Break the connection."""
        self.writer.transport.abort()


@asynccontextmanager
async def speaking(port: int, **options: Any) -> AsyncIterator[Speaker]:
    """Connect for the length of a block."""
    speaker = await Speaker.to(port, **options)
    try:
        yield speaker
    finally:
        speaker.break_off()
