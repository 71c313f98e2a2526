"""A keep-alive HTTP/1.1 connection with as little Python as possible.

The load generator shares the machine's cores with the members, so what it spends on itself is
taken from what it measures. It speaks just enough HTTP for answers with a Content-Length.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._reply: asyncio.Future[tuple[int, bytes]] | None = None
        self._host = b""

    @classmethod
    async def open(cls, url: str) -> Connection:
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, parts.hostname, parts.port)
        connection._host = parts.netloc.encode()
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("closed"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end]
        mark = head.lower().find(b"content-length:")
        length = 0
        if mark >= 0:
            stop = head.find(b"\r\n", mark)
            length = int(head[mark + 15 : stop if stop >= 0 else len(head)])
        if len(self._buffer) < end + 4 + length:
            return
        body = self._buffer[end + 4 : end + 4 + length]
        self._buffer = self._buffer[end + 4 + length :]
        if self._reply is not None and not self._reply.done():  # its caller may have given up
            self._reply.set_result((int(head[9:12]), body))

    async def request(
        self, method: str, path: str, body: Any = None, headers: bytes = b""
    ) -> tuple[int, bytes]:
        """Send one request and return (status, body)."""
        assert self._transport is not None
        payload = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"%s %s HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s"
            % (method.encode(), path.encode(), self._host, headers, len(payload), payload)
        )
        return await self._reply

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
