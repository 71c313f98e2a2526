"""One connection of a client: aiohttp's protocol with the deadlines and limits it lacks.

aiohttp 3.14 waits without end for the rest of a header or a body and for a client that does not
read, and logs a traceback for each malformed request. Here:

1. Over the limit of connections, in all or from one address: 503 and closed, nothing is parsed.
   But for a few that are *spare*: they may ask how the member is, and end sessions, once each
   (``ASKED_OF_A_FULL_MEMBER``), so a crowd takes neither its health nor its operator away.
2. A complete header within ``header_deadline_ms``, counted from the connection or from the first
   byte of the next request, or the connection is closed. (Bodies have theirs in ``door``.)
3. A client that does not take what is sent to it for ``idle_deadline_ms`` is cut off.
4. A request that is not HTTP gets a 400 problem and one line in the log at debug level.

Three private names of aiohttp are read, because nothing public says the same: ``_request_count``
(a head was parsed), ``_current_request`` (one is being answered) and ``_waiter`` (it waits for the
next one). ``test_server.py``, ``test_bodies_in_part.py`` and ``test_full_member.py`` in
``tests/wire`` fail if they change.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    forget_frames,
    to_problem,
)
from coordinator.wire.admission import Admission, Place
from coordinator.wire.arrival import refusal, release, spare_s
from coordinator.wire.messages import PROBLEM_TYPE
from coordinator.wire.strict_json import encode_json, shortened

logger = logging.getLogger("coordinator.http")

_LINGER_S = 2.0


class HttpConnection(RequestHandler):
    """A client's HTTP connection, with deadlines."""

    __slots__ = (
        "_admission",
        "_at",
        "_header_timer",
        "_heads",
        "_timers",
        "_write_timer",
        "place",
    )

    def __init__(
        self,
        manager: web.Server,
        admission: Admission,
        place: Place,
        at: float,
        *,
        loop: asyncio.AbstractEventLoop,
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
        self._timers = loop
        self._admission = admission
        self.place = place
        self._at = at
        """When the connection was made, on the clock of the loop."""
        self._heads = 0
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    @property
    def full(self) -> str:
        """Why it is one too many, of a spare connection; empty of others."""
        return self.place.full

    # --- the life of the connection, called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the head of a request."""
        super().connection_made(transport)
        if self.place.full:
            self._timers.call_at(self._at + spare_s(self._admission), self._spare_over)
        self._expect_header(self._at)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the timers, and give the place back."""
        self._header_in_time()
        self._taking_again()
        self._admission.leave(self.place)
        transport = self.transport
        super().connection_lost(exc)
        if transport is not None:
            release(transport)

    def data_received(self, data: bytes) -> None:
        """Hand the bytes to aiohttp, and time the head of a request."""
        # aiohttp calls with no data, too, when it goes on reading: nothing has begun by that.
        is_ahead = bool(data) and self._is_whole()
        super().data_received(data)
        if self._request_count != self._heads:
            self._heads = self._request_count
            self._header_in_time()
        elif self._header_timer is None and (is_ahead or (data and self._is_idle())):
            self._expect_header()  # the first bytes of the next request, not all of its header

    def pause_writing(self) -> None:
        """Cut the client off if it takes nothing for too long."""
        super().pause_writing()
        if self._write_timer is None:
            seconds = self._admission.config.idle_deadline_ms / 1_000
            self._write_timer = self._timers.call_later(seconds, self._cut_off)

    def resume_writing(self) -> None:
        """Note that the client takes what is sent again."""
        self._taking_again()
        super().resume_writing()

    # --- deadlines

    def _is_idle(self) -> bool:
        return self._waiter is not None and not self._waiter.done()

    def _is_whole(self) -> bool:
        """Return whether all of the request that is being answered has come."""
        request = self._current_request
        return request is not None and request.content.is_eof()

    def _expect_header(self, since: float | None = None) -> None:
        since = self._timers.time() if since is None else since
        seconds = self._admission.config.header_deadline_ms / 1_000
        self._header_timer = self._timers.call_at(since + seconds, self._header_late)

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
        """The time of a spare connection is over: tell a client that asked nothing why."""
        if self.transport is None or self._current_request is not None:
            return
        assert isinstance(self.transport, asyncio.Transport)
        self.transport.write(refusal(self.full))
        self.transport.close()

    def _cut_off(self) -> None:
        self._write_timer = None
        if self.transport is not None:
            self.transport.abort()  # close() would wait for a client that does not read

    # --- what aiohttp could not read

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
        forget_frames(exc)
        if status >= 500:
            error: CoordinatorError = CoordinatorError(
                "an unexpected failure; see the member's log"
            )
        else:
            reason = shortened(" ".join((message or "").split()))
            logger.debug("not HTTP from %s: %s", self.place.address, ascii(reason))
            error = BadArgumentsError(f"request: expected HTTP/1.1 (RFC 9112), found: {reason}")
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
