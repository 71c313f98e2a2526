"""Requests over HTTP, by aiohttp: loaded by those who use it, since that takes a third of the time
in which all of the client is loaded."""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from coordinator.client.calling.securing import ClientTls, cannot_connect, reason_of
from coordinator.client.calling.transport import Request, Response, ResponseStream, client_closed
from coordinator.errors import ConnectionLostError, UnavailableError
from coordinator.tls.wording import is_refusal

_CONNECT_TIMEOUT_S_MAX = 2.0
_RESPONSE_BYTES_MAX = 64 * 1024 * 1024
_STREAM_LINE_BYTES_MAX = 16 * 1024 * 1024


class _HttpStream:
    watches_silence = False

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._buffer = bytearray()
        self._searched = 0

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return _lower(self._response)

    def line_here(self) -> bytes | None:
        return None  # ``line`` says

    async def line(self) -> bytes | None:
        while True:
            end = self._buffer.find(b"\n", self._searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                self._searched = 0
                return line
            self._searched = len(self._buffer)
            if self._searched > _STREAM_LINE_BYTES_MAX:
                raise ConnectionLostError(
                    f"expected a line of at most {_STREAM_LINE_BYTES_MAX} bytes, found more"
                )
            try:
                piece = await self._response.content.readany()
            except (aiohttp.ClientError, OSError) as error:
                raise ConnectionLostError(f"the stream broke: {_reason(error)}") from error
            if not piece:
                return self._rest()
            self._buffer += piece

    def _rest(self) -> bytes | None:
        """Return a body that came as a whole and is no line; of a stream nothing is left over."""
        if self._response.content_length is None or not self._buffer:
            return None  # what is not ended was cut off
        rest = bytes(self._buffer)
        self._buffer.clear()
        return rest

    async def read(self) -> bytes:
        try:
            return bytes(self._buffer) + await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLostError(f"the stream broke: {_reason(error)}") from error


class _BrokenError(Exception):
    """A connection broke after something may have been sent on it."""

    is_refusal = False
    """Whether the member refused the certificate, before it read anything."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Send ``request`` at most once, whatever its method.

    aiohttp sends PUT and DELETE again unasked when a kept connection breaks (RFC 9112, 9.3.1
    allows it). If the second sending is refused, its error says that nothing was sent, although
    the first sending may have taken effect. aiohttp repeats only its own errors, so this one ends
    the request.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise  # there was no connection to send on
    except (aiohttp.ClientError, OSError) as error:
        broken = _BrokenError(_reason(error))
        broken.is_refusal = is_refusal(error.__cause__ or error.__context__)
        raise broken from error


class HttpTransport:
    """Members over HTTP; connections are kept and shared. Belongs to one event loop.

    ``connector`` makes what replaces the sockets; ``InProcessTransport`` passes its own. ``tls`` is
    what ``https://`` endpoints are connected to with.
    """

    def __init__(
        self,
        *,
        connections_max: int = 0,
        tls: ClientTls | None = None,
        connector: Callable[[], aiohttp.BaseConnector] | None = None,
    ) -> None:
        self._connections_max = connections_max
        self._tls = tls or ClientTls()
        self._connector = connector
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        self._streams: weakref.WeakSet[_HttpStreaming] = weakref.WeakSet()

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request once and return the whole response."""
        scope = asyncio.timeout(timeout_ms / 1000)
        try:
            async with scope, await self.sent(endpoint, request, timeout_ms) as response:
                body = await _whole_body(endpoint, response)
                scope.reschedule(None)
                return Response(response.status, _lower(response), body)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise _too_late(endpoint, timeout_ms) from error

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _HttpStreaming:
        """Send a request once and return its response line by line."""
        streaming = _HttpStreaming(self, endpoint, request, timeout_ms)
        self._streams.add(streaming)
        return streaming

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        for streaming in list(self._streams):
            streaming.let_go()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def sent(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> aiohttp.ClientResponse:
        """Send ``request`` and return the response once its headers are there.

        The caller bounds how long that takes; ``timeout_ms`` bounds the connecting in it.
        """
        connect_s = min(_CONNECT_TIMEOUT_S_MAX, timeout_ms / 2000)
        try:
            return await self._opened().request(
                request.method,
                URL(endpoint + request.target, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
                ssl=self._tls.http() if endpoint.startswith("https:") else True,
                timeout=aiohttp.ClientTimeout(connect=connect_s, ceil_threshold=3600),
            )
        except UnavailableError:
            raise  # of our own, and an OSError
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            # The text says it: what lies below is aiohttp's.
            reason = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
            raise cannot_connect(endpoint, _why_not(error), reason) from None
        except aiohttp.InvalidURL as error:
            raise UnavailableError(
                f"endpoint: expected the URL of a member, as http://host:7070, found {endpoint!r}"
            ) from error
        except (_BrokenError, aiohttp.ClientError, OSError) as error:
            if isinstance(error, _BrokenError) and error.is_refusal:
                raise cannot_connect(endpoint, _reason(error)) from None
            raise ConnectionLostError(
                f"{endpoint}: the connection broke before the answer: {_reason(error)}",
                endpoint=endpoint,
            ) from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            raise client_closed()
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=self._connector()
                if self._connector is not None
                else aiohttp.TCPConnector(limit=self._connections_max),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                read_bufsize=256 * 1024,
                middlewares=(_send_once,),
            )
        return self._session


class _HttpStreaming:
    """``async with`` it to stream; a class, so that one left open leaves no generator."""

    def __init__(
        self, transport: HttpTransport, endpoint: str, request: Request, timeout_ms: int
    ) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._request = request
        self._timeout_ms = timeout_ms
        self._response: aiohttp.ClientResponse | None = None

    async def __aenter__(self) -> ResponseStream:
        scope = asyncio.timeout(self._timeout_ms / 1000)
        try:
            async with scope:
                self._response = await self._transport.sent(
                    self._endpoint, self._request, self._timeout_ms
                )
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise _too_late(self._endpoint, self._timeout_ms) from error
        return _HttpStream(self._response)  # silence is the reader's to judge from here on

    async def __aexit__(self, *_exception: object) -> None:
        self.let_go()

    def let_go(self) -> None:
        """Show the member that this client has stopped listening."""
        if self._response is not None:
            self._response.close()


async def _whole_body(endpoint: str, response: aiohttp.ClientResponse) -> bytes:
    try:
        body = await response.content.read(_RESPONSE_BYTES_MAX + 1)
        while not response.content.at_eof() and len(body) <= _RESPONSE_BYTES_MAX:
            body += await response.content.readany()
    except (aiohttp.ClientError, OSError) as error:
        raise ConnectionLostError(
            f"{endpoint}: the connection broke within the answer: {_reason(error)}"
        ) from error
    if len(body) > _RESPONSE_BYTES_MAX:
        raise ConnectionLostError(
            f"{endpoint}: expected an answer of at most {_RESPONSE_BYTES_MAX} bytes, found more"
        )
    return body


def _too_late(endpoint: str, timeout_ms: int) -> ConnectionLostError:
    return ConnectionLostError(f"{endpoint}: no answer within {timeout_ms} ms", endpoint=endpoint)


def _lower(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _why_not(error: aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError) -> str:
    """Return what the system says, without the address, which is there already."""
    reason = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = error.certificate_error  # type: ignore[assignment]
    if isinstance(reason, ssl.SSLError):
        return reason_of(reason)
    if isinstance(reason, OSError) and reason.errno is not None and reason.errno > 0:
        return os.strerror(reason.errno)
    return _reason(error)


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error.__context__
    return reason_of(cause if isinstance(cause, ssl.SSLError) else error)
