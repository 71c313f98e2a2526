"""A small HTTP server that says whether this program leads: for load balancers and probes.

``GET /ready`` is 200 while the command runs under a leadership that is certainly this program's, by
the clock at that moment; else 503. ``GET /live`` is 200 while this program works at all. Both have
the same JSON body. There is nothing else, and nothing is read but the first line. When all places
are taken, the caller who came first gives way: those who send nothing keep no probe out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import click

_REQUEST_BYTES_MAX = 8_192
_REQUEST_S_MAX = 2.0
_CONNECTIONS_MAX = 64
_STATUSES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
             503: "Service Unavailable"}  # fmt: skip

State = Callable[[], Mapping[str, Any]]
"""Says ``is_leading`` and what else is to be seen, now."""


class Address(click.ParamType[tuple[str, int]]):
    """HOST:PORT; of an IPv6 address in brackets."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        """Return host and port."""
        if isinstance(value, tuple):
            return value
        host, _, port = str(value).rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65_535:
            self.fail(f"expected HOST:PORT such as 127.0.0.1:8099, found {value!r}", param, ctx)
        return host, int(port)


class ReadyDoor:
    """Answers requests; ``state`` is asked at each."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._open: dict[asyncio.Task[None], None] = {}
        """Who is being answered, in the order of their coming."""

    @asynccontextmanager
    async def at(self, address: tuple[str, int]) -> AsyncIterator[int]:
        """Listen; give the port.

        Raises:
            OSError: the address cannot be listened on.
        """
        server = await asyncio.start_server(self._serve, *address, limit=_REQUEST_BYTES_MAX)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server answers each connection in a task"
        if len(self._open) >= _CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.cancel()
        self._open[task] = None
        try:
            async with asyncio.timeout(_REQUEST_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # the client has gone, or sends something else
        except asyncio.CancelledError:
            pass  # to make room, or at the end; nothing comes after this
        finally:
            self._open.pop(task, None)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(400, {"error": "expected GET /ready or GET /live"})
        method, path = words[0], words[1].partition(b"?")[0]
        if path not in (b"/ready", b"/live"):
            return _response(404, {"error": "expected /ready or /live"})
        if method not in (b"GET", b"HEAD"):
            return _response(405, {"error": "expected GET or HEAD"})
        state = self._state()
        is_good = path == b"/live" or bool(state["is_leading"])
        return _response(200 if is_good else 503, state, has_body=method == b"GET")


def _response(status: int, value: Mapping[str, Any], *, has_body: bool = True) -> bytes:
    body = json.dumps(value).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {_STATUSES[status]}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")
