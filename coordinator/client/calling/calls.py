"""A call to a member: method, target, headers, body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, urlencode

from msgspec import Struct

from coordinator.client.calling.request_ids import RequestIds
from coordinator.client.calling.transport import Headers, Request, Sharing
from coordinator.errors import BadArgumentsError
from coordinator.wire.codec import encoded
from coordinator.wire.encoding import Encoding
from coordinator.wire.messages import AUTHORIZATION, REQUEST_NUMBER_HEADER, TIMEOUT_HEADER
from coordinator.wire.strict_json import encode_msgpack

PACKED = Encoding.MSGPACK
"""What carries the data of znodes: bytes as they are."""
_TIMEOUT = TIMEOUT_HEADER.lower()
_REQUEST_NUMBER = REQUEST_NUMBER_HEADER.lower()
_IS_PLAIN = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch
"""Whether a text is the same percent-encoded."""
_IS_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.~/-]*").fullmatch


class Call(Struct, frozen=True):
    """What to ask; ``target`` is percent-encoded.

    ``body`` is a value of the model, or plain; None sends none. ``encoding`` None leaves it to the
    transport. ``is_for_any``: the leader answers it no better than any other member. ``renews``: it
    is a heartbeat, so it need not renew the session beside. ``share`` returns how the lines of its
    answer may be shared, of who asks (``authorization``) and the zxid that the client has seen.
    """

    method: str
    target: str
    body: Any = None
    encoding: Encoding | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    accept: str = ""
    is_for_any: bool = False
    renews: bool = False
    share: Callable[[str | None, int], Sharing] | None = None

    def request(
        self,
        timeout_ms: int | None,
        ids: RequestIds | None,
        usual: Encoding = Encoding.JSON,
        authorization: str | None = None,
    ) -> Request:
        """Return the request that says this, with the deadline and the id it is sent under.

        ``usual`` is how bodies travel that may travel in either way; msgpack goes without saying
        where it is usual. ``authorization`` shows who asks."""
        encoding = self.encoding or usual
        headers = Headers(self.headers)
        if ids is not None:
            headers.update(ids.fixed_headers)
            headers[_REQUEST_NUMBER] = str(ids.number)
        if authorization is not None:
            headers[AUTHORIZATION] = authorization
        if timeout_ms is not None:
            headers[_TIMEOUT] = str(timeout_ms)
        if self.accept:
            headers["accept"] = self.accept
        elif encoding is not usual or usual is not PACKED:
            headers["accept"] = encoding.value
        body, raw = self.body, None
        if body is not None:
            if encoding is not PACKED or usual is not PACKED:
                headers["content-type"] = encoding.value
            try:
                is_plain = type(body) is dict and encoding is PACKED
                raw = encode_msgpack(body) if is_plain else encoded(body, encoding)
            except UnicodeEncodeError as error:
                raise _not_text(error) from None
        return Request(self.method, self.target, headers, raw)


def quoted(segment: str, *, safe: str = "") -> str:
    """Return ``segment`` percent-encoded.

    Raises:
        BadArgumentsError: it is no text that UTF-8 can carry, such as a lone surrogate.
    """
    if (_IS_PLAIN_PATH if safe == "/" else _IS_PLAIN)(segment):
        return segment
    try:
        return quote(segment, safe=safe)
    except UnicodeEncodeError as error:
        raise _not_text(error) from None


def _not_text(error: UnicodeEncodeError) -> BadArgumentsError:
    return BadArgumentsError(f"expected text that UTF-8 can carry, found {error.object!a}")


def target_of(*segments: str | int) -> str:
    """Return the percent-encoded target of a route below /v1; an integer is its decimal digits.

    Raises:
        BadArgumentsError: a segment is neither text nor an integer.
    """
    return "/v1/" + "/".join([quoted(_text_of(segment)) for segment in segments])


def _text_of(segment: object) -> str:
    if isinstance(segment, str):
        return segment
    if isinstance(segment, int) and not isinstance(segment, bool):
        return str(segment)
    raise BadArgumentsError(f"expected a name of text or an integer, found {segment!r:.60}")


def packed(method: str, target: str, body: Any = None, *, is_for_any: bool = False) -> Call:
    """Return a call whose bodies are msgpack, both ways."""
    return Call(method, target, body, encoding=PACKED, is_for_any=is_for_any)


def tree_target(path: str, query: Sequence[tuple[str, str]] = ()) -> str:
    """Return the target of the znode at ``path``."""
    target = "/v1/tree" + quoted(path if path.startswith("/") else "/" + path, safe="/")
    return target + queried(query) if query else target


def queried(query: Sequence[tuple[str, str]]) -> str:
    """Return ``query`` with its question mark, or nothing.

    Raises:
        BadArgumentsError: a value is no text that UTF-8 can carry.
    """
    try:
        return "?" + urlencode(query) if query else ""
    except UnicodeEncodeError as error:
        raise _not_text(error) from None


def read_mode(stale: bool, at_least_zxid: int | None) -> list[tuple[str, str]]:
    """Return the query that says how fresh a read must be; none is linearizable."""
    if stale:
        return [("stale", "")]
    return [] if at_least_zxid is None else [("at_least_zxid", str(at_least_zxid))]
