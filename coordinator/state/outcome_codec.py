"""The codec of outcomes with their events, by the rules of ``codec``.

What an outcome comes to is written as it is remembered (``remembered``); beside it are its events
and grants, and whether it is given again. msgspec reads and writes all of it by these types.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from coordinator.model.events import Event, EventType
from coordinator.state.outcomes import Outcome, Several
from coordinator.state.remembered import kept_of, received

OUTCOME_FORMAT: Final = 1

_EventRow = tuple[EventType, str, int, int, str | None]


class _Written(Struct, frozen=True, array_like=True):
    """An outcome as it is written."""

    format: Annotated[int, Meta(ge=OUTCOME_FORMAT, le=OUTCOME_FORMAT)]
    kept: bytes
    events: Several[_EventRow]
    is_repeat: bool
    granted: Several[str]


_encode: Final = Encoder().encode
_decode: Final = Decoder(_Written).decode


def encode_outcome(outcome: Outcome) -> bytes:
    """Encode an outcome with its events."""
    events = tuple(
        [
            (each.type, each.path, each.version, each.czxid, each.ephemeral_owner)
            for each in outcome.events
        ]
    )
    kept = kept_of(outcome)
    return _encode(_Written(OUTCOME_FORMAT, kept, events, outcome.is_repeat, outcome.granted))


def decode_outcome(data: bytes) -> Outcome:
    """Decode an outcome; raises ValueError unless it is one, of this format, and nothing else."""
    try:
        written = _decode(data)
        is_whole = _encode(written) == data
    except ValueError as error:
        raise ValueError(f"expected an outcome: {error}") from None
    if not is_whole:
        raise ValueError("expected an outcome as it is written, found it otherwise")
    return replace(
        received(written.kept),
        events=tuple([Event(*each) for each in written.events]),
        is_repeat=written.is_repeat,
        granted=written.granted,
    )
