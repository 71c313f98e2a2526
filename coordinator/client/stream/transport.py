"""Members over the stream, and over HTTP where they do not know it.

1. A member has one connection, and another when as many requests are under way as it allows; one
   that nothing uses when it would be pinged is then closed.
2. Requests are sent after WELCOME, never with the preface: until then nothing was sent, so what
   fails before is definite, and a member without the stream gets the request by HTTP instead. That
   is remembered for a while.
3. Whom a member names as leader is connected to in the background, if it is one of the client's
   endpoints, and preferred only once that has succeeded; so a leader that cannot be reached costs
   no request anything. What waits for a former leader goes elsewhere unless that one is heard.
4. While a member that owes an answer is silent another one is connected to, which says who leads.
"""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeAlias

from coordinator.client.calling.endpoints import address_of
from coordinator.client.calling.leader import KnownLeader
from coordinator.client.calling.securing import (
    ClientTls,
    cannot_connect,
    connect_secured,
    reason_of,
)
from coordinator.client.calling.transport import (
    Request,
    Response,
    ResponseStream,
    Transport,
    client_closed,
)
from coordinator.client.stream.connection import Connection, ResponseLines
from coordinator.client.stream.patience import (
    CONNECT_MS_MAX,
    FULL_MS,
    HTTP_MS,
    LEADER_AGAIN_MS,
    MAYBE_HTTP_MS,
    WELCOME_MS_MAX,
)
from coordinator.errors import ConnectionLostError, ThrottledError, UnavailableError
from coordinator.wire.encoding import Encoding

_PACKED: str = Encoding.MSGPACK.value
_CONNECT_S_MAX = CONNECT_MS_MAX / 1000
_LEADER_AGAIN_S = LEADER_AGAIN_MS / 1000
_LEADER_AGAIN_S_MAX = 60.0
"""One that cannot be reached is tried more and more rarely, up to this."""

Connect: TypeAlias = Callable[[str, Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Connects a protocol to an endpoint; a test passes its own."""


class StreamTransport:
    """One connection for each member; belongs to one event loop.

    Args:
        leader: is kept up to date; None makes one, which a client of this transport uses.
        label: who this client is, for people.
        http: what members without the stream are reached by; None if they are not.
        connect: what opens a connection; TCP if it is None.
        tls: whom ``https://`` endpoints are trusted by.
    """

    def __init__(
        self,
        leader: KnownLeader | None = None,
        *,
        label: str = "",
        http: Transport | None = None,
        connect: Connect | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self.leader = KnownLeader() if leader is None else leader
        self.leader.on_left = self._leader_left
        self._label = label
        self._http = http
        self.tls = tls or ClientTls()
        self._connect = self._by_tcp if connect is None else connect
        self._ready: dict[str, Connection] = {}
        """By member, the connection that takes the next request."""
        self._connections: dict[str, list[Connection]] = {}
        self._opening: dict[str, asyncio.Task[Connection | None]] = {}
        self._http_until_s: dict[str, float] = {}
        self._left_s: dict[str, float] = {}
        """When a leader failed, by its URL."""
        self._welcoming: set[str] = set()
        """The members that have spoken the stream: one that says nothing now is no other one."""
        self._seeking: asyncio.TimerHandle | None = None
        self._seek_s = _LEADER_AGAIN_S
        self._is_closed = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request once and return the whole response."""
        connection = self.taking(endpoint, request)
        if connection is None:
            connection, timeout_ms = await self.opened_for(endpoint, request, timeout_ms)
            if connection is None:
                http = self.http_instead(endpoint)
                return await http.request(endpoint, _spelt_out(request), timeout_ms)
        return await connection.ask(request, timeout_ms)

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _Streaming:
        """Send a request once and return its response line by line."""
        return _Streaming(self, endpoint, request, timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        if self._seeking is not None:
            self._seeking.cancel()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        for connections in list(self._connections.values()):
            for connection in list(connections):
                connection.close("this client was closed")
        if opening:
            await asyncio.wait(opening, timeout=_CONNECT_S_MAX)
        if self._http is not None:
            await self._http.close()

    def taking(self, endpoint: str, request: Request) -> Connection | None:
        """Return a connection that takes ``request`` now, None if one has to be waited for."""
        connection = self._ready.get(endpoint)
        return connection if connection is not None and connection.takes(request) else None

    def http_instead(self, endpoint: str) -> Transport:
        """Return what a member without the stream is reached by."""
        if self._http is None:
            raise UnavailableError(
                f"{endpoint}: expected a member that speaks the stream, found one that does not, "
                f"or a request longer than it takes; transport='auto' goes on with HTTP",
                endpoint=endpoint,
            )
        return self._http

    # --- connections

    async def opened_for(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> tuple[Connection | None, int]:
        """Return a connection that takes ``request``, and the time that is left.

        None if it is to be sent by HTTP."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        connection = await self._connection(endpoint, request, timeout_ms)
        return connection, max(1, timeout_ms - int((loop.time() - began_s) * 1000))

    async def _connection(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> Connection | None:
        """Return a connection that takes ``request``, None if it is to be sent by HTTP."""
        loop = asyncio.get_running_loop()
        limit_s = min(_CONNECT_S_MAX, timeout_ms / 2000)
        until_s = loop.time() + limit_s
        while not self._is_closed:
            connection = self._ready.get(endpoint)
            if connection is not None and connection.conversation.is_usable:
                if not connection.conversation.fits(request):
                    return None
                if (taking := self._taking(endpoint, request)) is not None:
                    return taking
            if self._http_until_s.get(endpoint, 0) > loop.time():
                return None
            opening = self._open_soon(endpoint)
            await asyncio.wait({opening}, timeout=max(0, until_s - loop.time()))
            if not opening.done():
                raise UnavailableError(
                    f"{endpoint}: cannot connect within {limit_s:g} s", endpoint=endpoint
                )
            if not opening.cancelled() and opening.result() is None:
                return None
        raise client_closed()

    def _taking(self, endpoint: str, request: Request) -> Connection | None:
        """Return one of the connections to ``endpoint`` that has room."""
        for connection in self._connections[endpoint]:
            if connection.takes(request):
                self._ready[endpoint] = connection
                return connection
        return None

    def _open_soon(self, endpoint: str) -> asyncio.Task[Connection | None]:
        opening = self._opening.get(endpoint)
        if opening is None:
            opening = asyncio.get_running_loop().create_task(
                self._open(endpoint), name=f"connect to {endpoint}"
            )
            self._opening[endpoint] = opening
            opening.add_done_callback(lambda task: self._opened(endpoint, task))
        return opening

    def _opened(self, endpoint: str, task: asyncio.Task[Connection | None]) -> None:
        del self._opening[endpoint]
        if task.cancelled() or task.exception() is None or self._is_closed:
            return  # who waits for it sees the error; in the background it does not matter
        if self.leader.url is None and self._ready:
            self._seek_s = min(2 * self._seek_s, _LEADER_AGAIN_S_MAX)
            self._seek_later()

    async def _by_tcp(self, endpoint: str, make: Callable[[], asyncio.Protocol]) -> None:
        host, port = address_of(endpoint)
        if endpoint.startswith("https:"):
            await connect_secured(make, host, port, self.tls.stream())
        else:
            await asyncio.get_running_loop().create_connection(make, host, port)

    async def _open(self, endpoint: str) -> Connection | None:
        connections: list[Connection] = []

        def make() -> asyncio.Protocol:
            connections.append(Connection(endpoint, self._label, self._on_leader, self._on_lost))
            return connections[-1]

        try:
            async with asyncio.timeout(_CONNECT_S_MAX):
                await self._connect(endpoint, make)
        except TimeoutError:
            late = f"{endpoint}: cannot connect within {_CONNECT_S_MAX:g} s"
            raise UnavailableError(late, endpoint=endpoint) from None
        except UnavailableError:
            raise  # of our own, and an OSError
        except (OSError, ValueError) as error:
            raise cannot_connect(endpoint, why_not(error), error) from None
        connection = connections[-1]
        try:
            await asyncio.wait({connection.began}, timeout=WELCOME_MS_MAX / 1000)
        except BaseException:
            connection.close("no request waits for it any more")
            raise
        return self._welcomed(endpoint, connection)

    def _welcomed(self, endpoint: str, connection: Connection) -> Connection | None:
        now_s, conversation = asyncio.get_running_loop().time(), connection.conversation
        if conversation.is_usable:
            others = self._connections.setdefault(endpoint, [])
            others.append(connection)
            connection.is_spare = lambda: len(others) > 1
            connection.liveness.on_silent = partial(self._look_elsewhere, endpoint)
            self._ready[endpoint] = connection
            self._welcoming.add(endpoint)
            self._on_leader(connection, connection.leader_url)
            return connection
        has_answered = connection.began.done()
        connection.close("it has not begun")
        if isinstance(conversation.problem, ThrottledError):
            self._left_s[endpoint] = now_s + FULL_MS / 1000
        if conversation.problem is not None and not conversation.is_misunderstood:
            raise conversation.problem
        is_sure = has_answered and (connection.is_http or conversation.is_misunderstood)
        if not is_sure and endpoint in self._welcoming:
            raise not_welcomed(endpoint)
        self._http_until_s[endpoint] = now_s + (HTTP_MS if is_sure else MAYBE_HTTP_MS) / 1000
        return None

    def _on_lost(self, connection: Connection) -> None:
        endpoint = connection.endpoint
        others = self._connections.get(endpoint, [])
        if connection in others:
            others.remove(connection)
        if self._ready.get(endpoint) is connection:
            del self._ready[endpoint]
            if others:
                self._ready[endpoint] = others[-1]
            elif not self._is_closed:
                self.leader.leave(endpoint)
        if isinstance(connection.conversation.problem, ThrottledError):
            self._left_s[endpoint] = asyncio.get_running_loop().time() + FULL_MS / 1000

    # --- the leader

    def _on_leader(self, connection: Connection, url: str | None) -> None:
        if self._is_closed or self._ready.get(connection.endpoint) is not connection:
            return  # one that is not ready yet is asked again when it is
        named, former = self.leader.endpoint_of(url), self.leader.url
        if named != connection.endpoint and self.leader.url == connection.endpoint:
            self.leader.url = None  # it says itself that it does not lead any more
        if named is None:
            return
        if former is not None and former != named:
            for each in list(self._connections.get(former, ())):
                each.liveness.doubt()
        self._prefer(named)

    def _look_elsewhere(self, silent: str) -> None:
        """Have another member at hand while ``silent`` says nothing."""
        url = self.leader.endpoint_after(silent)
        if self._is_closed or len(self._ready) > 1 or url == silent:
            return
        if self._http_until_s.get(url, 0) <= asyncio.get_running_loop().time():
            self._open_soon(url)

    def _prefer(self, url: str) -> None:
        if url == self.leader.url:
            return
        loop = asyncio.get_running_loop()
        if self._left_s.get(url, -_LEADER_AGAIN_S) + _LEADER_AGAIN_S > loop.time():
            self._seek_later()
        elif url in self._ready:
            self._left_s.pop(url, None)
            self._seek_s = _LEADER_AGAIN_S
            self.leader.url = url
        elif self._http_until_s.get(url, 0) <= loop.time():
            self._open_soon(url)  # when it is welcomed there it hears whether that one leads

    def _leader_left(self, url: str) -> None:
        if not self._is_closed:
            self._left_s[url] = asyncio.get_running_loop().time()
            self._seek_later()

    def _seek_later(self) -> None:
        if self._seeking is None:
            loop = asyncio.get_running_loop()
            self._seeking = loop.call_later(self._seek_s, self._seek)

    def _seek(self) -> None:
        self._seeking = None
        if self._is_closed or self.leader.url is not None:
            return
        named = {self.leader.endpoint_of(each.leader_url) for each in self._ready.values()}
        for url in sorted(each for each in named if each is not None):
            self._prefer(url)


class _Streaming:
    """``async with`` it to stream."""

    def __init__(
        self, transport: StreamTransport, endpoint: str, request: Request, timeout_ms: int
    ) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._request = request
        self._timeout_ms = timeout_ms
        self._lines: ResponseLines | None = None
        self._http_streaming: AbstractAsyncContextManager[ResponseStream] | None = None

    async def __aenter__(self) -> ResponseStream:
        transport, request, timeout_ms = self._transport, self._request, self._timeout_ms
        connection = transport.taking(self._endpoint, request)
        if connection is None:
            connection, timeout_ms = await transport.opened_for(self._endpoint, request, timeout_ms)
            if connection is None:
                return await self._by_http(timeout_ms)
        lines = connection.open_lines(request, timeout_ms)
        try:
            if not lines.has_begun:
                await lines.news()
            lines.check_begun()
            if not lines.has_begun:
                message = f"{self._endpoint}: expected status and headers, found lines or the end"
                raise ConnectionLostError(message, endpoint=self._endpoint)
        except BaseException:
            lines.close()
            raise
        self._lines = lines
        return lines

    async def _by_http(self, timeout_ms: int) -> ResponseStream:
        http = self._transport.http_instead(self._endpoint)
        streaming = http.stream(self._endpoint, _spelt_out(self._request), timeout_ms)
        stream = await streaming.__aenter__()
        self._http_streaming = streaming
        return stream

    async def __aexit__(self, *exception: Any) -> None:
        if self._lines is not None:
            self._lines.close()
        elif self._http_streaming is not None:
            await self._http_streaming.__aexit__(*exception)


def _spelt_out(request: Request) -> Request:
    """Return ``request`` with the headers that go without saying on the stream."""
    given = {name.lower() for name in request.headers}
    headers = dict(request.headers)
    if "accept" not in given:
        headers["accept"] = _PACKED
    if request.body is not None and "content-type" not in given:
        headers["content-type"] = _PACKED
    return request.with_headers(headers)


def not_welcomed(endpoint: str) -> UnavailableError:
    """Return the error of a member that has spoken the stream before and says nothing now."""
    return UnavailableError(
        f"{endpoint}: it took the connection, and said nothing for {WELCOME_MS_MAX} ms",
        endpoint=endpoint,
    )


def why_not(error: OSError | ValueError) -> str:
    """Return what the system says, without the address; of TLS, what to do."""
    number = error.errno if isinstance(error, OSError) else None
    is_tls = isinstance(error, ssl.SSLError)
    if not is_tls and number is not None and number in errno.errorcode:
        return os.strerror(number)
    return reason_of(error)
