"""The frames of the stream, as values: both sides' codec. No I/O, no clock.

docs/stream.md is the protocol; the numbers and the order of the fields here are those of its table.

1. A frame is four bytes of length, big endian, then that many bytes: one msgpack array that begins
   with the kind. A length over the limit is refused before memory is used for it.
2. Decoding is strict: an unknown kind, a field more or less, a wrong type, bytes after the array or
   text that is not UTF-8 ends the connection. The maps of HELLO and WELCOME are where later
   versions add names, so there unknown names are skipped.
3. What was whole before the first mistake is handed out before the mistake is raised.
4. Bodies and lines are opaque here: the routes bound and check them, as HTTP's bodies.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from coordinator.wire.stream.framing import FRAMES_AT_ONCE as FRAMES_AT_ONCE
from coordinator.wire.stream.framing import FrameReader as FrameReader
from coordinator.wire.stream.framing import FrameWriter as FrameWriter
from coordinator.wire.stream.framing import encoded as encoded

PREFACE = b"\0coordinator/1\r\n"
"""The first bytes of a client. No HTTP method begins with NUL, and no TLS record does."""
VERSION = 1
TARGET_CHARACTERS_MAX = 8 * 1024
HEADERS_MAX = 32
AUTHORIZATION_CHARACTERS_MAX = 8 * 1024
HELLO_BYTES_MAX = 4 * 1024
"""A frame of a client before WELCOME was sent to it, the bounds of which it does not know yet."""
REQUEST_OVERHEAD_BYTES = 16 * 1024
"""What a request frame may hold beside its body: target, headers, lengths."""
WINDOW_BYTES = 256 * 1024
"""The credit of a line stream when HELLO says nothing."""

_ID_MAX = 2**63 - 1

Id: TypeAlias = Annotated[int, Meta(ge=1, le=_ID_MAX)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=_ID_MAX)]
Method: TypeAlias = Annotated[str, Meta(max_length=16)]
Target: TypeAlias = Annotated[str, Meta(max_length=TARGET_CHARACTERS_MAX)]
Status: TypeAlias = Annotated[int, Meta(ge=100, le=599)]
Headers: TypeAlias = Annotated[dict[str, str], Meta(max_length=HEADERS_MAX)]


class _Frame(Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """The base of all frames: an array that begins with the kind."""


# --- what a client sends


class HelloSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """The settings in HELLO; every name may be left out."""

    label: Annotated[str, Meta(max_length=256)] = ""
    """Who it is, for people."""
    window_bytes: Annotated[int, Meta(ge=1, le=2**31 - 1)] = WINDOW_BYTES
    """The credit that each line stream begins with."""


class Hello(_Frame, frozen=True, tag=1):
    """The first frame of a client; its requests may follow at once."""

    version: Count
    settings: HelloSettings


class RequestFrame(_Frame, frozen=True, tag=2):
    """A request as docs/http-api.md describes it. Header names are in lower case.

    The body is msgpack if ``content-type`` is not there, and so is the answer without ``accept``.
    """

    id: Id
    method: Method
    target: Target
    headers: Headers
    body: bytes | None


class Cancel(_Frame, frozen=True, tag=3):
    """The client does not wait for this answer any more."""

    id: Id


class Credit(_Frame, frozen=True, tag=4):
    """The client has taken so many more bytes of lines."""

    id: Id
    amount: Annotated[int, Meta(ge=1, le=2**31 - 1)]


class PingFrame(_Frame, frozen=True, tag=5):
    """A question that the other side answers with a PONG of the same number."""

    number: Count


class Credential(_Frame, frozen=True, tag=6):
    """The ``authorization`` of all later requests that have no such header.

    An empty text is nobody in particular, as before the first of these."""

    authorization: Annotated[str, Meta(max_length=AUTHORIZATION_CHARACTERS_MAX)]

    def __repr__(self) -> str:
        return "Credential(...)"  # a secret


# --- what a server sends


class WelcomeSettings(Struct, frozen=True, gc=False, omit_defaults=True):
    """The settings in WELCOME: the server and its limits."""

    member_id: str
    leader_url: str | None = None
    """Where the leader serves clients, None while none is known."""
    frame_bytes_max: Annotated[int, Meta(ge=HELLO_BYTES_MAX)] = 1024 * 1024
    """The longest frame that it reads."""
    requests_max: Annotated[int, Meta(ge=1)] = 1024
    """How many requests of one connection may be under way."""
    idle_ms: Annotated[int, Meta(ge=1)] = 60_000
    """A connection on which it hears nothing for so long is closed."""


class Welcome(_Frame, frozen=True, tag=11):
    """The first frame of a server."""

    version: Count
    settings: WelcomeSettings


class AnswerFrame(_Frame, frozen=True, tag=12):
    """A whole response. Its body is msgpack if ``content-type`` is not there."""

    id: Id
    status: Status
    headers: Headers
    body: bytes


class Head(_Frame, frozen=True, tag=13):
    """The begin of a response that goes on line by line."""

    id: Id
    status: Status
    headers: Headers


class Line(_Frame, frozen=True, tag=14):
    """One line, msgpack; an empty one says nothing."""

    id: Id
    body: bytes


class End(_Frame, frozen=True, tag=15):
    """The end of the lines of one request."""

    id: Id


class Leader(_Frame, frozen=True, tag=16):
    """The new leader's URL, as in WELCOME."""

    url: str | None


class GoAway(_Frame, frozen=True, tag=17):
    """No more requests are taken here; those under way are answered if that is possible."""

    problem: dict[str, Any]


class Pong(_Frame, frozen=True, tag=18):
    """The answer to a PING."""

    number: Count


FromClient: TypeAlias = Hello | RequestFrame | Cancel | Credit | Credential | PingFrame
FromServer: TypeAlias = Welcome | AnswerFrame | Head | Line | End | Leader | GoAway | Pong

_FROM_CLIENT: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_FROM_SERVER: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def begins_stream(data: bytes) -> bool | None:
    """Return whether a connection that begins with ``data`` is a stream; None: not known yet."""
    if len(data) >= len(PREFACE):
        return data.startswith(PREFACE)
    return None if PREFACE.startswith(data) else False


def from_client(frame_bytes_max: int = HELLO_BYTES_MAX) -> FrameReader[FromClient]:
    """Return the reader of a server; what it is fed begins after the preface."""
    return FrameReader(_FROM_CLIENT, frame_bytes_max)


def from_server(frame_bytes_max: int) -> FrameReader[FromServer]:
    """Return the reader of a client."""
    return FrameReader(_FROM_SERVER, frame_bytes_max)
