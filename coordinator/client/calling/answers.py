"""The answers of members: what their bodies say, or the error that they carry."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from coordinator.client.calling.transport import Response
from coordinator.errors import (
    BadArgumentsError,
    CoordinatorError,
    OutcomeUnknownError,
    RequestError,
    SessionError,
    UnavailableError,
    from_problem,
)
from coordinator.wire.codec import BodyReader
from coordinator.wire.encoding import Encoding, decode
from coordinator.wire.packed import packed_reader

T = TypeVar("T")

_PACKED: str = Encoding.MSGPACK.value
_EXPECTED = (RequestError, SessionError, UnavailableError, OutcomeUnknownError)


def read_answer(endpoint: str, response: Response, parse: Callable[[Any], T]) -> T:
    """Return what an answer says, or raise the error that it carries.

    Raises:
        OutcomeUnknownError: it is no answer of a member, or cannot be read.
    """
    if response.status >= 400:
        raise problem_in(endpoint, response)
    is_packed = response.headers.get("content-type") == _PACKED
    encoding = Encoding.MSGPACK if is_packed else encoding_of(response.headers)
    if encoding is Encoding.MSGPACK and type(parse) is BodyReader:
        read_packed = packed_reader(parse.kind)
        if read_packed is not None:
            try:
                return read_packed(response.body)  # type: ignore[no-any-return]
            except (ValueError, RecursionError):
                pass  # it may be right all the same: the codec says
    try:
        return parse(decode(response.body, encoding))
    except BadArgumentsError as error:
        unread = OutcomeUnknownError(f"{endpoint}: the answer could not be read: {error.message}")
        raise unread from error


def problem_in(endpoint: str, response: Response) -> CoordinatorError:
    """Return the error in a response; one that is not a problem of ours is indefinite."""
    try:
        body = decode(response.body, encoding_of(response.headers))
        if isinstance(body, Mapping) and "code" in body:
            error = from_problem(body)
            if isinstance(error, _EXPECTED):
                return error
            return OutcomeUnknownError(f"{endpoint}: the member failed: {error.message}")
    except BadArgumentsError:
        pass  # something between us and the member answered
    return OutcomeUnknownError(
        f"{endpoint}: expected an answer of a member, found status {response.status}"
    )


def number_of(header: str | None) -> int:
    """Return the number that a header says, 0 if it says none."""
    return int(header) if header is not None and header.isascii() and header.isdigit() else 0


def encoding_of(headers: Mapping[str, str]) -> Encoding:
    """Return how a body with these headers is encoded."""
    media_type = headers.get("content-type", "")
    if media_type == _PACKED:
        return Encoding.MSGPACK
    media_type = media_type.split(";")[0].strip()
    return Encoding.MSGPACK if media_type == Encoding.MSGPACK.value else Encoding.JSON


_COUNT_MAX = 32
_BYTES_MAX = 4_096
"""Of a longer line only the last is kept."""


class RecentLines:
    """What the lines of streams said that were read last, by the line and how it is read.

    Many watches of a client get the same line, each on a stream of its own; it is read once.
    Several are kept, for a watch that has fallen behind reads a few in a row."""

    __slots__ = ("_long", "said")

    def __init__(self) -> None:
        self.said: dict[Hashable, Any] = {}
        self._long: Hashable | None = None

    def keep(self, key: Hashable, said: Any, length: int) -> None:
        """Keep what a line of so many bytes said."""
        kept = self.said
        if length > _BYTES_MAX:
            kept.pop(self._long, None)
            self._long = key
        kept[key] = said
        if len(kept) > _COUNT_MAX:
            oldest = next(iter(kept))
            kept.pop(oldest)
            if oldest == self._long:
                self._long = None  # it is the line itself
