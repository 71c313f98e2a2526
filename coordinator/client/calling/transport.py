"""The seam between the client and the network: one request, one response.

1. A transport never retries and never interprets a body; it reports what happened. Nor may a
   library below it retry: the answer to a second request says nothing of the first
   (``_send_once`` of ``http``).
2. ``UnavailableError`` means that nothing was sent (refused, no route, no such host): definite.
3. ``ConnectionLostError`` means that the request may have arrived: indefinite.
4. ``HttpTransport`` is the network; a test passes its own, or ``InProcessTransport``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from coordinator.errors import ClientClosedError


class Headers(dict[str, str]):
    """Headers whose names are in lower case."""

    __slots__ = ()


class Sharing(Protocol):
    """How a request whose lines never end may share those of an equal one."""

    @property
    def key(self) -> Hashable:
        """What requests have in common that may share them. Equal shares begin alike, too."""
        ...

    def first_line(self, last_line: bytes, headers: Mapping[str, str]) -> bytes | None:
        """Return the line with which it begins behind ``last_line``; None if it must not."""
        ...

    def last_line(self, headers: Mapping[str, str]) -> bytes:
        """Return the line with which it ends for who has fallen behind."""
        ...


class Request(Struct, frozen=True, gc=False):
    """``target`` is the path with its query, percent-encoded already.

    ``share``: it need not be sent where an equal one is answered already."""

    method: str
    target: str
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes | None = None
    share: Sharing | None = None

    def with_headers(self, headers: Mapping[str, str]) -> Request:
        """Return the same request with other headers."""
        return replace(self, headers=headers)

    def shared(self, share: Sharing) -> Request:
        """Return the same request, which may share the lines of another one."""
        return replace(self, share=share)


class Response(Struct, frozen=True, gc=False):
    """``headers`` are looked up in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ResponseStream(Protocol):
    """A response whose body is read line by line while it is being written."""

    @property
    def watches_silence(self) -> bool:
        """Whether ``line`` raises ConnectionLostError when the member falls silent.

        If not, a stream without a line, be it blank, for some seconds is to be given up.
        """
        ...

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, their names in lower case."""
        ...

    def line_here(self) -> bytes | None:
        """Return the next line if it has come already, else None."""
        ...

    async def line(self) -> bytes | None:
        """Return the next line without its end, None at the end of the stream."""
        ...

    async def read(self) -> bytes:
        """Return the whole rest; for responses that turned out to be short."""
        ...


def client_closed() -> ClientClosedError:
    """Return the error of a call that begins after its client was closed."""
    return ClientClosedError("this client is closed; connect() makes another one")


class Transport(Protocol):
    """How requests reach a member; ``endpoint`` is its URL."""

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Return the response, whatever its status, within ``timeout_ms``."""
        ...

    def stream(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """Return the response once its headers are there, within ``timeout_ms``."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class LateTransport:
    """A transport that is made for its first request: a short program should not load what it does
    not use."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make = make
        self._made: Transport | None = None
        self._is_closed = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """As the transport that is made does it."""
        return await self._opened().request(endpoint, request, timeout_ms)

    def stream(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> AbstractAsyncContextManager[ResponseStream]:
        """As the transport that is made does it."""
        return self._opened().stream(endpoint, request, timeout_ms)

    async def close(self) -> None:
        """Close it, or make none any more."""
        self._is_closed = True
        if self._made is not None:
            await self._made.close()

    def _opened(self) -> Transport:
        if self._made is None:
            if self._is_closed:
                raise client_closed()
            self._made = self._make()
        return self._made
