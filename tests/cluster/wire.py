"""A small HTTP/1.1 client that never retries and never guesses, for recording histories.

The product's own client hides what a single member answered; a history needs exactly that. Each
``Answer`` says in which of three ways a request ended:

1. ``answered``: a member said what it came to (or refused it as one that can not be done);
2. ``unknown``: a timeout, a lost connection, any 5xx. Also a 503 that calls itself definite: the
   history does not believe it, but ``is_refused`` remembers the claim so that it can be tested;
3. ``never_sent``: no connection could be made.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

Fate = Literal["answered", "unknown", "never_sent"]


@dataclass(frozen=True, slots=True)
class Answer:
    """How one request ended; ``status`` is 0 when nobody answered."""

    fate: Fate
    status: int = 0
    body: Any = None
    headers: Mapping[str, str] | None = None

    @property
    def zxid(self) -> int:
        """The zxid of the state that the answer shows, or that the write made."""
        return int((self.headers or {})["coordinator-zxid"])

    @property
    def code(self) -> str | None:
        """The code of the error, None if it was none."""
        return self.body.get("code") if self.status >= 400 and isinstance(self.body, dict) else None

    @property
    def is_refused(self) -> bool:
        """Whether a member claims that the request certainly has no effect and never will."""
        return self.status >= 400 and isinstance(self.body, dict) and bool(self.body["definite"])


NEVER_SENT = Answer("never_sent")
UNKNOWN = Answer("unknown")


class Wire:
    """Connections to one member, kept alive; one request at a time on each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.failures: list[tuple[float, str]] = []
        """When a request began that was not answered, and how it ended instead."""
        self.answered: list[tuple[float, float]] = []
        """When a request began that was answered, and how long that took."""
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 5.0,
    ) -> Answer:
        """Send once; never raises for what a member or a network does."""
        payload = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}:{self._port}"]
        if body is not None:
            lines.append("Content-Type: application/json")
        lines += [f"Content-Length: {len(payload)}"]
        lines += [f"Coordinator-Timeout-Ms: {max(1, int(timeout_s * 900))}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        data = "\r\n".join([*lines, "", ""]).encode() + payload
        called_at = time.monotonic()
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._exchange(data)
        except TimeoutError:
            answer = UNKNOWN
        if answer.fate == "answered":
            self.answered.append((called_at, time.monotonic() - called_at))
        else:
            code = answer.code or answer.fate
            self.failures.append((called_at, f"{method} {path} {answer.status} {code}"))
        return answer

    async def _exchange(self, data: bytes) -> Answer:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            try:
                reader, writer = await asyncio.open_connection(self._host, self._port)
            except OSError:
                return NEVER_SENT
        is_reusable = False
        try:
            writer.write(data)
            status, headers, body = await _read(reader)
            is_reusable = headers.get("connection", "").lower() != "close"
        except (OSError, EOFError, ValueError):
            return UNKNOWN
        finally:
            if is_reusable:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return Answer("unknown" if status >= 500 else "answered", status, body, headers)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


async def _read(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], Any]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, json.loads(body) if body else None
