"""Members as a script: for each request, a function says what happens to it.

What happens may be an answer, an error of the tree raised by the network or the member, or silence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from coordinator.client import Request, Response
from coordinator.errors import ConnectionLostError, CoordinatorError, UnavailableError, to_problem

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def answer(body: Mapping[str, Any], status: int = 200, *, index: int = 7) -> Response:
    headers = {"content-type": "application/json", "coordinator-index": str(index)}
    return Response(status=status, headers=headers, body=json.dumps(body).encode())


def refusal(error: CoordinatorError, *, index: int = 7) -> Response:
    return answer(to_problem(error), error.http_status, index=index)


REFUSED = UnavailableError("connection refused")
BROKEN = ConnectionLostError("connection reset")


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    endpoint: str
    request: Request
    at_s: float

    @property
    def client_id(self) -> str | None:
        return self.request.headers.get("coordinator-client-id")

    @property
    def number(self) -> str | None:
        return self.request.headers.get("coordinator-request-number")

    @property
    def body(self) -> Any:
        return json.loads(self.request.body or b"null")


Happening = Response | CoordinatorError | None
"""An answer; an error of the network; or silence."""


class FakeStream:
    """A stream of the lines that the test puts into it; None ends it, an error breaks it."""

    watches_silence = False

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.headers: Mapping[str, str] = {"coordinator-index": "7"}
        self.lines: asyncio.Queue[bytes | CoordinatorError | None] = asyncio.Queue()
        self.is_closed = False

    def say(self, **line: Any) -> FakeStream:
        self.lines.put_nowait(json.dumps(line).encode())
        return self

    def keep_alive(self) -> None:
        self.lines.put_nowait(b"")

    def end(self) -> FakeStream:
        self.lines.put_nowait(None)
        return self

    def snap(self) -> FakeStream:
        self.lines.put_nowait(BROKEN)
        return self

    def line_here(self) -> bytes | None:
        return None

    async def line(self) -> bytes | None:
        line = await self.lines.get()
        if isinstance(line, CoordinatorError):
            raise line
        return line

    async def read(self) -> bytes:
        return b""


@dataclass
class FakeMembers:
    """A transport. ``on_request`` and ``on_stream`` are the script."""

    on_request: Callable[[Seen], Happening | Awaitable[Happening]]
    on_stream: Callable[[Seen], FakeStream | CoordinatorError | None] | None = None
    seen: list[Seen] = field(default_factory=list)
    """Everything that arrived, but the one question for the log index before the first write."""
    is_closed: bool = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        seen = Seen(endpoint, request, asyncio.get_running_loop().time())
        if request.target == "/v1/status":
            return answer({})
        self.seen.append(seen)
        happening = self.on_request(seen)
        if isinstance(happening, Awaitable):
            happening = await cast(Awaitable[Happening], happening)
        return await self._happened(happening, timeout_ms)

    @asynccontextmanager
    async def stream(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> AsyncIterator[FakeStream]:
        seen = Seen(endpoint, request, asyncio.get_running_loop().time())
        self.seen.append(seen)
        assert self.on_stream is not None, "no stream was expected"
        stream = self.on_stream(seen)
        if not isinstance(stream, FakeStream):
            await self._happened(stream, timeout_ms)
            raise AssertionError("unreachable")
        try:
            yield stream
        finally:
            stream.is_closed = True

    async def close(self) -> None:
        self.is_closed = True

    async def _happened(self, happening: Happening, timeout_ms: int) -> Response:
        await asyncio.sleep(0)
        if happening is None:
            await asyncio.sleep(timeout_ms / 1000)
            raise ConnectionLostError(f"no answer within {timeout_ms} ms")
        if isinstance(happening, CoordinatorError):
            raise happening
        return happening
