"""The client's side of one connection of the stream, as frames. No I/O, no clock.

1. A request that was written and not answered when the connection ends is indefinite, one that was
   not written yet definite. ``sent`` says up to where frames were written.
2. An answer to a request that was given up is skipped; one to a request that was never sent is a
   mistake of the server, and ends the connection.
3. The credential is sent once, before the first request, and again when it changes.
4. After GOAWAY nothing is asked; those under way may still be answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from coordinator.client.calling.transport import Headers, Request, Response
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    ThrottledError,
    UnavailableError,
    from_problem,
)
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages import AUTHORIZATION
from coordinator.wire.stream import frames

_FULL = b"HTTP/1.1 503 "
"""How a member answers, or a proxy before it, that takes no more connections."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_PACKED = Encoding.MSGPACK.value
_PLAIN_HEADERS = {"content-type": _PACKED}


class Waiter(Protocol):
    """The receiver of all that is answered to one request."""

    def on_answer(self, response: Response) -> None:
        """Take the whole response."""
        ...

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the begin of a response that goes on."""
        ...

    def on_line(self, body: bytes) -> None:
        """Take one line of it."""
        ...

    def on_end(self) -> None:
        """Nothing more comes."""
        ...

    def on_failure(self, error: CoordinatorError) -> None:
        """Nothing comes: the connection has ended."""
        ...


class Conversation:
    """Requests out, frames in."""

    def __init__(self, endpoint: str, on_leader: Callable[[str | None], None]) -> None:
        self.endpoint = endpoint
        self.writer = frames.FrameWriter()
        """What is to be sent; the owner takes it."""
        self.welcome: frames.WelcomeSettings | None = None
        self.waiting: dict[int, Waiter] = {}
        """The requests under way, by id."""
        self.problem: CoordinatorError | None = None
        """Why no more requests are taken; None while they are."""
        self.is_misunderstood = False
        """Whether the server does not take what is said here: it speaks another version."""
        self.is_over = False
        self.pong = 0
        """The number of the last PONG."""
        self.unheard_bytes = 0
        """How much was sent since the server was heard last: its answer comes behind all of it."""
        self._reader = frames.from_server(ANSWER_BYTES_MAX)
        self._on_leader = on_leader
        self._body_bytes_max = 0
        self._last_id = 0
        self._sent_id = 0
        self._pings = 0
        self._authorization: str | None = None
        """What the client shows to prove who it is, as it was sent last."""

    @property
    def is_usable(self) -> bool:
        """Whether the server takes requests."""
        return self.welcome is not None and self.problem is None and not self.is_over

    # --- out

    def hello(self, label: str) -> None:
        """Begin the conversation: put the greeting into what is to be sent."""
        self.writer.add(frames.Hello(frames.VERSION, frames.HelloSettings(label=label[:256])))

    def ask(self, request: Request, waiter: Waiter) -> int:
        """Put ``request`` behind what is to be sent; return its id. There is room for it."""
        self._last_id = number = self._last_id + 1
        headers = request.headers
        if type(headers) is not Headers:
            headers = _short(headers)
        authorization = headers.get(AUTHORIZATION)
        if authorization is not None:
            headers = {name: each for name, each in headers.items() if name != AUTHORIZATION}
        if authorization != self._authorization:
            self._authorization = authorization
            self.writer.add(frames.Credential(str(authorization or "")))
        self.writer.add(
            frames.RequestFrame(number, request.method, request.target, headers, request.body)
        )
        self.waiting[number] = waiter
        return number

    def takes(self, request: Request) -> bool:
        """Whether ``request`` may be asked now, and is not too long."""
        welcome = self.welcome
        if welcome is None or self.problem is not None or self.is_over:
            return False
        if len(self.waiting) >= welcome.requests_max:
            return False
        body = request.body  # as ``fits``
        if body is not None and len(body) > self._body_bytes_max:
            return False
        return len(request.target) <= frames.TARGET_CHARACTERS_MAX

    def fits(self, request: Request) -> bool:
        """Whether the server reads a frame as long as that of ``request``: one that is longer is a
        mistake that ends the connection for all."""
        assert self.welcome is not None, "a conversation begins with its welcome"
        if len(request.target) > frames.TARGET_CHARACTERS_MAX:
            return False
        return request.body is None or len(request.body) <= self._body_bytes_max

    def cancel(self, number: int) -> bool:
        """Give up request ``number``; True if the server is to be notified."""
        if self.waiting.pop(number, None) is None or self.is_over:
            return False
        self.writer.add(frames.Cancel(number))
        return True

    def credit(self, number: int, amount: int) -> None:
        """Let more lines of request ``number`` come."""
        if number in self.waiting:
            self.writer.add(frames.Credit(number, amount))

    def ping(self) -> int:
        """Ask whether the server is there; return the number of its PONG."""
        self._pings += 1
        self.writer.add(frames.PingFrame(self._pings))
        return self._pings

    def take(self) -> bytearray:
        """Return what is to be sent; from now on it counts as sent."""
        self._sent_id = self._last_id
        data = self.writer.take()
        self.unheard_bytes += len(data)
        return data

    # --- in

    def receive(self, data: bytes) -> None:
        """Take what the connection brought, and notify who waits for it.

        Raises:
            BadArgumentsError: it is not what docs/stream.md allows; the connection is of no use.
        """
        if self.welcome is None and data.startswith(_FULL):
            self.problem = ThrottledError(
                f"{self.endpoint}: it has as many connections as it takes from here, or in all",
                endpoint=self.endpoint,
            )
            return
        self.unheard_bytes = 0
        reader, waiting = self._reader, self.waiting
        reader.feed(data)
        while taken := reader.take():
            for frame in taken:
                if type(frame) is frames.AnswerFrame:
                    waiter = waiting.pop(frame.id, None)
                    if waiter is None:
                        self._check_given_up(frame.id)
                    else:
                        headers = frame.headers
                        headers.setdefault("content-type", _PACKED)
                        waiter.on_answer(Response(frame.status, headers, frame.body))
                elif type(frame) is frames.Line:
                    waiter = waiting.get(frame.id)
                    if waiter is None:
                        self._check_given_up(frame.id)
                    elif frame.body:
                        waiter.on_line(frame.body)
                else:
                    self._take_other(frame)

    def lose(self, why: str) -> None:
        """Fail what is under way: the connection has ended."""
        if self.is_over:
            return
        self.is_over = True
        waiting = dict(self.waiting)
        self.waiting.clear()
        for number, waiter in waiting.items():
            waiter.on_failure(self._loss(why, is_sent=number <= self._sent_id))

    def _loss(self, why: str, *, is_sent: bool) -> CoordinatorError:
        if not is_sent:
            return UnavailableError(
                f"{self.endpoint}: {why}; nothing was sent", endpoint=self.endpoint
            )
        return ConnectionLostError(
            f"{self.endpoint}: the connection broke before the answer: {why}",
            endpoint=self.endpoint,
        )

    def _take_other(self, frame: frames.FromServer) -> None:
        match frame:
            case frames.Head(number, status, headers):
                waiter = self.waiting.get(number)
                if waiter is None:
                    self._check_given_up(number)
                else:
                    waiter.on_head(status, {**_PLAIN_HEADERS, **headers})
            case frames.End(number):
                waiter = self.waiting.pop(number, None)
                if waiter is None:
                    self._check_given_up(number)
                else:
                    waiter.on_end()
            case frames.Leader(url):
                self._on_leader(url)
            case frames.Pong(number):
                self.pong = number
            case frames.Welcome(version, settings):
                self._begin(version, settings)
            case frames.GoAway(problem):
                self._go_away(problem)
        if self.welcome is None and self.problem is None:
            raise BadArgumentsError("stream: expected WELCOME first, found another frame")

    def _begin(self, version: int, settings: frames.WelcomeSettings) -> None:
        if version != frames.VERSION or self.welcome is not None:
            raise BadArgumentsError(
                f"stream: expected WELCOME of version {frames.VERSION} once, found version "
                f"{version} or a second one"
            )
        self.welcome = settings
        self._body_bytes_max = settings.frame_bytes_max - frames.REQUEST_OVERHEAD_BYTES
        self._on_leader(settings.leader_url)

    def _go_away(self, problem: Mapping[str, Any]) -> None:
        error = from_problem(problem)
        self.is_misunderstood = self.welcome is None and isinstance(error, BadArgumentsError)
        if not isinstance(error, UnavailableError):
            error = UnavailableError(f"{self.endpoint}: {error.message}", endpoint=self.endpoint)
        self.problem = error

    def _check_given_up(self, number: int) -> None:
        if number > self._last_id or self.welcome is None:
            raise BadArgumentsError(
                f"stream: expected an answer to a request up to {self._last_id}, found one to "
                f"{number}"
            )


def _short(headers: Mapping[str, str]) -> dict[str, str]:
    """Return ``headers`` without what goes without saying, their names in lower case."""
    return {
        name: value
        for name, value in zip(map(str.lower, headers), headers.values(), strict=True)
        if value != _PACKED
    }
