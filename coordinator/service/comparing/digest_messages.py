"""The messages by which members compare their states (``divergence``).

A question names a place and how many slices are asked for from there on; the answer is their
digests, fewer if entries came in between. A verdict is the digests that the members had for one
slice. A place is at an index, where all have the same level, and so make the same slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple, TypeVar

from msgspec import DecodeError, Meta
from msgspec.msgpack import Decoder, encode

from coordinator.errors import BadArgumentsError
from coordinator.state.slice_room import PIECE_BYTES, Cursor
from coordinator.state.slices import DIGEST_BYTES_MAX, Slice

FORMAT: Final = 1
"""Of a question."""
SLICES_AT_ONCE_MAX: Final = 8
"""In one question."""
_MEMBERS_MAX: Final = 9
_PAYLOAD_BYTES_MAX: Final = 128 * 1024
"""The longest key of a cursor is a path."""

T = TypeVar("T")


class SlicePlace(NamedTuple):
    """A slice at an index."""

    at_index: int
    cursor: Cursor

    def behind(self, taken: Slice) -> SlicePlace:
        """Return the place of the slice behind this one, or the first one behind the last."""
        return SlicePlace(self.at_index, taken.following or Cursor())


_Format = Annotated[int, Meta(ge=FORMAT, le=FORMAT)]
_Count = Annotated[int, Meta(ge=1, le=SLICES_AT_ONCE_MAX)]
_Digest = Annotated[bytes, Meta(min_length=1, max_length=DIGEST_BYTES_MAX)]
_Digests = Annotated[tuple[_Digest, ...], Meta(min_length=1, max_length=SLICES_AT_ONCE_MAX)]
_Rows = Annotated[tuple[tuple[str, _Digest], ...], Meta(min_length=1, max_length=_MEMBERS_MAX)]
_QUESTION: Final = Decoder(tuple[_Format, int, SlicePlace, _Count])
_DIGESTS: Final = Decoder(_Digests)
_VERDICT: Final = Decoder(tuple[SlicePlace, _Rows])


@dataclass(frozen=True, slots=True)
class DigestQuestion:
    """What the leader of a term asks: the digests of ``count`` slices from a place on."""

    term: int
    place: SlicePlace
    count: int

    @property
    def payload(self) -> bytes:
        """Return the question as the message that carries it."""
        return encode((FORMAT, self.term, self.place, self.count))


@dataclass(frozen=True, slots=True)
class DigestVerdict:
    """The digest of each member for one slice, as the leader collected them."""

    place: SlicePlace
    digests: Mapping[str, bytes]

    @property
    def payload(self) -> bytes:
        """Return the verdict as the message that carries it."""
        return encode((self.place, sorted(self.digests.items())))


def decode_question(payload: bytes) -> DigestQuestion:
    """Return a question; raises BadArgumentsError for what is none of this format."""
    read = _read(_QUESTION, payload)
    if read is None:
        raise BadArgumentsError("the question of another member for a digest cannot be read")
    _, term, place, count = read
    return DigestQuestion(term, place, count)


def encode_digests(found: Iterable[Slice]) -> bytes:
    """Return the answer; it is empty if there is no digest."""
    digests = [each.digest for each in found]
    return encode(digests) if digests else b""


def decode_digests(answer: bytes) -> tuple[bytes, ...] | None:
    """Return the digests of an answer; None if it is none."""
    if not answer:
        return ()
    digests = _read(_DIGESTS, answer)
    return digests if digests is not None and _are_whole(digests) else None


def decode_verdict(payload: bytes) -> DigestVerdict:
    """Return a verdict; raises BadArgumentsError for what is none."""
    read = _read(_VERDICT, payload)
    if read is None or not _are_whole([digest for _, digest in read[1]]):
        raise BadArgumentsError("what another member says of digests cannot be read")
    return DigestVerdict(read[0], dict(read[1]))


def _read(decoder: Decoder[T], payload: bytes) -> T | None:
    try:
        return decoder.decode(payload) if len(payload) <= _PAYLOAD_BYTES_MAX else None
    except (DecodeError, RecursionError):
        return None


def _are_whole(digests: Iterable[bytes]) -> bool:
    return all(len(each) % PIECE_BYTES == 0 for each in digests)
