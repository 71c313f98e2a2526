"""Responses that go on: one JSON object per line (NDJSON), or server-sent events.

1. What is not taken waits: a write returns once the socket's buffer has room again, and the server
   cuts off a client that takes nothing for as long as an idle connection may live.
2. A stream that ends with an error says so in its last line; the status was sent long ago.
3. A blank line (NDJSON) or a comment (SSE) keeps a silent stream alive through proxies.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from coordinator.errors import CoordinatorError
from coordinator.wire import messages
from coordinator.wire.messages.watches import StreamError
from coordinator.wire.strict_json import encode_json

logger = logging.getLogger("coordinator.http")

KEEP_ALIVE_S = 2.0
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class LineStream:
    """One response that goes on; opened with its first line."""

    def __init__(self, request: web.Request, *, is_sse: bool, labels: Mapping[str, str]) -> None:
        self._request = request
        self._is_sse = is_sse
        content_type = messages.EVENT_STREAM_TYPE if is_sse else messages.NDJSON_TYPE
        headers = {"Content-Type": content_type, **_HEADERS, **labels}
        self.response = web.StreamResponse(headers=headers)
        self.is_open = False

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send one line; waits while the client's buffers are full."""
        line = encode_json(body)
        if self._is_sse:
            identifier = f"id: {body['zxid']}\n" if "zxid" in body else ""
            head = f"event: {body['type']}\n{identifier}data: "
            await self._write(head.encode("ascii") + line + b"\n\n")
        else:
            await self._write(line + b"\n")

    async def send_error(self, error: CoordinatorError) -> None:
        """Send the last line of a stream that ends with ``error``."""
        await self.send(StreamError(error).to_body())

    async def keep_alive(self) -> None:
        """Send what says nothing."""
        await self._write(b":\n\n" if self._is_sse else b"\n")

    async def end(self) -> None:
        """Say that nothing more comes."""
        await self.response.write_eof()

    async def _write(self, data: bytes) -> None:
        if not self.is_open:
            self.is_open = True
            await self.response.prepare(self._request)
        await self.response.write(data)


def wants(request: web.Request, media_type: str) -> bool:
    """Return whether Accept names ``media_type``."""
    return media_type in request.headers.get("Accept", "").lower()
