"""The messages by which members compare their states (``divergence``).

A question names a place and how many slices are asked for from there on; the answer is their
digests, fewer if entries came meanwhile. A verdict is the digests that the members had for one
slice. A place is at an index, where all have the same level, and so make the same slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.errors import BadArgumentsError
from coordinator.state.packing import pack, unpack
from coordinator.state.slice_room import PIECE_BYTES, Cursor
from coordinator.state.slices import DIGEST_BYTES_MAX, Slice

FORMAT = 1
"""Of a question."""
SLICES_AT_ONCE_MAX = 8
"""In one question."""
_MEMBERS_MAX = 9
_PAYLOAD_BYTES_MAX = 128 * 1024
"""The longest key of a cursor is a path."""


class SlicePlace(NamedTuple):
    """A slice at an index."""

    at_index: int
    cursor: Cursor

    def behind(self, taken: Slice) -> SlicePlace:
        """Return the place of the slice behind this one, or the first one behind the last."""
        return SlicePlace(self.at_index, taken.following or Cursor())


@dataclass(frozen=True, slots=True)
class DigestQuestion:
    """What the leader of a term asks: the digests of ``count`` slices from a place on."""

    term: int
    place: SlicePlace
    count: int

    @property
    def payload(self) -> bytes:
        """Return the question as the message that carries it."""
        return pack((FORMAT, self.term, tuple(self.place), self.count))


@dataclass(frozen=True, slots=True)
class DigestVerdict:
    """The digest of each member for one slice, as the leader collected them."""

    place: SlicePlace
    digests: Mapping[str, bytes]

    @property
    def payload(self) -> bytes:
        """Return the verdict as the message that carries it."""
        return pack((tuple(self.place), tuple(sorted(self.digests.items()))))


def decode_question(payload: bytes) -> DigestQuestion:
    """Return a question; raises BadArgumentsError for what is none of this format."""
    try:
        number, term, place, count = unpack(_bounded(payload))
        is_question = number == FORMAT and type(term) is int and type(count) is int
        if is_question and 1 <= count <= SLICES_AT_ONCE_MAX:
            return DigestQuestion(term, _place_of(place), count)
    except (ValueError, TypeError):
        pass
    raise BadArgumentsError("the question of another member for a digest cannot be read")


def encode_digests(found: Iterable[Slice]) -> bytes:
    """Return the answer; it is empty if there is no digest."""
    digests = tuple([each.digest for each in found])
    return pack(digests) if digests else b""


def decode_digests(answer: bytes) -> tuple[bytes, ...] | None:
    """Return the digests of an answer; None if it is none."""
    if not answer:
        return ()
    try:
        digests = tuple(unpack(_bounded(answer)))
    except (ValueError, TypeError):
        return None
    is_answer = 0 < len(digests) <= SLICES_AT_ONCE_MAX and all(map(_is_digest, digests))
    return digests if is_answer else None


def decode_verdict(payload: bytes) -> DigestVerdict:
    """Return a verdict; raises BadArgumentsError for what is none."""
    try:
        place, rows = unpack(_bounded(payload))
        digests = dict(rows)
        is_verdict = 0 < len(digests) <= _MEMBERS_MAX and all(map(_is_digest, digests.values()))
        if is_verdict and all(type(each) is str for each in digests):
            return DigestVerdict(_place_of(place), digests)
    except (ValueError, TypeError):
        pass
    raise BadArgumentsError("what another member says of digests cannot be read")


def _bounded(payload: bytes) -> bytes:
    if len(payload) > _PAYLOAD_BYTES_MAX:
        raise ValueError("too long")
    return payload


def _place_of(row: Any) -> SlicePlace:
    index, (part, left, key, number) = row
    if type(key) is str and all(type(each) is int for each in (index, part, left, number)):
        return SlicePlace(index, Cursor(part, left, key, number))
    raise ValueError("not a place")


def _is_digest(digest: Any) -> bool:
    if type(digest) is not bytes:
        return False
    return 0 < len(digest) <= DIGEST_BYTES_MAX and len(digest) % PIECE_BYTES == 0
