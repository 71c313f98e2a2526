"""Responses that go on: one JSON object per line (NDJSON), or server-sent events.

1. What is not taken waits: a line goes out in pieces, each when the socket's buffer has room, and
   the server cuts off a client that takes nothing for as long as an idle connection may live. So a
   stream that is not read costs little, and a long line to many readers lets others have turns.
2. A stream that ends with an error says so in its last line; the status was sent long ago.
3. A blank line (NDJSON) or a comment (SSE) keeps a silent stream alive through proxies.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from coordinator.errors import CoordinatorError, forget_frames
from coordinator.model.events import StreamError
from coordinator.wire import messages
from coordinator.wire.codec import to_body
from coordinator.wire.encoding import Encoding
from coordinator.wire.request import WhySilent
from coordinator.wire.strict_json import encode_json

logger = logging.getLogger("coordinator.http")

_PIECE_BYTES = 2 * 1024
"""At most one of them waits for room, beside what the kernel holds for the connection."""
_KERNEL_BYTES_MAX = 64 * 1024
"""The size of what is sent and not taken; Linux doubles it, and takes megabytes by default."""
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class HttpLines:
    """One response that goes on; opened with its first line."""

    status = 200

    def __init__(
        self,
        request: web.Request,
        why_silent: WhySilent,
        *,
        is_sse: bool,
        labels: Mapping[str, str],
    ) -> None:
        self._request = request
        self._why_silent = why_silent
        self._is_sse = is_sse
        content_type = messages.EVENT_STREAM_TYPE if is_sse else messages.NDJSON_TYPE
        headers = {"Content-Type": content_type, **_HEADERS, **labels}
        self.encoding = Encoding.JSON
        self.response = web.StreamResponse(headers=headers)
        self.is_open = False
        self.is_line_out = False
        """Whether the client may have read the last line that was sent, as a whole."""
        self.ended_with: CoordinatorError | None = None

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send one line; waits while the client's buffers are full."""
        await self.send_encoded(encode_json(body), str(body["type"]), body.get("zxid"))

    async def send_encoded(self, line: bytes, kind: str, zxid: int | None) -> None:
        """Send one line that is JSON already; ``kind`` and ``zxid`` are those in it."""
        if self._is_sse:
            identifier = "" if zxid is None else f"id: {zxid}\n"
            head = f"event: {kind}\n{identifier}data: "
            await self._write(head.encode("ascii"), line, b"\n\n")
        else:
            await self._write(b"", line, b"\n")

    def send_at_once(self, line: bytes) -> bool:
        """Return False: a line goes out in pieces, as its connection takes them."""
        return False

    async def send_error(self, error: CoordinatorError) -> None:
        """Send the last line of a stream that ends with ``error``."""
        self.ended_with = error
        forget_frames(error)  # one of them holds this response, which is kept for the audit
        await self.send(to_body(StreamError(error)))

    async def keep_alive(self) -> None:
        """Send an empty line."""
        await self._write(b"", b":\n" if self._is_sse else b"", b"\n")

    async def end(self) -> None:
        """Say that nothing more comes."""
        await self.response.write_eof()

    async def _write(self, head: bytes, line: bytes, end: bytes) -> None:
        self._refuse_when_silent()
        if not self.is_open:
            self.is_open = True
            await self.response.prepare(self._request)
            self._keep_little()
        # A long line is not copied: many streams that wait may share it.
        is_long = len(line) > _PIECE_BYTES
        parts = (head, memoryview(line), end) if is_long else (head + line + end,)
        is_whole = self.is_line_out = False
        size = sum(map(len, parts))
        try:
            for part in parts:
                for at in range(0, len(part), _PIECE_BYTES):
                    if is_long:
                        self._refuse_when_silent()
                    piece = part[at : at + _PIECE_BYTES]
                    await self.response.write(piece)
                    size -= len(piece)
                    self.is_line_out = size == 0
                    await self._request.writer.drain()
                    if is_long:
                        await asyncio.sleep(0)
            is_whole = True
        finally:
            if is_long and not is_whole and self._request.transport is not None:
                self._request.transport.abort()  # half a line must not look like the last one

    def _refuse_when_silent(self) -> None:
        error = None if self.ended_with else self._why_silent()
        if error is not None:
            raise error

    def _keep_little(self) -> None:
        """Bound what is kept for a client that does not read."""
        if self._request.transport is not None:
            self._request.transport.set_write_buffer_limits(0)
            stream_socket = self._request.transport.get_extra_info("socket")
            if stream_socket is not None:  # in memory there is none
                stream_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _KERNEL_BYTES_MAX)
