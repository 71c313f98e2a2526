"""The part of a door that every route needs: the member, the reading of requests, the answers.

One ``Door`` serves one application. It turns headers and bodies into values and values into
responses; the routes in between only name the call.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coordinator.clock import Clock
from coordinator.errors import (
    BadArgumentsError,
    ConnectionLostError,
    CoordinatorError,
    DataTooLargeError,
    SlowRequestError,
    forget_frames,
    to_problem,
)
from coordinator.node.config import HttpConfig
from coordinator.service.base.slices import ITEMS_AT_ONCE, in_slices, pass_for_itself
from coordinator.service.base.turns import KEY
from coordinator.service.member import Member
from coordinator.service.reads.reads import ReadReply
from coordinator.state.commands import RequestId
from coordinator.wire import messages
from coordinator.wire.addresses import network_of
from coordinator.wire.client_turns import ClientTurns
from coordinator.wire.codec import encoded
from coordinator.wire.encoding import Encoding, decode, encode, encode_listed
from coordinator.wire.request import Answer, IncomingRequest, LineStream
from coordinator.wire.routes.accept import MSGPACK_TYPES, encoding_wanted
from coordinator.wire.routes.bodies import SMALL, BodyBounds, HeavyWork, body_places, is_light
from coordinator.wire.routes.clean_up import CleanUp
from coordinator.wire.routes.closing import DoorClosing
from coordinator.wire.routes.queries import parsed_integer
from coordinator.wire.strict_json import shortened

logger = logging.getLogger("coordinator.http")

_CLIENT_ID_FORM: Final = re.compile(r"[\x21-\x7e]{1,64}")
_CLIENT_ID: Final = messages.CLIENT_ID_HEADER.lower()
_REQUEST_NUMBER: Final = messages.REQUEST_NUMBER_HEADER.lower()
_FLOOR_INDEX: Final = messages.FLOOR_INDEX_HEADER.lower()
_TIMEOUT: Final = messages.TIMEOUT_HEADER.lower()
_RETRY_AFTER_S: Final = "1"
_CHALLENGE: Final = 'Bearer realm="coordinator"'
_JSON_TYPES: Final = frozenset({"application/json"})
_CHUNKED: Final = "chunked"
_WRITTEN_LATER_BYTES: Final = 1024 * 1024
"""A longer answer is joined in one pass of the loop, and sent in another."""
_CLIENTS_KEPT: Final = 1_000
_NO_BODY: Final[dict[str, Any]] = {}


class Door:
    """The member behind the door, the limits of the door, and whether it is closing."""

    def __init__(self, member: Member, config: HttpConfig, clock: Clock) -> None:
        self.member = member
        self.config = config
        self.clock = clock
        self.closing = DoorClosing()
        self.clean_up = CleanUp(self.closing, config, clock)
        self.body_bytes = body_places(config.bodies_bytes_max, config.body_bytes_max)
        self._heavy = HeavyWork(self.body_bytes)
        self.turns = ClientTurns(member, config.request_deadline_ms, clock.monotonic_ms)
        self.member_id = member.labels()[0]
        self._replica: Any = member.access.replica
        self._client_ids: set[str] = set()
        """Some that were checked: most requests are of those."""
        self._floors: dict[str, int] = {}

    @property
    def has_rights(self) -> bool:
        """Whether rights are checked, as far as this member has come."""
        return bool(self._replica.has_rights)  # asked twice of a request: not by the member

    def close(self) -> None:
        """End the streams and give up the waits; what is short goes on. Idempotent."""
        self.closing.begin()

    async def finish(self) -> None:
        """Wait for what is being cleaned up."""
        await self.clean_up.finish()
        self._heavy.close()

    # --- requests

    def deadline_ms(self, request: IncomingRequest) -> int:
        """Return when this request must be answered, on the member's clock."""
        return self.clock.monotonic_ms() + self.timeout_ms(request)

    def timeout_ms(self, request: IncomingRequest) -> int:
        """Return how long this request may take in all."""
        text = request.headers.get(_TIMEOUT)
        if text is None:
            return self.config.request_deadline_ms
        maximum = self.config.request_deadline_ms_max
        return parsed_integer(text, messages.TIMEOUT_HEADER, minimum=1, maximum=maximum)

    @staticmethod
    def address(request: IncomingRequest) -> str:
        """Return where the client is, as bounds count it; headers of proxies are not believed."""
        return network_of(request.remote)

    def request_id(self, request: IncomingRequest) -> RequestId | None:
        """Return what makes this write safe to repeat, None when the caller did not say."""
        headers = request.headers
        client_id = headers.get(_CLIENT_ID)
        number, floor_index = headers.get(_REQUEST_NUMBER), headers.get(_FLOOR_INDEX)
        if client_id is None and number is None:
            return None
        if client_id is None or number is None:
            raise BadArgumentsError(
                f"headers: expected {messages.CLIENT_ID_HEADER} with "
                f"{messages.REQUEST_NUMBER_HEADER} or neither, found one of them"
            )
        floor = 0 if not floor_index else self._floors.get(floor_index)
        if floor is None or client_id not in self._client_ids:
            floor = self._checked(client_id, floor_index)
        return RequestId(
            client_id, parsed_integer(number, messages.REQUEST_NUMBER_HEADER, minimum=1), floor
        )

    def _checked(self, client_id: str, floor_index: str | None) -> int:
        """Check the headers that a client says again and again; return the floor."""
        checked_client_id(client_id)
        floor = 0
        if floor_index:
            floor = parsed_integer(floor_index, messages.FLOOR_INDEX_HEADER, minimum=0)
        if len(self._client_ids) >= _CLIENTS_KEPT or len(self._floors) >= _CLIENTS_KEPT:
            self._client_ids.clear()
            self._floors.clear()
        self._client_ids.add(client_id)
        if floor_index:
            self._floors[floor_index] = floor
        return floor

    async def raw_data(self, request: IncomingRequest, bounds: BodyBounds) -> bytes:
        """Return a body that is data itself, and says so: no page sends that without asking."""
        content_type = media_type(request)
        if content_type != messages.RAW_TYPE:
            raise BadArgumentsError(
                f"Content-Type: expected {messages.RAW_TYPE} with raw, "
                f"found {shortened(ascii(content_type)) if content_type else 'none'}"
            )
        return await self.raw_body(request, bounds)

    async def raw_body(self, request: IncomingRequest, bounds: BodyBounds = SMALL) -> bytes:
        """Return the bytes of the body, within the limits and the deadline for bodies."""
        body = self._body_so_far(request, bounds)
        return await self._body_to_come(request, bounds) if body is None else body

    def _body_so_far(self, request: IncomingRequest, bounds: BodyBounds) -> bytes | None:
        """Return the body, within the limits; None if some of it is to come."""
        length = request.body_length
        if not length and not request.has_body:
            return b""
        coding = request.headers.get("transfer-encoding")
        if coding and coding.strip().lower() != _CHUNKED:
            raise BadArgumentsError(
                f"Transfer-Encoding: expected chunked alone, found {shortened(ascii(coding))}: "
                "bodies are not inflated here"
            )
        maximum = min(bounds.bytes_max, self.config.body_bytes_max)
        if length is not None and length > maximum:
            raise _too_long(length, maximum)
        body = request.whole_body()
        if body is not None and len(body) > maximum:
            raise _longer(maximum)
        return body

    async def _body_to_come(self, request: IncomingRequest, bounds: BodyBounds) -> bytes:
        maximum = min(bounds.bytes_max, self.config.body_bytes_max)
        try:
            async with asyncio.timeout(self.config.body_deadline_ms / 1_000):
                return await self._slow_body(request, maximum)
        except TimeoutError:
            raise SlowRequestError(
                f"body: expected it whole within {self.config.body_deadline_ms} ms"
            ) from None

    def refuse_body(self, request: IncomingRequest) -> None:
        """Refuse a body with a request for a stream: nobody would read it, and it would wait in
        its buffers for as long as the stream goes on."""
        if request.has_unread_body:
            raise BadArgumentsError("body: expected none with a request for a stream, found one")

    async def _slow_body(self, request: IncomingRequest, maximum: int) -> bytes:
        """Read what comes bit by bit. Many of those together are bounded, as one is: their number
        times their size could be more than there is memory."""
        client, body = KEY.get(), bytearray()
        try:
            while chunk := await request.next_chunk():
                if len(body) + len(chunk) > maximum:
                    raise _longer(maximum)
                self.body_bytes.take(client, len(chunk))
                body += chunk
            return bytes(body)
        finally:
            self.body_bytes.give_back(client, len(body))

    async def body(self, request: IncomingRequest, bounds: BodyBounds = SMALL) -> Any:
        """Return the decoded body; an empty one is an empty object."""
        raw = self._body_so_far(request, bounds)
        if raw is None or not is_light(len(raw)):
            return await self._body_read(request, raw, None, bounds)
        if not raw:
            return _NO_BODY
        encoding = self.body_encoding(request)
        return decode(raw, encoding, self.config.json_depth_max, bounds.items_max)

    async def body_read(
        self,
        request: IncomingRequest,
        read: Callable[[Any], Any] | None,
        bounds: BodyBounds = SMALL,
    ) -> Any:
        """Return what ``read`` makes of the decoded body; of a large one off the loop."""
        return await self._body_read(request, self._body_so_far(request, bounds), read, bounds)

    async def _body_read(
        self,
        request: IncomingRequest,
        raw: bytes | None,
        read: Callable[[Any], Any] | None,
        bounds: BodyBounds,
    ) -> Any:
        if raw is None:
            raw = await self._body_to_come(request, bounds)
        if not raw:
            return _NO_BODY if read is None else read(_NO_BODY)
        encoding, depth_max = self.body_encoding(request), self.config.json_depth_max

        def work() -> Any:
            decoded = decode(raw, encoding, depth_max, bounds.items_max)
            return decoded if read is None else read(decoded)

        return work() if is_light(len(raw)) else await self._heavy.run(work, len(raw), KEY.get())

    def body_encoding(self, request: IncomingRequest) -> Encoding:
        """Return what the Content-Type says; a form, a plain text, a compressed body are refused: a
        page in a browser can send those to a loopback address without asking anybody."""
        headers = request.headers
        if type(headers) is dict and "content-encoding" not in headers:  # names in small letters
            said = headers.get("content-type")
            if said is None and request.encoding is Encoding.MSGPACK:
                return Encoding.MSGPACK
            if said == "application/json":
                return Encoding.JSON
        coding = (headers.get("content-encoding") or "identity").strip().lower()
        if coding != "identity":
            raise BadArgumentsError(
                f"Content-Encoding: expected none, found {shortened(ascii(coding))}: bodies are "
                "not inflated here"
            )
        content_type = media_type(request)
        if not content_type and request.encoding is Encoding.MSGPACK:
            return Encoding.MSGPACK
        if content_type in _JSON_TYPES:
            return Encoding.JSON
        if content_type in MSGPACK_TYPES:
            return Encoding.MSGPACK
        raise BadArgumentsError(
            "Content-Type: expected application/json or application/msgpack, "
            f"found {shortened(ascii(content_type)) if content_type else 'none'}"
        )

    @staticmethod
    def reply_encoding(request: IncomingRequest) -> Encoding:
        """Return what Accept asks for; what the door speaks when it leaves it open."""
        accept = request.headers.get("accept")
        return request.encoding if accept is None else encoding_wanted(accept, request.encoding)

    # --- what is answered

    def reply(
        self,
        request: IncomingRequest,
        body: Any,
        *,
        zxid: int,
        index: int,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return a response in the encoding the caller wants, labelled with zxid and index.

        ``body`` is a value of the model, or plain; one of bytes is encoded so already."""
        encoding = self.reply_encoding(request)
        raw = body if isinstance(body, bytes) else encoded(body, encoding)
        return Answer(raw, encoding._value_, zxid, index, status=status, headers=headers)

    def reply_read(
        self,
        request: IncomingRequest,
        body: Any,
        read: ReadReply[Any],
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return the response of a read, with its age if it may be stale."""
        if read.age_ms is not None:
            headers = {**(headers or {}), messages.STALE_AGE_HEADER: str(read.age_ms)}
        return self.reply(request, body, zxid=read.zxid, index=read.index, headers=headers)

    async def reply_listed(
        self,
        request: IncomingRequest,
        body: Mapping[str, Any],
        lists: Mapping[str, tuple[Sequence[Any], Callable[[Any, Encoding], Any]]],
        read: ReadReply[Any],
        *,
        at_once: int = ITEMS_AT_ONCE,
    ) -> Answer:
        """Return the response of a read with long lists, made and encoded in slices.

        ``lists`` are the fields of ``body`` to put in: what each is made of, and how each item."""
        encoding = self.reply_encoding(request)
        encoded: dict[str, list[bytes]] = {}
        for name, (items, make) in lists.items():
            encode_one = _encoder(make, encoding)
            encoded[name] = await in_slices(items, encode_one, at_once)
        whole = encode_listed(body, encoded, encoding)
        if len(whole) > _WRITTEN_LATER_BYTES:
            await pass_for_itself()  # it is copied again to be sent
        return self.reply_read(request, whole, read)

    @staticmethod
    def reply_bytes(
        read: ReadReply[Any],
        data: bytes | None,
        headers: Mapping[str, str],
        *,
        content_type: str | None = None,
        status: int = 200,
    ) -> Answer:
        """Return the response of a read whose body is the data itself, or nothing."""
        if read.age_ms is not None:
            headers = {**headers, messages.STALE_AGE_HEADER: str(read.age_ms)}
        return Answer(data, content_type, read.zxid, read.index, status=status, headers=headers)

    def reply_now(
        self,
        request: IncomingRequest,
        body: Any,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return a response about this member as it is now."""
        _, zxid, index = self.member.labels()
        return self.reply(request, body, zxid=zxid, index=index, status=status, headers=headers)

    def reply_encoded(self, body: bytes, content_type: str) -> Answer:
        """Return a response about this member, of a body that is encoded already."""
        _, zxid, index = self.member.labels()
        return Answer(body, content_type, zxid, index)

    def lines(self, request: IncomingRequest, *, is_sse: bool = False) -> LineStream:
        """Return the response to ``request`` that goes on, until this member is found to differ."""
        return request.lines(self.labels(), self._why_silent, is_sse=is_sse)

    def _why_silent(self) -> CoordinatorError | None:
        """Return why no line may go out any more; None while it may.

        What was asked may have been done, so this is indefinite."""
        difference = self.member.difference
        return ConnectionLostError(f"{difference}; try another one") if difference else None

    def labels(self) -> dict[str, str]:
        """Return the headers that say who answers, and how far it has come."""
        member_id, zxid, index = self.member.labels()
        return {
            messages.ZXID_HEADER: str(zxid),
            messages.INDEX_HEADER: str(index),
            messages.MEMBER_HEADER: member_id,
        }

    def problem(
        self,
        error: CoordinatorError,
        headers: Mapping[str, str] | None = None,
        *,
        encoding: Encoding = Encoding.JSON,
        status: int | None = None,
    ) -> Answer:
        """Return the problem details of ``error``: the one place where it gets its status."""
        _, zxid, index = self.member.labels()
        if type(of_error := error.fields.get("zxid")) is int:
            zxid = of_error  # this member may have gone on meanwhile
        problem = to_problem(error)
        forget_frames(error)
        if status is None:
            status = error.http_status
        else:
            problem["status"] = status
        if status == 401:
            headers = {**(headers or {}), "WWW-Authenticate": _CHALLENGE}
        if status in (429, 503):
            headers = {**(headers or {}), "Retry-After": _RETRY_AFTER_S}
        return Answer(
            encode(problem, encoding),
            messages.PROBLEM_TYPE if encoding is Encoding.JSON else encoding.value,
            zxid,
            index,
            status=status,
            headers=headers,
            closes=isinstance(error, DataTooLargeError | SlowRequestError),
            is_labelled=not self.has_rights,
        )


def _encoder(make: Callable[[Any, Encoding], Any], encoding: Encoding) -> Callable[[Any], bytes]:
    return lambda item: encode(make(item, encoding), encoding)


def media_type(request: IncomingRequest) -> str:
    """Return what the Content-Type says, without its parameters; empty when there is none."""
    return (request.headers.get("content-type") or "").partition(";")[0].strip().lower()


def refuse_too_long(request: IncomingRequest, maximum: int) -> None:
    """Refuse a body that is announced to be longer than ``maximum``."""
    length = request.body_length
    if length is not None and length > maximum:
        raise _too_long(length, maximum)


def _too_long(length: int, maximum: int) -> DataTooLargeError:
    return DataTooLargeError(
        f"body: expected at most {maximum} bytes, found {length}", limit=maximum
    )


def _longer(maximum: int) -> DataTooLargeError:
    return DataTooLargeError(f"body: expected at most {maximum} bytes, found more", limit=maximum)


def checked_client_id(client_id: str) -> str:
    """Return ``client_id`` if it is one: 1 to 64 printable ASCII characters."""
    if _CLIENT_ID_FORM.fullmatch(client_id) is None:
        raise BadArgumentsError(
            f"client id: expected 1 to 64 printable ASCII characters, "
            f"found {shortened(ascii(client_id))}"
        )
    return client_id
