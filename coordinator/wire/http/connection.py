"""One connection of a client: aiohttp's protocol with the deadlines and limits it lacks.

aiohttp 3.14 waits for ever for the rest of a header, for the rest of a body and for a client that
does not read, and logs a traceback for each malformed request. Here:

1. Over the limit of connections, in all or from one address: 503 and closed, nothing is parsed.
   But for a few that are *spare*: they may ask how the member is, and end sessions, once each
   (``ASKED_OF_A_FULL_MEMBER``), so a crowd takes neither its health nor its operator away.
2. A complete header within ``header_deadline_ms``, counted from the connection or from the first
   byte of the next request, or the connection is closed. (Bodies have theirs in ``door``.)
3. A client that does not take what is sent to it for ``idle_deadline_ms`` is cut off.
4. A request that is not HTTP gets a 400 problem and one line in the log at debug level.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from coordinator.config import HttpConfig
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    ThrottledError,
    to_problem,
)
from coordinator.wire.addresses import network_of
from coordinator.wire.messages import PROBLEM_TYPE
from coordinator.wire.strict_json import encode_json, shortened

logger = logging.getLogger("coordinator.http")

_REFUSAL_LINGER_S = 0.5
_REFUSALS_LINGERING_MAX = 100
_LINGER_S = 2.0
SPARE_MAX = 64
"""Connections beyond ``connections_max``, for a second each."""
_SPARE_PER_ADDRESS_MAX = 8
_SPARE_S = 1.0
ASKED_OF_A_FULL_MEMBER = frozenset(
    {
        ("GET", "/health/live"), ("HEAD", "/health/live"),
        ("GET", "/health/ready"), ("HEAD", "/health/ready"),
        ("GET", "/metrics"), ("GET", "/v1/status"), ("GET", "/v1/sessions"),
        ("DELETE", "/v1/sessions/{session_id}"),
    }
)  # fmt: skip
"""What a spare connection may ask for, by method and template."""


@dataclass(slots=True)
class Admission:
    """Who is connected: in all, and by address."""

    config: HttpConfig
    by_address: Counter[str] = field(default_factory=Counter)
    total: int = 0
    lingering: int = 0
    spare: set[Connection] = field(default_factory=set)

    def has_spare(self, address: str) -> bool:
        """Whether one more connection from ``address`` may be let in to ask for a little: not for
        one address that has its share, but for all together."""
        if self.by_address[address] >= self.config.connections_per_address_max:
            return False
        own = sum([each.address == address for each in self.spare])
        return len(self.spare) < SPARE_MAX and own < _SPARE_PER_ADDRESS_MAX

    def refusal(self, address: str) -> str | None:
        """Return why one more connection from ``address`` is too many, None if it is not."""
        if self.total >= self.config.connections_max:
            return f"expected at most {self.config.connections_max} connections"
        if self.by_address[address] >= self.config.connections_per_address_max:
            maximum = self.config.connections_per_address_max
            return f"expected at most {maximum} connections from one address"
        return None

    def enter(self, address: str) -> None:
        self.total += 1
        self.by_address[address] += 1

    def leave(self, address: str) -> None:
        self.total -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]


class Connection(RequestHandler):
    """A client's connection, watched."""

    __slots__ = (
        "_admission",
        "_header_timer",
        "_heads",
        "_refused",
        "_write_timer",
        "address",
        "full",
    )

    def __init__(
        self, manager: web.Server, admission: Admission, *, loop: asyncio.AbstractEventLoop
    ) -> None:
        config = admission.config
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=config.idle_deadline_ms / 1_000,
            access_log=None,  # type: ignore[arg-type]
            lingering_time=_LINGER_S,
            auto_decompress=False,
            logger=logger,
        )
        self._admission = admission
        self.address = ""
        self.full = ""
        """Why it is one too many, of a spare connection; empty of others."""
        self._heads = 0
        self._refused = False
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    # --- the life of the connection, told by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peer = transport.get_extra_info("peername")
        self.address = network_of(str(peer[0])) if isinstance(peer, tuple) else ""
        reason = self._admission.refusal(self.address)
        if reason is not None and not self._admission.has_spare(self.address):
            self._refused = True
            assert isinstance(transport, asyncio.Transport)
            self._refuse(transport, reason)
            return
        if reason is not None:
            self.full = reason
            self._admission.spare.add(self)
            idle_s = self._admission.config.idle_deadline_ms / 1_000
            self._loop.call_later(min(_SPARE_S, idle_s / 2), self._spare_over)
        else:
            self._admission.enter(self.address)
        super().connection_made(transport)
        self._expect_header()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._header_in_time()
        self._taking_again()
        if self._refused:
            self._admission.lingering -= 1
        elif self.full:
            self._admission.spare.discard(self)
        else:
            self._admission.leave(self.address)
        transport = self.transport
        super().connection_lost(exc)
        if transport is not None and hasattr(transport, "_read_ready_cb"):
            # Python's transport holds on to itself by this: a cycle for each connection that ends,
            # which nobody collects once it was put aside (``coordinator.garbage``).
            transport._read_ready_cb = _nothing_to_read

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        # aiohttp calls with no data, too, when it goes on reading: nothing has begun by that.
        is_ahead = bool(data) and self._is_whole()
        super().data_received(data)
        if self._request_count != self._heads:
            self._heads = self._request_count
            self._header_in_time()
        elif self._header_timer is None and (is_ahead or (data and self._is_idle())):
            self._expect_header()  # the first bytes of the next request, not all of its header

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            seconds = self._admission.config.idle_deadline_ms / 1_000
            self._write_timer = self._loop.call_later(seconds, self._cut_off)

    def resume_writing(self) -> None:
        self._taking_again()
        super().resume_writing()

    # --- deadlines

    def _is_idle(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _is_whole(self) -> bool:
        """Return whether all of the request that is being answered has come."""
        request = self._current_request
        return request is not None and request.content.is_eof()

    def _expect_header(self) -> None:
        seconds = self._admission.config.header_deadline_ms / 1_000
        self._header_timer = self._loop.call_later(seconds, self._header_late)

    def _header_in_time(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _header_late(self) -> None:
        self._header_timer = None
        if self._current_request is not None:
            self._expect_header()  # sent ahead of its time: it may wait for the one that runs
            return
        self.force_close()

    def _taking_again(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _spare_over(self) -> None:
        """Its second is over: who asked nothing is told why, as others are."""
        if self.transport is None or self._current_request is not None:
            return
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(_REFUSED % _problem(ThrottledError(self.full), status=503))
        self.transport.close()

    def _cut_off(self) -> None:
        self._write_timer = None
        if self.transport is not None:
            self.transport.abort()  # close() would wait for a client that does not read

    # --- refusals

    def _refuse(self, transport: asyncio.Transport, reason: str) -> None:
        """Answer 503 and go; wait a moment for the client to read it before the port is reset."""
        self._admission.lingering += 1
        transport.write(_REFUSED % _problem(ThrottledError(reason), status=503))
        if self._admission.lingering > _REFUSALS_LINGERING_MAX or not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:
            transport.abort()  # it hung up while it waited to be taken
            return
        self._loop.call_later(_REFUSAL_LINGER_S, transport.abort)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what aiohttp could not read, or could not send; always the last response."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response was begun and cannot be replaced")
        if status >= 500:
            logger.error("a response could not be made", exc_info=exc)
            error: CoordinatorError = CoordinatorError("an unexpected failure")
        else:
            said = shortened(" ".join((message or "").split()))
            logger.debug("not HTTP from %s: %s", self.address, ascii(said))
            error = BadArgumentsError(f"request: expected HTTP/1.1 (RFC 9112), found: {said}")
        response = web.Response(
            body=encode_json(to_problem(error)),
            status=status,
            headers={"Content-Type": PROBLEM_TYPE, "Server": "coordinator"},
        )
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log what aiohttp cannot explain; a client's mistake never comes here."""
        logger.error(*args, **kw)


def _nothing_to_read() -> None:
    """What is left of a connection that has ended."""


_REFUSED = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: "
    + PROBLEM_TYPE.encode("ascii")
    + b"\r\nRetry-After: 1\r\nConnection: close\r\n%b"
)


def _problem(error: ThrottledError, *, status: int) -> bytes:
    body = json.dumps({**to_problem(error), "status": status}).encode("ascii")
    return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
