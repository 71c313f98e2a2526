"""A request as the routes see it, and its answer, whichever door it came through.

1. A request is a method, a target as it was sent, headers, a body that may still be on its way, and
   a client that may go away. The routes know nothing else; each door has its own kind.
2. An answer is whole: a status, a body, and who answers from which state. Each door writes it in
   its own way.
3. A response that goes on is a ``LineStream``: the door begins it with its first line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from coordinator.errors import CoordinatorError
from coordinator.model.access import Caller
from coordinator.wire.admission import Place
from coordinator.wire.encoding import Encoding

KEEP_ALIVE_S: Final = 2.0
"""After so long a silence a stream says that it is alive."""


WhySilent = Callable[[], CoordinatorError | None]
"""Says why a response may not go on; None while it may."""


class RequestHeaders(Protocol):
    """The headers of a request, looked up by their names in small letters."""

    def get(self, name: str, /) -> str | None:
        """Return the (first) value of a header, None when there is none."""

    def __contains__(self, name: object, /) -> bool: ...

    def __getitem__(self, name: str, /) -> str: ...

    def __iter__(self) -> Iterator[str]: ...


class ClientRequest(Protocol):
    """What was asked, and what is known of the client that asks."""

    @property
    def method(self) -> str:
        """In capitals, as sent."""

    @property
    def target(self) -> str:
        """Path and query, as sent: nothing is unquoted."""

    @property
    def remote(self) -> str:
        """The address of the client; empty when it has none."""

    @property
    def authorization(self) -> str | None:
        """What the client shows to prove who it is, None if nothing."""

    @property
    def place(self) -> Place | None:
        """The place of its connection; None for a client in this process."""


class IncomingRequest(ClientRequest, Protocol):
    """A request with its headers and its body, and the way to answer it."""

    caller: Caller
    """Who asks, as far as it was found out; the door says so before it is answered."""

    @property
    def query(self) -> str:
        """What follows the question mark of the target, as sent; empty when nothing does."""

    @property
    def headers(self) -> RequestHeaders:
        """The headers, by their names."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of bodies, both ways, if no header names another."""

    @property
    def has_body(self) -> bool:
        """Whether a body was announced, maybe an empty one."""

    @property
    def has_unread_body(self) -> bool:
        """Whether bytes of a body wait, or may still come."""

    @property
    def body_length(self) -> int | None:
        """How long the body will be, as far as it is known."""

    @property
    def has_begun(self) -> bool:
        """Whether a part of the response was sent."""

    def header_values(self, name: str) -> Sequence[str]:
        """Return all values of a header, in order."""

    def whole_body(self) -> bytes | None:
        """Take the body if all of it has come; None when some is missing.

        Raises:
            BadArgumentsError: it is not what its headers announced.
        """

    async def next_chunk(self) -> bytes:
        """Take what has come of the body, waiting for the first byte; empty at its end.

        Raises:
            BadArgumentsError: it is not what its headers announced.
        """

    def is_connected(self) -> bool:
        """Whether the client is still there, as far as one can tell."""

    def on_waiting(self) -> None:
        """Note that it waits for others, so that its client may ask more meanwhile."""

    def lines(
        self, labels: Mapping[str, str], why_silent: WhySilent, *, is_sse: bool = False
    ) -> LineStream:
        """Return the response that goes on, with ``labels`` in its headers.

        No line goes out once there is a reason for silence, but the one that says it.
        ``is_sse``: as server-sent events, where the door can say that."""


class LineStream(Protocol):
    """A response that goes on, one object after the other."""

    @property
    def status(self) -> int:
        """The status of the response."""

    @property
    def is_open(self) -> bool:
        """Whether its status was sent: an error can only be its last line from then on."""

    @property
    def is_line_out(self) -> bool:
        """Whether the client may have read the last line that was sent, as a whole."""

    @property
    def ended_with(self) -> CoordinatorError | None:
        """The error that it ended with, if it did."""

    @property
    def encoding(self) -> Encoding:
        """The encoding of its lines."""

    async def send(self, body: Mapping[str, Any]) -> None:
        """Send one line; waits while the client does not take what was sent."""

    async def send_encoded(self, line: bytes, kind: str, zxid: int | None) -> None:
        """Send one line that is encoded already; ``kind`` and ``zxid`` are those in it."""

    def send_at_once(self, line: bytes) -> bool:
        """Send an encoded line, if nothing must be waited for; return whether it was sent. A door
        that cannot know sends nothing so."""

    async def send_error(self, error: CoordinatorError) -> None:
        """Send the last line of a stream that ends with ``error``."""

    async def keep_alive(self) -> None:
        """Send a line without meaning, so that the client sees a living member."""

    async def end(self) -> None:
        """Say that nothing more comes."""


class Answer:
    """A whole answer: ``zxid`` and ``index`` say from which state of the member."""

    __slots__ = ("body", "closes", "content_type", "headers", "index", "is_labelled", "status",
                 "zxid")  # fmt: skip

    def __init__(
        self,
        body: bytes | None,
        content_type: str | None,
        zxid: int,
        index: int,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        closes: bool = False,
        is_labelled: bool = True,
    ) -> None:
        self.body = body
        self.content_type = content_type
        self.zxid = zxid
        self.index = index
        self.status = status
        self.headers = headers
        """Beside those that every answer has."""
        self.closes = closes
        """Whether what is left of the request is not worth reading."""
        self.is_labelled = is_labelled
        """Whether its headers say from which state it is; those to strangers do not."""


Answered = Answer | LineStream


def wants(request: IncomingRequest, media_type: str) -> bool:
    """Return whether Accept names ``media_type``."""
    return media_type in (request.headers.get("accept") or "").lower()
