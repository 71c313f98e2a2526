"""Between aiohttp and the routes: its request as they see one, and their answer as its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiohttp import HttpVersion10, web
from aiohttp.typedefs import Handler as WebHandler
from aiohttp.typedefs import Middleware

from coordinator.errors import BadArgumentsError, CoordinatorError, DataTooLargeError
from coordinator.model.access import NOBODY
from coordinator.service.base.turns import KEY
from coordinator.wire import messages
from coordinator.wire.admission import Place
from coordinator.wire.client_turns import ClientTurns, is_open
from coordinator.wire.encoding import Encoding
from coordinator.wire.http.hosts import Names, refuse_foreign_host, refuse_other_sites
from coordinator.wire.http.streams import HttpLines
from coordinator.wire.messages import AUTHORIZATION
from coordinator.wire.request import Answer, Answered, WhySilent
from coordinator.wire.routes.answering import Answering
from coordinator.wire.routes.door import Door, refuse_too_long
from coordinator.wire.routes.route import Route
from coordinator.wire.strict_json import shortened

DOOR = web.AppKey("door", Door)
ROUTES: web.AppKey[tuple[Route, ...]] = web.AppKey("routes", tuple)
"""The routes of the member, for other doors."""
SERVER = "coordinator"
_SAFE_METHODS = frozenset({"GET", "HEAD"})


class HttpRequest:
    """A request of aiohttp, as the routes see it."""

    __slots__ = ("_turns", "_web", "caller", "cost", "headers", "key", "mark", "method", "query",
                 "target")  # fmt: skip

    encoding = Encoding.JSON

    def __init__(self, request: web.Request, turns: ClientTurns | None = None) -> None:
        self._web = request
        self._turns = turns
        self.key = ""
        self.mark = 0
        self.cost = 1
        self.method = request.method
        self.target = request.path_qs
        self.query = request.rel_url.raw_query_string
        self.headers = request.headers
        self.caller = NOBODY

    @property
    def authorization(self) -> str | None:
        """What the client shows to prove who it is; two of it are no proof."""
        values = self._web.headers.getall(AUTHORIZATION, ())
        return ", ".join(values) if values else None

    @property
    def place(self) -> Place | None:
        """The place of its connection; None for a client in this process."""
        place: Place | None = getattr(self._web.protocol, "place", None)
        return place

    @property
    def remote(self) -> str:
        """The address of the client."""
        return self._web.remote or ""

    @property
    def has_body(self) -> bool:
        """Whether the request has a body."""
        return self._web.body_exists

    @property
    def has_unread_body(self) -> bool:
        """Whether some of its body has not been read."""
        return self._web.body_exists and not self._web.content.at_eof()

    @property
    def body_length(self) -> int | None:
        """How many bytes the body has, None if that is not said."""
        return self._web.content_length

    @property
    def has_begun(self) -> bool:
        """Whether some of the answer has been sent."""
        return self._web.writer.output_size > 0

    def header_values(self, name: str) -> Sequence[str]:
        """Return all values of a header."""
        return self._web.headers.getall(name, ())

    def whole_body(self) -> bytes | None:
        """Return the body if all of it is there, else None."""
        # Taken once only: aiohttp's own ``read`` would keep it for as long as the request is
        # answered, and a wait may last for hours.
        content = self._web.content
        if not content.is_eof():
            return None
        try:
            return content.read_nowait()
        except web.RequestPayloadError as error:
            raise _broken(error) from None

    async def next_chunk(self) -> bytes:
        """Return the next bytes of the body, b"" at its end."""
        try:
            return await self._web.content.readany()
        except web.RequestPayloadError as error:
            raise _broken(error) from None

    def is_connected(self) -> bool:
        """Say whether the client can still be answered."""
        transport = self._web.transport
        return transport is not None and not transport.is_closing()

    async def begin(self) -> None:
        """Wait for its turn."""
        assert self._turns is not None, "it is to be answered"
        await self._turns.turn(self)
        KEY.set(self.key)

    def on_waiting(self) -> None:
        """End its turn: it waits for others."""
        if self._turns is not None:
            self._turns.end(self)

    def lines(
        self, labels: Mapping[str, str], why_silent: WhySilent, *, is_sse: bool = False
    ) -> HttpLines:
        """Return an answer of many lines, to be sent one by one."""
        self.on_waiting()
        headers = {**labels, "Server": SERVER}
        return HttpLines(self._web, why_silent, is_sse=is_sse, labels=headers)


def _broken(error: web.RequestPayloadError) -> BadArgumentsError:
    return BadArgumentsError(f"body: expected what its headers announce: {error}")


def answered_by(answering: Answering, names: Names | None) -> Middleware:
    """Return what answers every request, as the other doors do: aiohttp routes nothing.

    Another's name, and another site, is refused before any route is looked at."""
    door = answering.door

    @web.middleware
    async def answer(request: web.Request, handler: WebHandler) -> web.StreamResponse:
        incoming = HttpRequest(request, door.turns)
        full = "" if incoming.place is None else incoming.place.full
        answered: Answered
        try:
            _refuse_others(request, names)
        except CoordinatorError as error:
            answered = answering.refuse(incoming, error)
        else:
            begin = None if is_open(incoming.target) else incoming.begin
            try:
                answered = await answering.answer(incoming, full, begin)
            finally:
                door.turns.end(incoming)
        response: web.StreamResponse
        if isinstance(answered, Answer):
            response = response_of(answered, door.member_id)
        else:
            assert isinstance(answered, HttpLines), "the lines of the door that asked"
            response = answered.response
        if full:
            response.force_close()  # a spare connection asks once
        return response

    return answer


def _refuse_others(request: web.Request, names: Names | None) -> None:
    if request.version < HttpVersion10:
        raise BadArgumentsError("request: expected HTTP/1.1 (RFC 9112), found no version")
    if names is not None:
        refuse_foreign_host(request, names)
    if request.method not in _SAFE_METHODS:
        refuse_other_sites(request, names)


def response_of(answer: Answer, member_id: str) -> web.Response:
    """Return an answer as a response: labelled with the member that answers, and its state."""
    headers = {} if answer.content_type is None else {"Content-Type": answer.content_type}
    if answer.is_labelled:
        headers[messages.ZXID_HEADER] = str(answer.zxid)
        headers[messages.INDEX_HEADER] = str(answer.index)
    headers[messages.MEMBER_HEADER] = member_id
    headers["Server"] = SERVER
    if answer.headers is not None:
        headers.update(answer.headers)
    response = web.Response(body=answer.body, status=answer.status, headers=headers)
    if answer.closes:
        response.force_close()
    return response


def continuing(door: Door) -> WebHandler:
    """Return what aiohttp asks when a client asks before it sends its body."""

    async def maybe_continue(request: web.Request) -> web.Response | None:
        """Tell a client that asks first to send its body, or return why not to."""
        expectation = request.headers.get("Expect", "")
        error: BadArgumentsError | DataTooLargeError
        if expectation.lower() != "100-continue":
            error = BadArgumentsError(
                f"Expect: expected 100-continue, found {shortened(ascii(expectation))}"
            )
            return response_of(door.problem(error), door.member_id)
        try:
            refuse_too_long(HttpRequest(request), door.config.body_bytes_max)
        except DataTooLargeError as too_large:
            return response_of(door.problem(too_large), door.member_id)
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # it is not a part of the response
        return None

    return maybe_continue  # type: ignore[return-value]
