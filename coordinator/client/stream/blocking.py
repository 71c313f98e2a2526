"""The stream for threads: a socket for each member, a thread that reads it, callers that wait.

There is no event loop between a caller and the socket. A caller puts its frame behind those of
others and sends what is there, unless somebody else is sending just now and will send it too; then
it sleeps on a lock of its own, which the reading thread opens when the answer is there.

``BlockingTransport`` has the methods of a ``Transport``; their coroutines never suspend, so
``run_here`` runs them in the thread that calls.

1. An interrupt (Ctrl-C) within a send may leave half a frame behind, so it ends the connection.
2. Until WELCOME was read nothing is sent; a member without the stream gets requests by ``instead``.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

from coordinator.client.stream.conversation import Conversation
from coordinator.client.stream.leader import KnownLeader
from coordinator.client.transport import Request, Response
from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ClientClosedError,
    ConnectionLostError,
    CoordinatorError,
    UnavailableError,
)
from coordinator.wire.stream.frames import PREFACE

T = TypeVar("T")

_CONNECT_MS_MAX = 2_000
_HTTP_MS = 60_000
_MAYBE_HTTP_MS = 5_000
_LEADER_AGAIN_MS = 1_000
_READ_BYTES = 256 * 1024
_CLOSE_S_MAX = 1.0
_SEND_S_MAX = 5.0
"""A member that takes nothing for so long is taken for dead."""

Instead = Callable[[str, Request, int], Response]
"""Sends a request in another way and waits for the response."""


def run_here(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, in the thread that calls."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    work.close()
    raise RuntimeError("expected a coroutine that waits in its thread, found one that suspends")


class _Waiter:
    """One caller; ``lock`` is closed until there is something for it."""

    __slots__ = ("error", "lock", "response")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.response: Response | None = None
        self.error: CoordinatorError | None = None

    def on_answer(self, response: Response) -> None:
        if self.response is None and self.error is None:
            self.response = response
            self.lock.release()

    def on_failure(self, error: CoordinatorError) -> None:
        if self.response is None and self.error is None:
            self.error = error
            self.lock.release()

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        self.on_failure(ConnectionLostError(f"expected one answer, found lines ({status})"))

    def on_line(self, body: bytes) -> None:
        """Of what failed already."""

    def on_end(self) -> None:
        """Of what failed already."""


class BlockingConnection:
    """One connection, shared by threads; made by ``opened``."""

    def __init__(
        self,
        endpoint: str,
        connected: socket.socket,
        clock: Clock,
        on_leader: Callable[[BlockingConnection, str | None], None],
        on_lost: Callable[[BlockingConnection], None],
    ) -> None:
        self.endpoint = endpoint
        self.leader_url: str | None = None
        self.is_http = False
        self.began = threading.Event()
        self._socket = connected
        self._clock = clock
        self._on_leader = on_leader
        self._on_lost = on_lost
        self._conversation = Conversation(endpoint, self._note_leader)
        self._guard = threading.Lock()
        """Held around the conversation, for a moment."""
        self._sending = threading.Lock()
        self._heard_ms = clock.monotonic_ms()
        self._reading: threading.Thread | None = None

    @property
    def is_usable(self) -> bool:
        """Whether requests are taken."""
        return self._conversation.is_usable

    @property
    def problem(self) -> CoordinatorError | None:
        """Why the server takes no requests, if it has said so."""
        return self._conversation.problem

    @property
    def is_misunderstood(self) -> bool:
        """Whether the server speaks another version."""
        return self._conversation.welcome is None and self._conversation.is_misunderstood

    def takes(self, request: Request) -> bool:
        """Whether ``request`` may be asked now."""
        return self._conversation.has_room and self._conversation.fits(request)

    def fits(self, request: Request) -> bool:
        """Whether the server reads a frame as long as that of ``request``."""
        return self._conversation.fits(request)

    def begin(self, label: str) -> None:
        """Say hello, and read from now on."""
        self._socket.settimeout(_SEND_S_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._conversation.hello(label)
        self._socket.sendall(PREFACE + self._conversation.take())
        name = f"coordinator stream {self.endpoint}"
        self._reading = threading.Thread(target=self._read, name=name, daemon=True)
        self._reading.start()

    def join(self, timeout_s: float) -> None:
        """Wait until nothing of it is left, once it is closed."""
        if self._reading is not None and self._reading is not threading.current_thread():
            self._reading.join(timeout_s)

    def ask(self, request: Request, timeout_ms: int) -> Response:
        """Send ``request`` and wait for its whole response."""
        waiter = _Waiter()
        conversation = self._conversation
        with self._guard:
            if conversation.is_over:
                raise UnavailableError(
                    f"{self.endpoint}: the connection has ended; nothing was sent",
                    endpoint=self.endpoint,
                )
            number = conversation.ask(request, waiter)
        try:
            self._send()
            is_answered = waiter.lock.acquire(timeout=timeout_ms / 1000)
        except BaseException:
            self._give_up(number)
            raise
        if not is_answered:
            self._late(number, timeout_ms)
            raise ConnectionLostError(
                f"{self.endpoint}: no answer within {timeout_ms} ms", endpoint=self.endpoint
            )
        if waiter.response is None:
            assert waiter.error is not None, "the lock is opened by an answer or by an error"
            raise waiter.error.with_traceback(None)
        return waiter.response

    def close(self, why: str) -> None:
        """End it; what is under way fails."""
        with self._guard:
            is_first = not self._conversation.is_over
            self._conversation.lose(why)
        if is_first:
            self._on_lost(self)
        self.began.set()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it is closed already
        self._socket.close()

    # --- out

    def _send(self) -> None:
        """Send what there is, unless it is being sent: who sends looks again afterwards.

        The thread that reads sends nothing but a PING after a silence: a server whose answers are
        not taken reads nothing, and the two would wait for each other.
        """
        writer = self._conversation.writer
        try:
            while len(writer) and not self._sending.locked():
                with self._sending:
                    with self._guard:
                        data = self._conversation.take()
                    if data:
                        try:
                            self._socket.sendall(data)
                        except OSError as error:
                            self.close(str(error) or type(error).__name__)
        except BaseException:
            self.close("the program was interrupted while it sent a request")
            raise

    def _give_up(self, number: int) -> None:
        with self._guard:
            is_to_tell = self._conversation.cancel(number)
        if is_to_tell:
            self._send()

    def _late(self, number: int, timeout_ms: int) -> None:
        if self._clock.monotonic_ms() - self._heard_ms >= timeout_ms >= _LEADER_AGAIN_MS:
            self.close(f"the server said nothing for {timeout_ms} ms")
        else:
            self._give_up(number)

    # --- in

    def _read(self) -> None:
        try:
            self._read_on()
        finally:
            self.close("the thread that read it has ended")

    def _read_on(self) -> None:
        conversation = self._conversation
        quiet_ms = 0
        while not conversation.is_over:
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                quiet_ms += int(_SEND_S_MAX * 1000)
                self._maybe_ping(quiet_ms)
                continue
            except OSError as error:
                self.close(str(error) or type(error).__name__)
                return
            quiet_ms = 0
            if not data:
                self.is_http = conversation.welcome is None
                self.close("the server closed it")
                return
            if not self._take(data):
                return

    def _take(self, data: bytes) -> bool:
        conversation = self._conversation
        self._heard_ms = self._clock.monotonic_ms()
        try:
            with self._guard:
                conversation.receive(data)
        except BadArgumentsError as error:
            self.is_http = conversation.welcome is None
            self.close(error.message)
            return False
        if not self.began.is_set():
            self.began.set()
        if conversation.problem is not None and not conversation.waiting:
            self.close(conversation.problem.message)
            return False
        return True

    def _maybe_ping(self, quiet_ms: int) -> None:
        welcome = self._conversation.welcome
        if welcome is not None and quiet_ms * 3 >= welcome.idle_ms:
            with self._guard:
                self._conversation.ping()
            self._send()

    def _note_leader(self, url: str | None) -> None:
        self.leader_url = url
        self._on_leader(self, url)


class BlockingTransport:
    """Members for threads; safe to share between them.

    Args:
        clock: the client's.
        leader: is kept up to date.
        label: who this client is, for people.
        instead: what members without the stream are reached by.
    """

    def __init__(self, clock: Clock, leader: KnownLeader, label: str, instead: Instead) -> None:
        self._clock = clock
        self._leader = leader
        leader.on_left = self._leader_left
        self._label = label
        self._instead = instead
        self._ready: dict[str, BlockingConnection] = {}
        self._connections: set[BlockingConnection] = set()
        self._opening: dict[str, threading.Lock] = {}
        self._seeking: set[str] = set()
        self._http_until_ms: dict[str, int] = {}
        self._left_ms: dict[str, int] = {}
        self._is_closed = False

    async def request(self, endpoint: str, request: Request, timeout_ms: int) -> Response:
        """Send a request once and return the whole response; waits in this thread."""
        connection = self._ready.get(endpoint)
        if connection is None or not connection.takes(request):
            began_ms = self._clock.monotonic_ms()
            connection = self._connection(endpoint, request, timeout_ms)
            timeout_ms = max(1, timeout_ms - (self._clock.monotonic_ms() - began_ms))
            if connection is None:
                return self._instead(endpoint, request, timeout_ms)
        if self._leader.url is None:
            self._look_for_leader(connection)
        return connection.ask(request, timeout_ms)

    def stream(self, endpoint: str, request: Request, timeout_ms: int) -> Any:
        """Lines are read in the client's event loop, not here."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        closing = list(self._connections)
        for connection in closing:
            connection.close("this client was closed")
        for connection in closing:
            connection.join(_CLOSE_S_MAX)

    def _connection(
        self, endpoint: str, request: Request, timeout_ms: int
    ) -> BlockingConnection | None:
        """Return a connection that takes ``request``, None if it goes another way."""
        limit_ms = min(_CONNECT_MS_MAX, timeout_ms // 2)
        opening = self._opening.setdefault(endpoint, threading.Lock())
        if not opening.acquire(timeout=limit_ms / 1000):
            raise UnavailableError(
                f"{endpoint}: cannot connect within {limit_ms} ms", endpoint=endpoint
            )
        try:
            connection = self._ready.get(endpoint)
            if connection is not None and connection.is_usable:
                if connection.takes(request):
                    return connection
                return None  # too long, or too many at once: the other way has room
            if endpoint.startswith("https:"):
                return None
            if self._http_until_ms.get(endpoint, 0) > self._clock.monotonic_ms():
                return None
            connection = self._open(endpoint, limit_ms)
            return connection if connection is not None and connection.fits(request) else None
        finally:
            opening.release()

    def _open(self, endpoint: str, limit_ms: int) -> BlockingConnection | None:
        if self._is_closed:
            raise ClientClosedError("the transport of this client is closed")
        parts = urlsplit(endpoint)
        try:
            address = (parts.hostname or "", parts.port or 80)
            connected = socket.create_connection(address, timeout=max(0.001, limit_ms / 1000))
        except (OSError, ValueError) as error:
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number is not None and number > 0 else str(error)
            raise UnavailableError(
                f"{endpoint}: cannot connect: {why}", endpoint=endpoint
            ) from None
        connection = BlockingConnection(
            endpoint, connected, self._clock, self._on_leader, self._on_lost
        )
        try:
            connection.begin(self._label)
            has_answered = connection.began.wait(_CONNECT_MS_MAX / 1000)
        except OSError as error:
            connection.close(str(error))
            raise UnavailableError(
                f"{endpoint}: cannot connect: {error}", endpoint=endpoint
            ) from None
        except BaseException:
            connection.close("the program was interrupted while it connected")
            raise
        if connection.is_usable:
            self._connections.add(connection)
            self._ready[endpoint] = connection
            if self._is_closed:
                connection.close("this client was closed")
            return connection
        connection.close("it has not begun")
        if connection.problem is not None and not connection.is_misunderstood:
            raise connection.problem
        is_sure = has_answered and (connection.is_http or connection.is_misunderstood)
        wait_ms = _HTTP_MS if is_sure else _MAYBE_HTTP_MS
        self._http_until_ms[endpoint] = self._clock.monotonic_ms() + wait_ms
        return None

    def _on_lost(self, connection: BlockingConnection) -> None:
        self._connections.discard(connection)
        if self._ready.get(connection.endpoint) is connection:
            del self._ready[connection.endpoint]
            self._leader.leave(connection.endpoint)

    # --- the leader

    def _on_leader(self, connection: BlockingConnection, url: str | None) -> None:
        named = None if url is None else url.rstrip("/")
        if named != connection.endpoint and self._leader.url == connection.endpoint:
            self._leader.url = None  # it says itself that it does not lead any more
        elif named is not None and named in self._ready and self._may_lead(named):
            self._leader.url = named

    def _look_for_leader(self, connection: BlockingConnection) -> None:
        """Prefer whom ``connection`` names; connect to it in the background if need be."""
        url = connection.leader_url
        if url is None or self._is_closed:
            return
        url = url.rstrip("/")
        if url in self._seeking or not self._may_lead(url):
            return
        if url in self._ready:
            self._leader.url = url
        elif url.startswith("http://"):
            self._seeking.add(url)
            threading.Thread(target=self._seek, args=(url,), daemon=True).start()

    def _seek(self, url: str) -> None:
        try:
            self._connection(url, Request("GET", "/"), 2 * _CONNECT_MS_MAX)
        except CoordinatorError:
            self._leader_left(url)
        finally:
            self._seeking.discard(url)

    def _may_lead(self, url: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        if self._http_until_ms.get(url, 0) > now_ms:
            return False
        return self._left_ms.get(url, -_LEADER_AGAIN_MS) + _LEADER_AGAIN_MS <= now_ms

    def _leader_left(self, url: str) -> None:
        self._left_ms[url] = self._clock.monotonic_ms()
