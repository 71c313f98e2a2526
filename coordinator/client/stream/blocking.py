"""The stream for threads: members, each by a connection that the threads share.

There is no event loop between a caller and the socket. ``BlockingTransport`` has the methods of a
``Transport``; their coroutines never suspend, so ``run_here`` runs them in the thread that calls.

1. Until WELCOME was read nothing is sent; a member without the stream gets requests by ``instead``,
   and nothing that is answered in lines.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from coordinator.client.securing import ClientTls, cannot_connect
from coordinator.client.stream.blocking_connection import BlockingConnection
from coordinator.client.stream.blocking_waiters import BlockingLines
from coordinator.client.stream.endpoints import address_of, not_welcomed, why_not
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.stream.patience import (
    CONNECT_MS_MAX,
    FULL_MS,
    HTTP_MS,
    LEADER_AGAIN_MS,
    MAYBE_HTTP_MS,
    WELCOME_MS_MAX,
)
from coordinator.client.stream.sockets import SecuredBytes, secure
from coordinator.client.transport import NotByStreamError, Request, Response, client_closed
from coordinator.clock import Clock
from coordinator.errors import CoordinatorError, ThrottledError, UnavailableError, caused

_CLOSE_S_MAX = 1.0

Instead = Callable[[str, Request, int], Response]
"""Sends a request in another way and waits for the response."""


class _Opening:
    """A connection that is being opened; ``connection`` None at last: the member has no stream."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.connection: BlockingConnection | None = None
        self.error: CoordinatorError | None = None


class BlockingTransport:
    """Members for threads; safe to share between them.

    Args:
        clock: the client's.
        leader: is kept up to date.
        label: who this client is, for people.
        instead: what members without the stream are reached by.
        tls: whom ``https://`` endpoints are trusted by.
    """

    def __init__(
        self,
        clock: Clock,
        leader: KnownLeader,
        label: str,
        instead: Instead,
        tls: ClientTls | None = None,
    ) -> None:
        self._clock = clock
        self._leader = leader
        leader.on_left = self._leader_left
        self._label = label
        self._instead = instead
        self._tls = tls or ClientTls()
        self._ready: dict[str, BlockingConnection] = {}
        self._connections: set[BlockingConnection] = set()
        self._opening: dict[str, _Opening] = {}
        self._guard = threading.Lock()
        """Held around ``_opening``."""
        self._http_until_ms: dict[str, int] = {}
        self._welcoming: set[str] = set()
        """The members that have spoken the stream: one that says nothing now is no other one."""
        self._left_ms: dict[str, int] = {}
        self._is_closed = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request once and return the whole response; waits in this thread."""
        connection, timeout_ms = self._taking(endpoint, request, timeout_ms)
        if connection is None:
            return self._instead(endpoint, request, timeout_ms)
        return connection.ask(request, timeout_ms)

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> _Streaming:
        """Send a request once and return its response line by line; waits in this thread."""
        return _Streaming(self, endpoint, request, timeout_ms)

    def lines(self, endpoint: str, request: Request, timeout_ms: int) -> BlockingLines:
        """Return the lines once they have begun.

        Raises:
            NotByStreamError: nothing was sent.
        """
        connection, timeout_ms = self._taking(endpoint, request, timeout_ms)
        if connection is None:
            raise NotByStreamError
        return connection.open_lines(request, timeout_ms)

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        closing = list(self._connections)
        for connection in closing:
            connection.close("this client was closed")
        for connection in closing:
            connection.join(_CLOSE_S_MAX)

    def _taking(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> tuple[BlockingConnection | None, int]:
        """Return a connection that takes ``request``, if one does, and the time that is left."""
        connection = self._ready.get(endpoint)
        if connection is None or connection.is_silent or not connection.conversation.takes(request):
            began_ms = self._clock.monotonic_ms()
            connection = self._connection(endpoint, request, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._clock.monotonic_ms() - began_ms))
        if connection is not None and self._leader.url is None:
            self._look_for_leader(connection)
        return connection, timeout_ms

    def _connection(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> BlockingConnection | None:
        """Return a connection that takes ``request``, None if it goes another way."""
        connection = self._ready.get(endpoint)
        if connection is None or connection.is_silent or not connection.conversation.is_usable:
            if self._http_until_ms.get(endpoint, 0) > self._clock.monotonic_ms():
                return None
            limit_ms = min(CONNECT_MS_MAX, timeout_ms // 2)
            opening = self._open_soon(endpoint)
            if not opening.is_done.wait(limit_ms / 1000):
                raise UnavailableError(
                    f"{endpoint}: cannot connect within {limit_ms} ms", endpoint=endpoint
                )
            if opening.error is not None:
                raise opening.error.with_traceback(None)
            connection = opening.connection
        if connection is None or not connection.conversation.takes(request):
            return None  # too long, or too many at once: the other way has room
        return connection

    def _open_soon(self, endpoint: str) -> _Opening:
        """Begin to connect, in a thread, which no interrupt stops half-way; all share it."""
        if self._is_closed:
            raise client_closed()
        with self._guard:
            opening = self._opening.get(endpoint)
            if opening is None:
                opening = _Opening()
                threading.Thread(
                    target=self._open,
                    args=(endpoint, opening),
                    name=f"connect to {endpoint}",
                    daemon=True,
                ).start()
                self._opening[endpoint] = opening
        return opening

    def _open(self, endpoint: str, opening: _Opening) -> None:
        try:
            opening.connection = self._opened(endpoint)
        except CoordinatorError as error:
            opening.error = error
            self._leader_left(endpoint, error)
        except Exception as error:  # the root of its thread: a caller waits for it
            opening.error = UnavailableError(f"{endpoint}: cannot connect: {error!r}")
        finally:
            with self._guard:
                self._opening.pop(endpoint, None)
            opening.is_done.set()

    def _opened(self, endpoint: str) -> BlockingConnection | None:
        """Return a new connection, None if the member does not speak the stream."""
        secured = None
        try:
            connected = socket.create_connection(
                address_of(endpoint), timeout=CONNECT_MS_MAX / 1000
            )
            if endpoint.startswith("https:"):
                secured = self._secured(connected, endpoint)
        except UnavailableError:
            raise  # of our own, and an OSError
        except (OSError, ValueError) as error:
            raise caused(cannot_connect(endpoint, why_not(error), error), None) from None
        connection = BlockingConnection(
            endpoint, connected, self._clock, self._on_leader, self._on_lost, secured
        )
        connection.on_silent = self._look_elsewhere
        try:
            connection.begin(self._label)
        except OSError as error:
            connection.close(str(error))
            raise caused(cannot_connect(endpoint, why_not(error), error), None) from None
        has_answered = connection.began.wait(WELCOME_MS_MAX / 1000)
        if connection.conversation.is_usable:
            self._connections.add(connection)
            self._ready[endpoint] = connection
            self._welcoming.add(endpoint)
            if self._is_closed:
                connection.close("this client was closed")
            if connection.conversation.is_over:
                self._on_lost(connection)  # it was not known here yet when it was lost
            return connection
        connection.close("it has not begun")
        conversation = connection.conversation
        if conversation.problem is not None and not conversation.is_misunderstood:
            raise conversation.problem
        is_sure = has_answered and (connection.is_http or conversation.is_misunderstood)
        if not is_sure and endpoint in self._welcoming:
            raise not_welcomed(endpoint)
        wait_ms = HTTP_MS if is_sure else MAYBE_HTTP_MS
        self._http_until_ms[endpoint] = self._clock.monotonic_ms() + wait_ms
        return None

    def _secured(self, connected: socket.socket, endpoint: str) -> SecuredBytes:
        try:
            host, _ = address_of(endpoint)
            return secure(connected, self._tls.stream(), host, self._clock, CONNECT_MS_MAX)
        except BaseException:
            connected.close()
            raise

    def _on_lost(self, connection: BlockingConnection) -> None:
        self._connections.discard(connection)
        if self._ready.get(connection.endpoint) is connection:
            del self._ready[connection.endpoint]
            self._leader.leave(connection.endpoint)
            self._leader_left(connection.endpoint, connection.conversation.problem)

    # --- the leader

    def _on_leader(self, connection: BlockingConnection, url: str | None) -> None:
        connection.leader_url = named = self._leader.endpoint_of(url)
        former = self._leader.url
        if named != connection.endpoint and former == connection.endpoint:
            self._leader.url = None  # it says itself that it does not lead any more
        elif named is not None and named in self._ready and self._may_lead(named):
            self._leader.url = named
        doubted = self._ready.get(former) if former and named not in (None, former) else None
        if doubted is not None and doubted is not connection:
            doubted.doubt()

    def _look_elsewhere(self, silent: BlockingConnection) -> None:
        """Have another member at hand while ``silent`` says nothing."""
        url = self._leader.endpoint_after(silent.endpoint)
        if self._is_closed or len(self._ready) > 1 or url == silent.endpoint:
            return
        if self._may_lead(url):
            self._open_soon(url)

    def _look_for_leader(self, connection: BlockingConnection) -> None:
        """Prefer whom ``connection`` names; connect to it in the background if need be."""
        url = connection.leader_url
        if url is None or self._is_closed:
            return
        if url in self._opening or not self._may_lead(url):
            return
        if url in self._ready:
            self._leader.url = url
        else:
            self._open_soon(url)

    def _may_lead(self, url: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._http_until_ms.get(url, 0) > now_ms:
            return False
        return self._left_ms.get(url, -LEADER_AGAIN_MS) + LEADER_AGAIN_MS <= now_ms

    def _leader_left(self, url: str, why: CoordinatorError | None = None) -> None:
        is_full = isinstance(why, ThrottledError)
        self._left_ms[url] = self._clock.monotonic_ms() + FULL_MS * is_full


class _Streaming:
    """``async with`` it to stream; waits in the thread."""

    def __init__(
        self, transport: BlockingTransport, endpoint: str, request: Request, timeout_ms: int
    ) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._request = request
        self._timeout_ms = timeout_ms
        self._lines: BlockingLines | None = None

    async def __aenter__(self) -> BlockingLines:
        self._lines = self._transport.lines(self._endpoint, self._request, self._timeout_ms)
        return self._lines

    async def __aexit__(self, *_exception: object) -> None:
        if self._lines is not None:
            self._lines.close()
